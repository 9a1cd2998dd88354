"""Tells how the memory of a result that a caller gives lies to that of the input, and refuses in torch's words.

Torch itself looks no further than strides of 0, and tensors without gaps.
"""

import math
from typing import Literal

import torch

Overlap = Literal["none", "same"]
Steps = list[tuple[int, int, int]]  # (length, how many may be taken back, and ahead), longest first
_CLONE = "refer{} to a single memory location. Please clone() the tensor before performing the operation."


def overlap_of(x: torch.Tensor, out: torch.Tensor) -> Overlap:
    """Returns how the memory of `out` lies to that of `x`; both have one shape, and elements.

    Returns:
        "none"; or "same", if out is the input itself, element by element.

    Raises:
        RuntimeError: several elements of `out` are one, or some of both are and others are not; as torch tells them.
    """
    if not _has_distinct_elements(out):
        raise RuntimeError(f"unsupported operation: more than one element of the written-to tensor {_CLONE.format('s')}")
    if _lie_apart(x, out):
        return "none"
    first, out_first = x.data_ptr(), out.data_ptr()
    if (first, x.dtype, _sizes(x)) == (out_first, out.dtype, _sizes(out)):
        return "same"
    if are_disjoint(x, out):
        return "none"
    written = "some elements of the input tensor and the written-to tensor"
    raise RuntimeError(f"unsupported operation: {written} {_CLONE.format('')}")


def is_apart(x: torch.Tensor, out: torch.Tensor) -> bool:
    """Tells whether the memory of `out` is the input's, element by element, or lies elsewhere."""
    try:
        return not x.numel() or overlap_of(x, out) in ("none", "same")
    except RuntimeError:
        return False


def are_disjoint(x: torch.Tensor, out: torch.Tensor) -> bool:
    """Tells whether no byte of `out` is one of `x`; both have elements."""
    if _lie_apart(x, out):
        return True
    ahead, back = _steps(x), _steps(out)  # from the first byte of x to one of its bytes, and from one of out to its first
    lengths = sorted(ahead.keys() | back.keys(), reverse=True)
    steps = [(length, back.get(length, 0), ahead.get(length, 0)) for length in lengths if length]
    return not _lead(steps, out.data_ptr() - x.data_ptr())


def _lie_apart(x: torch.Tensor, out: torch.Tensor) -> bool:
    """Tells whether all memory of `out` lies ahead of that of `x`, or behind it.

    On meta addresses are those within a storage, as if each began at 0.
    """
    if x.is_meta and x.untyped_storage()._cdata != out.untyped_storage()._cdata:
        return True
    (first, past), (out_first, out_past) = _span(x), _span(out)
    return past <= out_first or out_past <= first


def _sizes(x: torch.Tensor) -> list[tuple[int, int]]:
    """Returns the sizes above 1, and their strides."""
    return [(size, stride) for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]


def _steps(x: torch.Tensor) -> dict[int, int]:
    """Returns the steps that lead from the first byte to all others: by their length in bytes, how many."""
    steps = {1: x.element_size() - 1}
    for size, stride in _sizes(x):
        length = stride * x.element_size()
        steps[length] = steps.get(length, 0) + size - 1
    return steps


def span_of(x: torch.Tensor) -> int:
    """Returns the bytes from the first element to the last, with both."""
    return (1 + sum((size - 1) * stride for size, stride in _sizes(x))) * x.element_size()


def _span(x: torch.Tensor) -> tuple[int, int]:
    return x.data_ptr(), x.data_ptr() + span_of(x)


def _has_distinct_elements(x: torch.Tensor) -> bool:
    sizes, reach = sorted(_sizes(x), key=lambda each: each[1]), 0
    for size, stride in sizes:
        if stride <= reach:
            break
        reach += (size - 1) * stride
    else:
        return True  # each stride leads past all that shorter ones reach
    steps = [(stride, size - 1, size - 1) for size, stride in sizes[::-1]]
    if steps[-1][0] == 0:
        return False
    # Two elements are one where steps lead back to where they began: at least one ahead, and then any of the shorter ones.
    return not any(_lead([(stride, 0, ahead - 1), *steps[at + 1 :]], -stride) for at, (stride, _, ahead) in enumerate(steps))


def _lead(steps: Steps, distance: int) -> bool:
    """Tells whether some of the steps lead exactly so far.

    Nearly always one is longer than all shorter ones together, so that one or two numbers of it are worth a try.
    """
    if not steps:
        return distance == 0
    if distance % math.gcd(*(length for length, _, _ in steps)):
        return False
    (length, back, ahead), rest = steps[0], steps[1:]
    least = sum(-each * behind for each, behind, _ in rest)
    most = sum(each * further for each, _, further in rest)
    fewest, largest = -((most - distance) // length), (distance - least) // length  # such that the rest may lead there
    return any(_lead(rest, distance - taken * length) for taken in range(max(-back, fewest), min(ahead, largest) + 1))
