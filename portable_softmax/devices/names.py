"""Finds products by names of users, drivers and compilers."""

import fnmatch
import re
from collections.abc import Iterable
from difflib import get_close_matches

from portable_softmax.devices.profiles import DeviceProfile, every_profile, profiles, reported_as
from portable_softmax.errors import ProfileError

LIST = "`portable-softmax profiles` lists all, 'VENDOR/*' selects one of each architecture; `profiles new DIR` writes one"


def find_profile(name: str) -> DeviceProfile:
    """Returns the product with a name.

    A name is `vendor/product`, the product alone, what the driver reports ("NVIDIA H200"), or an architecture (gfx942, sm_90),
    which means the first product in its file: occupancy is the same for all of them. Case, spaces and hyphens do not count.

    Raises:
        ProfileError: no product has that name.
        TypeError: the name is not text.
    """
    if not isinstance(name, str):
        raise TypeError(f"a profile's name is a string such as 'vendor/product', not {name!r}")
    products = profiles()
    if name in products:
        return products[name]
    matches = [p for p in products.values() if _key(name) in (_key(p.name), _key(_product(p)))]
    matches = matches or reported_as(name, every_profile())[::-1]  # as `match_profile` chooses for a live device
    if matches := matches or _of_architecture(name):
        return matches[0]
    known = list(products) if "/" in name else [_product(p) for p in products.values()]
    near = [product for product in known if product.startswith(f"{name.lower()}-")] or get_close_matches(name.lower(), known, 1)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    raise ProfileError(f"no profile named {name!r}; {meant}{LIST}")


def find_profiles(names: Iterable[str]) -> list[DeviceProfile]:
    """Returns the products of names: those of `find_profile`, or globs: one of each architecture.

    Raises:
        ProfileError: a name or a glob means no product.
    """
    products: dict[str, DeviceProfile] = {}
    for name in names:
        every = [p for p in every_profile() if p.product and fnmatch.fnmatch(p.name, name.lower())]
        matches = list({(p.backend, p.arch_pattern): p for p in reversed(every)}.values())[::-1]
        if not {*"*?["} & {*name}:
            matches = [find_profile(name)]
        if not matches:
            raise ProfileError(f"no profile matches {name!r}; {LIST}")
        products |= {profile.name: profile for profile in matches}
    return list(products.values())


def _of_architecture(name: str) -> list[DeviceProfile]:
    """Returns the products of an architecture, by the name of its file, or a compiler's name of the target."""
    target = name.partition(":")[0].rpartition("/")[2]  # features follow: gfx942:sramecc+:xnack-
    stem, families = _key(target).removesuffix("a"), [p for p in every_profile() if not (p.product or p.estimated)]
    alike = [p for p in families if stem == _key(_product(p)).removesuffix("a")]
    alike += [p for p in families if re.fullmatch(p.arch_pattern, target, re.IGNORECASE)]
    patterns = {(p.backend, p.arch_pattern) for p in alike}
    return [p for p in every_profile() if p.product and (p.backend, p.arch_pattern) in patterns]


def _product(profile: DeviceProfile) -> str:
    return profile.name.rpartition("/")[2]


def _key(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())
