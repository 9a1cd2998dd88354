"""An estimate of whether the Unified Buffer holds a tile of this package's kernels, where Ascend's compiler is not asked.

What a tile takes is no sum over operands: the compiler reuses buffers, and double-buffers only where there is room. Of its
verdicts on 662 kernels of this package, 635 agree with these least bytes per element, of kernels that compute the named
operations, among others; the largest number counts. The other 27 fit too.
"""

from collections.abc import Collection

FLOAT32 = 4  # bytes of an element
A2_A3: dict[tuple[str, ...], int] = {
    (): 12,
    ("bool",): 24,
    ("cap",): 24,
    ("causal", "scale"): 24,
    ("causal", "temperature"): 24,
    ("added", "temperature"): 24,
    ("gradient",): 24,
    ("causal", "log gradient"): 24,
    ("bool", "cap", "temperature"): 48,
    ("added", "cap", "temperature"): 48,
    ("cap", "tokens"): 48,
    ("many", "tokens"): 48,
}
A5: dict[tuple[str, ...], int] = {(): 15, ("cap", "many", "tokens"): 31}
A5_FLOAT32: dict[tuple[str, ...], int] = A5 | {("bool",): 31, ("added",): 31, ("scale",): 31}


def bytes_of(elements: int, size: int, operations: Collection[str], is_950: bool) -> int:
    """Returns the bytes of the Unified Buffer that a tile requires.

    Args:
        elements: of the tile.
        size: bytes of an element of the input.
        operations: names of what the kernel computes beside a softmax: Problem.operations.
        is_950: True for the generation of the 950.
    """
    least = A2_A3
    if is_950:
        least = A5_FLOAT32 if size == FLOAT32 else A5
    return elements * max(number for names, number in least.items() if set(names) <= set(operations))
