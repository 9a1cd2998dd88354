"""An estimate of whether the Unified Buffer holds a tile of this package's kernels, where Ascend's compiler is not asked.

What a tile takes is no sum over operands: the compiler reuses buffers, and double-buffers only where there is room. Of its
verdicts on 662 kernels of this package, 635 agree with these least bytes per element, of kernels that compute the named
operations, among others; the largest number counts. The other 27 fit too.
"""

from collections.abc import Collection

FLOAT32 = 4  # bytes of an element
A2_A3: dict[tuple[str, ...], float] = {
    (): 11.5,
    ("bool",): 23,
    ("cap",): 23,
    ("causal", "scale"): 23,
    ("causal", "temperature"): 23,
    ("added", "temperature"): 23,
    ("edge", "scale"): 23,  # a row ends within the tile, and elements past it are selected
    ("edge", "temperature"): 23,
    ("gradient",): 23,
    ("causal", "log gradient"): 23,
    ("token gradient",): 22,
    ("bool", "cap", "temperature"): 46,
    ("added", "cap", "temperature"): 46,
    ("added", "cap", "edge"): 46,
    ("cap", "edge", "temperature"): 46,
    ("added", "edge", "temperature"): 46,
    ("cap", "token gradient"): 46,
    ("many", "token gradient"): 46,
    ("square", "token gradient"): 270,  # as many rows as columns
    ("two rows", "token gradient"): 26,
}
A5: dict[tuple[str, ...], float] = {(): 15, ("cap", "many", "token gradient"): 30}
A5_FLOAT32: dict[tuple[str, ...], float] = A5 | {("bool",): 30, ("added",): 30, ("scale",): 30}
ROW = 1700  # bytes for the numbers of a row, of log-probabilities


def bytes_of(tile: tuple[int, int], size: int, operations: Collection[str], is_950: bool) -> int:
    """Returns the bytes of the Unified Buffer that a tile requires.

    Args:
        tile: its elements across and along lines.
        size: bytes of an element of the input.
        operations: names of what the kernel computes beside a softmax: Problem.operations.
        is_950: True for the generation of the 950.
    """
    least = A2_A3
    if is_950:
        least = A5_FLOAT32 if size == FLOAT32 else A5
    rows, length = tile
    known = {*operations, *["square"] * (rows == length), *["two rows"] * (rows == 2)}
    per_element = max(number for names, number in least.items() if set(names) <= known)
    return int(rows * length * per_element) + rows * ROW * ("tokens" in operations)
