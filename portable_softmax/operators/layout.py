"""Operands as a kernel takes them: as they lie, if they are lines (planning/lines.py), or copies of them."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from portable_softmax.devices.device import Device
from portable_softmax.errors import LayoutError
from portable_softmax.operators.call import Call, Operands
from portable_softmax.planning.lines import Lines, lines_of, lines_of_scores
from portable_softmax.planning.problem import VECTOR_BYTES


class Way(NamedTuple):
    """Copies operands, and makes room for the result, so that a kernel may take them; all shapes stay as they are.

    Args:
        copy: returns a tensor with an operand's elements, or the operand itself.
        place: returns a tensor of the result's shape, or the result itself.
    """

    copy: Callable[[torch.Tensor, int], torch.Tensor]
    place: Callable[[torch.Tensor, int], torch.Tensor]


def arranged(call: Call, operands: Operands, device: Device, mask: torch.Tensor | None = None) -> tuple[Way, Operands, Lines]:
    """Finds the first way in which a kernel takes operands, and returns it, the operands in that way, and how they lie.

    Args:
        call: what is computed of them.
        operands: tensors of one shape, any strides; the result first.
        device: where they are.
        mask: of that shape; it stays as it is.

    Raises:
        LayoutError: operands and mask together have more levels than one launch.
    """
    for way in (AS_THEY_LIE, CONTIGUOUS, IN_ROWS):
        taken = tuple(way.copy(each, call.dim) for each in operands)
        if lines := _lines(call, taken, device, mask):
            return way, taken, lines
    strides = None if mask is None else mask.stride()
    raise LayoutError(f"{tuple(operands[0].shape)} with a mask of strides {strides} has too many levels for one launch")


def on_copies(launch: Callable[..., None], way: Way, call: Call) -> Callable[..., None]:
    """Returns a launch that copies its inputs in a way first, and the result back, which a reduction has not."""
    copy, place, dim, n_inputs = way.copy, way.place, call.dim, 1 + call.backward

    def copied(result: torch.Tensor, *given: torch.Tensor) -> None:
        taken = place(result, dim)
        launch(taken, *(copy(each, dim) for each in given[:n_inputs]), *given[n_inputs:])
        if taken is not result:
            result.copy_(taken)

    def reduced(*given: torch.Tensor) -> None:
        launch(*(copy(each, dim) for each in given[:n_inputs]), *given[n_inputs:])

    return copied if call.stores else reduced


def _lines(call: Call, operands: Operands, device: Device, mask: torch.Tensor | None) -> Lines | None:
    """Returns how the kernel takes the operands without a copy; None if it does not."""
    shape, strides = operands[0].shape, [each.stride() for each in operands]
    if call.scores or call.log_probs:
        of_mask = (0,) * len(shape) if mask is None else mask.stride()
        lines = lines_of_scores(shape, call.dim, strides, of_mask, bool(call.scores.causal))
    else:
        lines = lines_of(shape, call.dim, strides, device.vendor.scattered_rows)
    if lines and call.batch_invariant and not _as_if_contiguous(call, operands, lines):
        return None
    return lines


def _as_if_contiguous(call: Call, operands: Operands, lines: Lines) -> bool:
    """Tells whether rows start on the multiple that their length alone implies, so that all are read alike."""
    if lines.across or (lines.depth > 1 and not (call.scores or call.log_probs)):
        return False
    vector = math.gcd(lines.length, VECTOR_BYTES // max(each.element_size() for each in operands))
    aligned = all(each.data_ptr() % VECTOR_BYTES == 0 for each in operands)
    return aligned and all(stride % vector == 0 for stride in lines.strides)


def _itself(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x


def _contiguous(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.contiguous()


def _in_rows(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Copies a tensor so that its rows follow each other."""
    return x.movedim(dim, -1).clone(memory_format=torch.contiguous_format).movedim(-1, dim)


def _room_in_rows(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.empty_like(x.movedim(dim, -1), memory_format=torch.contiguous_format).movedim(-1, dim)


AS_THEY_LIE = Way(_itself, _itself)
CONTIGUOUS = Way(_contiguous, _contiguous)
IN_ROWS = Way(_in_rows, _room_in_rows)
