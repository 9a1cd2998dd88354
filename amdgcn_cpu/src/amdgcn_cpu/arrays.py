"""Arrays of lanes, and masks of them as integers."""

import functools
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@functools.lru_cache(maxsize=1 << 14)
def lanes_of(mask: int, size: int) -> Array:
    """Returns a mask's bits as [size] booleans, which must not be written to."""
    bits = np.unpackbits(np.frombuffer(mask.to_bytes(8, "little"), np.uint8), bitorder="little")[:size].astype(bool)
    bits.flags.writeable = False
    return bits


def mask_of(lanes: Array) -> int:
    """Returns booleans of lanes as the bits of an integer."""
    return int.from_bytes(np.packbits(lanes, bitorder="little").tobytes(), "little")
