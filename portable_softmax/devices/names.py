"""Finds the product that a name means, as people, runtimes and compilers write it."""

import difflib
import functools
import re
from collections.abc import Callable, Iterable

from portable_softmax.devices.profiles import Described, DeviceProfile, described, reported_as
from portable_softmax.errors import ProfileError

NEAREST = 5  # names that the error for a wrong name suggests
LISTED = 12  # products that the error for an architecture's name lists


def find_profile(name: str) -> DeviceProfile:
    """Returns the product that a name means: `vendor/product`, the product alone, or the name that its runtime reports.

    Neither case nor spaces, hyphens and underscores count.

    Raises:
        ProfileError: no product has that name, or several have. Lists the products of an architecture of that name, or a few
            names that are near.
        TypeError: the name is not text.
    """
    if not isinstance(name, str):
        raise TypeError(f"a profile's name is text like vendor/product, not {name!r}")
    known = described()
    return known.products.get(name) or _meant(name, known)


@functools.cache
def _meant(name: str, known: Described) -> DeviceProfile:
    found = [p for p in known.products.values() if _key(name) in _names(p, p.name.rpartition("/")[2])]
    found = found or reported_as(name, known.every)[-1:]  # as `match_profile` takes a live device
    if len(found) == 1:
        return found[0]
    if found:
        raise ProfileError(f"{name!r} is the name of {' and of '.join(p.name for p in found)}; write one of them")
    raise ProfileError(_of_architecture(name, known) or _unknown(name, known.products))


def _of_architecture(name: str, known: Described) -> str | None:
    """Returns what to say if the name is an architecture's: limits of its products differ, so one has to be named."""
    products = _products(name, known)
    if not products:
        return None
    family = products[0].architecture.partition(" (")[0]
    listed = ", ".join(p.name for p in products[:LISTED])
    more = f" and {len(products) - LISTED} more, which `portable-softmax profiles` lists" if len(products) > LISTED else ""
    one = "one of its products" if len(products) > 1 else "its product"
    return f"{name!r} is an architecture, {family}; name {one}: {listed}{more}"


def _products(name: str, known: Described) -> list[DeviceProfile]:
    """Returns the products of an architecture by its target, else its file, its family, or a target that its file takes."""
    target, _, _ = name.partition(":")  # features follow: gfx942:sramecc+:xnack-
    key, bare = _key(target), target.rpartition("/")[2]
    files = {(p.backend, p.arch_pattern): p.name.rpartition("/")[2] for p in known.every if not (p.product or p.estimated)}
    own = [(p, files[place]) for p in known.products.values() if (place := (p.backend, p.arch_pattern)) in files]
    rules: tuple[Callable[[DeviceProfile, str], bool], ...] = (
        lambda p, _: _same(key, _names(p, p.arch)),
        lambda p, file: _same(key, _names(p, file)),
        lambda p, _: key in _names(p, p.architecture.partition(" (")[0]),
        lambda p, _: key in _names(p, bare) and re.fullmatch(p.arch_pattern, bare) is not None,
    )
    for rule in rules:
        if found := [p for p, file in own if rule(p, file)]:
            return found
    return []


def _same(key: str, names: Iterable[str]) -> bool:
    """Compares with or without the letter that a compiler appends for features of one architecture, as in sm_90a."""
    return key in names or (key[:-1] in names and key[-1] in "af")


def _names(profile: DeviceProfile, own: str) -> set[str]:
    """Returns keys of a profile's own name: alone, behind the vendor's, and behind Triton's name of the backend."""
    return {_key(f"{prefix}{own}") for prefix in ("", profile.name.partition("/")[0], profile.backend)}


def _key(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _unknown(name: str, known: Iterable[str]) -> str:
    """Returns what to say of a name that is nobody's: a few that contain it, or are spelt similarly, of the vendor it names."""
    vendor, _, _ = name.rpartition("/")
    of_vendor = [each for each in known if each.partition("/")[0] == vendor.lower()]
    products = {each: each.rpartition("/")[2] for each in of_vendor or known}
    wanted = name.rpartition("/")[2].lower()
    holding = [each for each, product in products.items() if _key(wanted) and _key(wanted) in _key(product)]
    holding.sort(key=lambda each: products[each] != wanted)  # the very product first
    alike = dict.fromkeys(difflib.get_close_matches(wanted, products.values(), NEAREST))
    near = (holding or [each for spelt in alike for each, product in products.items() if product == spelt])[:NEAREST]
    meant = f"; did you mean {', '.join(near)}?" if near else ";"
    return f"no profile named {name!r}{meant} `portable-softmax profiles` shows all of them"
