"""Tells how the memory of a result that a caller gives lies to that of the input, by torch's rules and in its words."""

from typing import Literal

import torch

Overlap = Literal["none", "same", "tangled"]
_CLONE = "refer{} to a single memory location. Please clone() the tensor before performing the operation."


def overlap_of(x: torch.Tensor, out: torch.Tensor) -> Overlap:
    """Returns how the memory of `out` lies to that of `x`; both have one shape, and elements.

    Returns:
        "none"; "same", if out is the input itself, element by element; "tangled", if strides alone do not tell that no element
        lies under another one: then the result must be computed elsewhere.

    Raises:
        RuntimeError: several elements of `out` are one, or some of both are and others are not; as torch tells them.
    """
    if any(size > 1 and not stride for size, stride in zip(out.shape, out.stride(), strict=True)):
        raise RuntimeError(f"unsupported operation: more than one element of the written-to tensor {_CLONE.format('s')}")
    if not _has_distinct_elements(out):
        return "tangled"
    if are_disjoint(x, out):
        return "none"
    first, out_first = x.data_ptr(), out.data_ptr()
    if (first, x.dtype, _steps(x)) == (out_first, out.dtype, _steps(out)):
        return "same"
    if _is_dense(x) and _is_dense(out):
        written = "some elements of the input tensor and the written-to tensor"
        raise RuntimeError(f"unsupported operation: {written} {_CLONE.format('')}")
    return "tangled"


def is_apart(x: torch.Tensor, out: torch.Tensor) -> bool:
    """Tells whether the memory of `out` is the input's, element by element, or lies elsewhere; False where neither is sure."""
    try:
        return not x.numel() or overlap_of(x, out) != "tangled"
    except RuntimeError:
        return False


def are_disjoint(x: torch.Tensor, out: torch.Tensor) -> bool:
    """Tells whether all memory of `out` lies ahead of that of `x`, or behind it."""
    (first, past), (out_first, out_past) = _span(x), _span(out)
    return past <= out_first or out_past <= first


def _steps(x: torch.Tensor) -> list[tuple[int, int]]:
    return [(size, stride) for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]


def _elements(x: torch.Tensor) -> int:
    """Returns the elements between the first and the last, with both."""
    return 1 + sum((size - 1) * stride for size, stride in _steps(x))


def _span(x: torch.Tensor) -> tuple[int, int]:
    return x.data_ptr(), x.data_ptr() + _elements(x) * x.element_size()


def _has_distinct_elements(x: torch.Tensor) -> bool:
    """Tells whether each stride leads past all that shorter ones reach, so that no two elements are one."""
    reach = 0
    for size, stride in sorted(_steps(x), key=lambda step: step[1]):
        if stride <= reach:
            return False
        reach += (size - 1) * stride
    return True


def _is_dense(x: torch.Tensor) -> bool:
    return _has_distinct_elements(x) and _elements(x) == x.numel()
