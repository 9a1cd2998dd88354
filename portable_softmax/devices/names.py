"""Finds the product that a name means, as people, runtimes and compilers write it."""

import functools
import re

from portable_softmax.devices.profile_files import near
from portable_softmax.devices.profiles import DeviceProfile, every_profile, profiles, reported_as
from portable_softmax.errors import ProfileError


def find_profile(name: str) -> DeviceProfile:
    """Returns the product that a name means: `vendor/product`, the product alone, or the name that its runtime reports.

    Neither case nor spaces, hyphens and underscores count.

    Raises:
        ProfileError: no product has that name, or several have. An architecture's name is answered with its products, any other
            with the name most like it.
        TypeError: the name is not text.
    """
    if not isinstance(name, str):
        raise TypeError(f"a profile's name is text like vendor/product, not {name!r}")
    return _meant(name, every_profile())


@functools.cache
def _meant(name: str, every: tuple[DeviceProfile, ...]) -> DeviceProfile:
    products = profiles()
    if name in products:
        return products[name]
    found = [p for p in products.values() if _key(name) in (_key(p.name), _key(p.name.rpartition("/")[2]))]
    found = found or reported_as(name, every)[-1:]  # as `match_profile` takes a live device
    if len(found) == 1:
        return found[0]
    if found:
        raise ProfileError(f"{name!r} is the name of {' and of '.join(p.name for p in found)}; write one of them")
    target = name.partition(":")[0].rpartition("/")[2]  # features follow: gfx942:sramecc+:xnack-
    for family in (p for p in every if not (p.product or p.estimated)):
        if _key(target) == _key(family.name.rpartition("/")[2]) or re.fullmatch(family.arch_pattern, target):
            of_family = [p.name for p in products.values() if p.arch_pattern == family.arch_pattern]
            raise ProfileError(f"{name!r} is an architecture, {family.architecture}; name a product: {', '.join(of_family)}")
    shorter = {product.rpartition("/")[2]: product for product in products} if "/" not in name else products
    ways = (
        "`portable-softmax profiles` lists all; on the device, or a slice of it, `portable-softmax profiles new DIR` writes one"
    )
    raise ProfileError(f"no profile named {name!r}{near(name.lower(), shorter) or ';'} {ways}")


def _key(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())
