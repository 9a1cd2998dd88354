"""Finds products by names of users, drivers and compilers."""

import fnmatch
import functools
import re
from collections.abc import Iterable
from difflib import get_close_matches

import msgspec

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.profiles import MIN_LIKENESS, DeviceProfile, every_profile, profiles, reported_as
from portable_softmax.errors import ProfileError

LIST = "`portable-softmax profiles` lists all, 'VENDOR/*' selects one of each architecture"


def find_profile(name: str) -> DeviceProfile:
    """Returns the product with a name, as `Device.from_profile` has it; ProfileError without one; TypeError for no text."""
    if not isinstance(name, str):
        raise TypeError(f"a profile's name is a string such as 'vendor/product', not {name!r}")
    products = profiles()
    if name in products:
        return products[name]
    spelled = [p for p in products.values() if _key(name) in (_key(p.name), _key(_product(p)))]
    for matches in (spelled, reported_as(name, every_profile())[::-1], _of_architecture(name)):  # as for a live device
        if matches:
            return matches[0]
    meant = "".join(f"did you mean {' or '.join(near)}? " for near in [_similar(name)] if near)
    raise ProfileError(f"no profile named {name!r}; {meant}{LIST}")


def find_profiles(names: Iterable[str]) -> list[DeviceProfile]:
    """Returns the products of names: those of `find_profile`, or globs: one of each architecture; ProfileError if none is."""
    products: dict[str, DeviceProfile] = {}
    for name in names:
        if not {*"*?["} & {*name}:
            products.setdefault(find_profile(name).name, find_profile(name))
            continue
        matches = [p for p in every_profile() if p.is_product and fnmatch.fnmatch(p.name, name.lower())]
        if not matches:
            raise ProfileError(f"no profile matches {name!r}; {LIST}")
        of_families = {profile.family: profile for profile in reversed(matches)}
        products |= {profile.name: profile for profile in reversed(of_families.values())}
    return list(products.values())


def _similar(name: str) -> list[str]:
    """Returns products that a wrong name may mean: it is a part of theirs, or is like theirs and has the same numbers."""
    vendor, slash, typed = name.lower().rpartition("/")
    known = [_product(p) for p in profiles().values() if vendor in ("", p.name.partition("/")[0])]
    near = [product for product in known if product.startswith(f"{typed}-") or product.endswith(f"-{typed}")]
    alike = [product for product in known if re.findall(r"\d+", product) == re.findall(r"\d+", typed)]
    return [vendor + slash + product for product in near or get_close_matches(typed, alike, 1, MIN_LIKENESS)]


def _of_architecture(name: str) -> list[DeviceProfile]:
    """Returns the products of a compiler's target, or of an architecture by its file's name."""
    target = re.sub(rf"^({'|'.join(BACKENDS)})[:/]", "", name, flags=re.IGNORECASE)
    target = target.partition(":")[0].rpartition("/")[2]  # features follow: gfx942:sramecc+:xnack-
    target = re.sub(r"^(sm|compute)_?(\d+)[af]?$", r"\2", target, flags=re.IGNORECASE)  # sm_90, sm_90a
    products = [p for p in every_profile() if p.is_product]
    if exact := [p for p in products if p.arch.lower() == target.lower()]:
        return exact
    for product in (p for p in products if not p.family.endswith("/estimated")):
        if _key(target) == _key(product.family.rpartition("/")[2]):  # 910b
            return [product]
        for known in (target, target.lower()):
            if re.fullmatch(product.target_pattern, known):
                return [_with_target(product, known)]
    return []


@functools.cache
def _with_target(product: DeviceProfile, target: str) -> DeviceProfile:
    """Returns the profile of a product's architecture for a target that no product has, under the target's name."""
    name = f"{product.name.partition('/')[0]}/{target.lower()}"
    return msgspec.structs.replace(product, name=name, arch=target)


def _product(profile: DeviceProfile) -> str:
    return profile.name.rpartition("/")[2]


def _key(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())
