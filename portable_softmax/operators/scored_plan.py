"""Plans and compiles launches of the softmax of scores, on operands as they lie or on copies of them."""

import math
import struct
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from portable_softmax.devices.device import Device
from portable_softmax.errors import LayoutError
from portable_softmax.operators.layout import AS_THEY_LIE, CONTIGUOUS, IN_ROWS, Operands, Way, on_copies
from portable_softmax.planning.lines import Lines, lines_of_scores
from portable_softmax.planning.problem import VECTOR_BYTES, Problem
from portable_softmax.planning.scores import Scores
from portable_softmax.runtime.launch import bind_problem, mask_sizes, problem_from

Factor = float | torch.Tensor | None


class Wanted(NamedTuple):
    """Everything that operands, a mask and numbers do not tell: what is computed, and where.

    Args:
        dim: counted from 0.
        form: softmax, log_softmax or softmin.
        batch_invariant: True if a row's bits may not depend on the other rows.
        scores: what becomes of x first.
        device: where the operands are.
    """

    dim: int
    form: str
    batch_invariant: bool
    scores: Scores
    device: Device


def as_kernels_take(wanted: Wanted, factor: Factor, y: torch.Tensor) -> tuple[Wanted, Factor]:
    """Returns both as kernels take them: the factor is a positive number that multiplies, or one number for each row.

    Numbers that have no inverse, are not positive, or too small to be normal, become one for each row.
    """
    if factor is None or isinstance(factor, torch.Tensor):
        return wanted, factor
    dim, scores, compute = wanted.dim, wanted.scores, torch.promote_types(y.dtype, torch.float32)
    number, limits = 1 / factor if scores.divides and factor else factor, torch.finfo(compute)
    if factor and limits.tiny <= number <= limits.max:
        return wanted._replace(scores=replace(scores, divides=False)), number
    rows = [*y.shape[:dim], *y.shape[dim + 1 :]]
    numbers = torch.full(rows, factor, dtype=compute, device=y.device)
    return wanted._replace(scores=replace(scores, factor="rows")), numbers


def planned(operands: Operands, wanted: Wanted, mask: torch.Tensor | None, number: float) -> Any:
    """Plans and compiles a launch of operands like these, on copies of them where they must be copied first.

    Raises:
        LayoutError: operands and mask together have more levels than one launch.
        PlanError, CompileError: no kernel computes it.
    """
    way, problem = described(operands, wanted, mask)
    bits = struct.unpack("<q", struct.pack("<d", number)) if problem.y_dtype == "float64" else (_bits(number),)
    numbers = () if problem.scores.factor == "rows" else bits
    numbers = mask_sizes(problem) + numbers if mask is not None else numbers
    launch = bind_problem(problem, wanted.device, operands[0].device, numbers)
    return launch if way is AS_THEY_LIE else on_copies(launch, way, wanted.dim, len(operands) - 1)


def described(operands: Operands, wanted: Wanted, mask: torch.Tensor | None) -> tuple[Way, Problem]:
    """Describes a launch of operands like these: whether they are copied first, and the problem of what is launched.

    Raises:
        LayoutError: operands and mask together have more levels than one launch.
    """
    dim, form, batch_invariant, scores, _ = wanted
    strides = mask.stride() if mask is not None else (0,) * operands[0].dim()
    way, taken, lines = _arranged(operands, dim, strides, bool(scores.causal), batch_invariant)
    return way, problem_from(taken, lines, form, len(operands) == 3, batch_invariant, scores=scores, mask=mask)


def _bits(number: float) -> int:
    """Returns the bits of a float32, as an integer."""
    return int(torch.tensor(number, dtype=torch.float32).view(torch.int32))


def _arranged(
    operands: Operands, dim: int, mask: tuple[int, ...], causal: bool, batch_invariant: bool
) -> tuple[Way, Operands, Lines]:
    """Finds the first way in which a kernel takes operands with such a mask, whose strides stay as they are."""
    for way in (AS_THEY_LIE, CONTIGUOUS, IN_ROWS):
        taken = tuple(way.copy(each, dim) for each in operands)
        lines = lines_of_scores(taken[0].shape, dim, [each.stride() for each in taken], mask, causal)
        if lines and not (batch_invariant and not _as_if_contiguous(taken, lines)):
            return way, taken, lines
    raise LayoutError(f"{tuple(operands[0].shape)} with a mask of strides {mask} has too many levels for one launch")


def _as_if_contiguous(operands: Operands, lines: Lines) -> bool:
    """Tells whether rows start on the multiple that their length alone implies, so that all are read alike."""
    vector = math.gcd(lines.length, VECTOR_BYTES // max(each.element_size() for each in operands))
    aligned = all(each.data_ptr() % VECTOR_BYTES == 0 for each in operands)
    return not lines.across and aligned and all(stride % vector == 0 for stride in lines.strides)
