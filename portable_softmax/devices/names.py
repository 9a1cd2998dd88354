"""Finds products by names of users, drivers and compilers."""

import fnmatch
import functools
import re
from collections.abc import Iterable
from difflib import get_close_matches

import msgspec

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.profiles import DeviceProfile, every_profile, profiles, reported_as
from portable_softmax.errors import ProfileError

MIN_LIKENESS = 0.75  # of a name that is suggested, by difflib: nvidea, mi300y have 0.83; vr200 and h200 have 0.67
LIST = "`portable-softmax profiles` lists all, 'VENDOR/*' selects one of each architecture"


def find_profile(name: str) -> DeviceProfile:
    """Returns the product with a name; ProfileError if there is none, TypeError if it is not text.

    A name is `vendor/product`, the product alone, what the driver reports ("NVIDIA H200"), or an architecture: a compiler's
    target (gfx942, sm_90) or a file (sm90, 910b), which mean their first product. A target without a product, which a file's
    pattern matches, has the facts of the file's first product. Case, spaces and hyphens do not count.
    """
    if not isinstance(name, str):
        raise TypeError(f"a profile's name is a string such as 'vendor/product', not {name!r}")
    products = profiles()
    if name in products:
        return products[name]
    matches = [p for p in products.values() if _key(name) in (_key(p.name), _key(_product(p)))]
    matches = matches or reported_as(name, every_profile())[::-1]  # as `match_profile` chooses for a live device
    if found := (*matches, _of_architecture(name))[0]:
        return found
    meant = "".join(f"did you mean {' or '.join(near)}? " for near in [_similar(name)] if near)
    raise ProfileError(f"no profile named {name!r}; {meant}{LIST}")


def find_profiles(names: Iterable[str]) -> list[DeviceProfile]:
    """Returns the products of names: those of `find_profile`, or globs: one of each architecture; ProfileError if none is."""
    products: dict[str, DeviceProfile] = {}
    for name in names:
        if not {*"*?["} & {*name}:
            products.setdefault(find_profile(name).name, find_profile(name))
            continue
        every = [p for p in every_profile() if p.is_product and fnmatch.fnmatch(p.name, name.lower())]
        if not every:
            raise ProfileError(f"no profile matches {name!r}; {LIST}")
        matches = list({(p.backend, p.target_pattern): p for p in reversed(every)}.values())[::-1]
        products |= {profile.name: profile for profile in matches}
    return list(products.values())


def _similar(name: str) -> list[str]:
    """Returns products that a wrong name may mean: it is a part of theirs, or is like theirs and has the same numbers."""
    vendor, slash, typed = name.lower().rpartition("/")
    known = [_product(p) for p in profiles().values() if vendor in ("", p.name.partition("/")[0])]
    near = [product for product in known if product.startswith(f"{typed}-") or product.endswith(f"-{typed}")]
    alike = [product for product in known if re.findall(r"\d+", product) == re.findall(r"\d+", typed)]
    return [vendor + slash + product for product in near or get_close_matches(typed, alike, 1, MIN_LIKENESS)]


def _of_architecture(name: str) -> DeviceProfile | None:
    """Returns the first product of a compiler's target, or of an architecture by its file's name; None if there is none."""
    target = re.sub(rf"^({'|'.join(BACKENDS)})[:/]", "", name, flags=re.IGNORECASE)
    target = target.partition(":")[0].rpartition("/")[2]  # features follow: gfx942:sramecc+:xnack-
    stem, products = _key(target).replace("compute", "sm"), [p for p in every_profile() if p.is_product]
    if exact := [p for p in products if p.arch.lower() == target.lower()]:
        return exact[0]
    for family in (p for p in every_profile() if not (p.is_product or p.estimated)):
        first = next((p for p in products if (p.backend, p.target_pattern) == (family.backend, family.target_pattern)), None)
        suffix = "[af]?" if family.arch.isdecimal() else ""
        if first and re.fullmatch(_key(_product(family)) + suffix, stem):  # sm_90, sm_90a, 910b
            return first
        for known in (target, target.lower()):
            if first and re.fullmatch(family.target_pattern, known):
                return _with_target(first, known)
    return None


@functools.cache
def _with_target(product: DeviceProfile, target: str) -> DeviceProfile:
    """Returns the profile of a product's architecture for a target that no product has, under the target's name."""
    name = f"{product.name.partition('/')[0]}/{target.lower()}"
    return msgspec.structs.replace(product, name=name, arch=target)


def _product(profile: DeviceProfile) -> str:
    return profile.name.rpartition("/")[2]


def _key(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())
