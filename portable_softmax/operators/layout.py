"""Operands as a kernel takes them: as they lie, if they are lines (planning/lines.py), or copies of them."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from portable_softmax.devices.device import Device
from portable_softmax.errors import LayoutError
from portable_softmax.planning.lines import Lines, lines_of
from portable_softmax.planning.problem import VECTOR_BYTES

Operands = tuple[torch.Tensor, ...]


class Way(NamedTuple):
    """Copies operands, and makes room for the result, so that a kernel may take them; all shapes stay as they are.

    Args:
        copy: returns a tensor with an operand's elements, or the operand itself.
        place: returns a tensor of the result's shape, or the result itself.
    """

    copy: Callable[[torch.Tensor, int], torch.Tensor]
    place: Callable[[torch.Tensor, int], torch.Tensor]


def arranged(
    operands: Operands, dim: int, device: Device, batch_invariant: bool, n_read: int, turned: bool = True
) -> tuple[Way, Operands, Lines]:
    """Finds the first way in which a kernel takes operands, and returns it, the operands in that way, and how they lie.

    Args:
        operands: tensors of one shape, any strides.
        dim: the axis of the softmax, counted from 0.
        device: where they are.
        batch_invariant: True if rows must be read as those of a contiguous tensor are.
        n_read: the number of operands, from the first on, that the kernel looks at.
        turned: False where the kernel takes no operand whose rows lie the other way than the rows of others.
    """
    for way in (AS_THEY_LIE, CONTIGUOUS, IN_ROWS):
        taken = tuple(way.copy(each, dim) for each in operands)
        lines = lines_as_they_lie(taken[:n_read], dim, device, batch_invariant)
        if lines and (turned or not lines.turned):
            return way, taken, lines
    raise LayoutError(f"contiguous rows of {tuple(operands[0].shape)} are refused, which is an error of this package")


def on_copies(launch: Callable[..., None], way: Way, dim: int, n_inputs: int = 2) -> Callable[..., None]:
    """Returns launch(result, *inputs) that copies that many inputs in a way first, and the result back."""
    copy, place = way

    def copied(result: torch.Tensor, *inputs: torch.Tensor) -> None:
        taken = place(result, dim)
        launch(taken, *(copy(each, dim) for each in inputs[:n_inputs]), *inputs[n_inputs:])
        if taken is not result:
            result.copy_(taken)

    return copied


def lines_as_they_lie(operands: Operands, dim: int, device: Device, batch_invariant: bool) -> Lines | None:
    """Returns how the kernel takes the operands without a copy; None if it does not."""
    lines = lines_of(operands[0].shape, dim, [each.stride() for each in operands], device.vendor.scattered_rows)
    if lines and batch_invariant and not _as_if_contiguous(operands, lines):
        return None
    return lines


def _as_if_contiguous(operands: Operands, lines: Lines) -> bool:
    """Tells whether rows start on the multiple that their length alone implies, so that all are read alike."""
    if lines.across or lines.turned or lines.depth > 1:
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
