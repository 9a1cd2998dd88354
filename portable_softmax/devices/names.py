"""Finds products by name, as people, drivers and compilers write it."""

import difflib
import fnmatch
import re
from collections.abc import Iterable

from portable_softmax.devices.profiles import DeviceProfile, every_profile, profiles, reported_as
from portable_softmax.errors import ProfileError

LIST = "`portable-softmax profiles` lists all, and VENDOR/* selects one of each architecture; on the device, "
LIST += "`portable-softmax profiles new DIR` writes one"


def find_profile(name: str) -> DeviceProfile:
    """Returns the product that a name means.

    A name is `vendor/product`, the product alone, what the driver reports ("NVIDIA H200"), or an architecture (gfx942, sm_90),
    which means the first product in its file: occupancy is the same for all of them. Case, spaces and hyphens do not count.

    Raises:
        ProfileError: no product has that name, or several have.
        TypeError: the name is not text.
    """
    if not isinstance(name, str):
        raise TypeError(f"a profile's name is text like vendor/product, not {name!r}")
    products = profiles()
    if name in products:
        return products[name]
    key = _key(name)
    matches = (
        [p for p in products.values() if key in (_key(p.name), _key(_product(p)))]
        or reported_as(name, every_profile())[-1:]  # as `match_profile` chooses for a live device
        or _of_architecture(name)[:1]
        or [p for p in products.values() if _product(p).startswith(f"{name.lower()}-")]
    )
    if len(matches) > 1:
        raise ProfileError(f"{name!r} may be {', '.join(p.name for p in matches)}; write one of them")
    if not matches:
        known = [_product(p) for p in products.values()] if "/" not in name else products
        near = "".join(f"; did you mean {word}?" for word in difflib.get_close_matches(name.lower(), list(known), 1))
        raise ProfileError(f"no profile named {name!r}{near or ';'} {LIST}")
    return matches[0]


def find_profiles(names: Iterable[str]) -> list[DeviceProfile]:
    """Returns the products of names, each once: `find_profile`'s, several with commas, or globs such as "amd/*".

    A glob means one product of each architecture that it matches.

    Raises:
        ProfileError: a name or a glob means no product.
    """
    products: dict[str, DeviceProfile] = {}
    for name in (part.strip() for text in names for part in text.split(",")):
        every = [p for p in every_profile() if p.product and fnmatch.fnmatch(p.name, name.lower())]
        matches = list({(p.backend, p.arch_pattern): p for p in reversed(every)}.values())[::-1]
        if not {*"*?["} & {*name}:
            matches = [find_profile(name)]
        if not matches:
            raise ProfileError(f"no profile matches {name!r}; {LIST}")
        products |= {profile.name: profile for profile in matches}
    return list(products.values())


def _of_architecture(name: str) -> list[DeviceProfile]:
    """Returns the products of an architecture, by its name, the name of its file, or a compiler's name of the target."""
    target = name.partition(":")[0].rpartition("/")[2]  # features follow: gfx942:sramecc+:xnack-
    patterns = set()
    for family in [p for p in every_profile() if not (p.product or p.estimated)]:
        stem = _key(target).removesuffix("a") == _key(_product(family)).removesuffix("a")
        if stem or _key(name) == _key(family.architecture) or re.fullmatch(family.arch_pattern, target, re.IGNORECASE):
            patterns.add((family.backend, family.arch_pattern))
    return [p for p in every_profile() if p.product and (p.backend, p.arch_pattern) in patterns]


def _product(profile: DeviceProfile) -> str:
    return profile.name.rpartition("/")[2]


def _key(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())
