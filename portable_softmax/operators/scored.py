"""The softmax of scores, and its gradient, by one launch each."""

import math
import struct
from typing import Any

import torch

from portable_softmax.devices.device import Device
from portable_softmax.errors import LayoutError
from portable_softmax.operators.arguments import check_gradient, device_of, wrap_dim
from portable_softmax.operators.kept import find, keep
from portable_softmax.operators.layout import AS_THEY_LIE, CONTIGUOUS, IN_ROWS, Operands, Way, on_copies
from portable_softmax.planning.lines import Lines, lines_of_scores
from portable_softmax.planning.problem import VECTOR_BYTES
from portable_softmax.planning.scores import Scores
from portable_softmax.runtime.guard import guard_of, launch_on
from portable_softmax.runtime.launch import bind_problem, mask_sizes, problem_from

Factor = float | torch.Tensor | None


def forward(
    x: torch.Tensor,
    dim: int,
    dtype: torch.dtype | None,
    form: str,
    batch_invariant: bool,
    scores: Scores,
    mask: torch.Tensor | None = None,
    factor: Factor = None,
    sink: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes the softmax of the scores of x along dim.

    Args:
        x: any shape and strides, of one of the kernel's types.
        dim: the axis along which the result sums to 1.
        dtype: type of the result; None for that of x.
        form: softmax, log_softmax or softmin.
        batch_invariant: True if a row's bits may not depend on the other rows.
        scores: what becomes of x first.
        mask: of x's rank, with sizes that are those of x or 1, and any strides.
        factor: a number, or one for each row: contiguous, of the type that is computed in, in the order of x's rows.
        sink: one for each row, as `factor`.

    Returns:
        A new contiguous tensor of the shape of x.

    Raises:
        DtypeError, DeviceError, PlanError, CompileError: the cases of api.functional.softmax.
    """
    dtype, dim = dtype or x.dtype, wrap_dim(dim, x.dim())
    device = device_of(x, x.dtype, dtype)
    y = x.new_empty(x.shape, dtype=dtype)
    if x.numel():
        mask = mask.expand(x.shape) if mask is not None else None  # by strides of 0
        _launch((y, x), dim, form, batch_invariant, scores, device, mask, factor, sink)
    return y


def backward(
    dy: torch.Tensor,
    y: torch.Tensor,
    dim: int,
    x_dtype: torch.dtype,
    form: str,
    batch_invariant: bool,
    scores: Scores,
    factor: Factor = None,
) -> torch.Tensor:
    """Computes the gradient of x, without the derivative of the cap, from that of y, and y.

    Args:
        dy, y: of one shape and type, any strides.
        dim, form, batch_invariant, scores, factor: as in `forward`.
        x_dtype: type of the result.

    Returns:
        A new contiguous tensor of the shape of y.

    Raises:
        DtypeError, DeviceError, PlanError, CompileError: no kernel computes it.
    """
    dim = check_gradient(dy, y, dim)
    device = device_of(y, y.dtype, x_dtype)
    dx = y.new_empty(y.shape, dtype=x_dtype)
    if y.numel():
        _launch((dx, dy, y.contiguous()), dim, form, batch_invariant, scores, device, None, factor, None)
    return dx


def _launch(
    operands: Operands,
    dim: int,
    form: str,
    batch_invariant: bool,
    scores: Scores,
    device: Device,
    mask: torch.Tensor | None,
    factor: Factor,
    sink: torch.Tensor | None,
) -> None:
    """Launches, as once planned for all operands like these."""
    number = factor if isinstance(factor, float | int) else 1.0
    layouts = tuple((each.dtype, each.shape, each.stride(), each.data_ptr() % VECTOR_BYTES == 0) for each in operands)
    key = (
        "scores",
        form,
        dim,
        batch_invariant,
        scores,
        layouts,
        (mask.stride(), mask.data_ptr() % VECTOR_BYTES == 0) if mask is not None else None,
        number,
        device.index,
    )
    launch = find(key)
    if launch is None:
        try:
            launch = _planned(operands, dim, form, batch_invariant, scores, device, mask, number)
        except LayoutError:
            _launch_slices(operands, dim, form, batch_invariant, scores, device, mask, factor, sink)
            return
        keep(key, launch)
    absent = operands[1]
    factors = factor if isinstance(factor, torch.Tensor) else absent
    if len(operands) == 3:
        more: Operands = (factors,)
    else:
        more = (absent if mask is None else mask, factors, absent if sink is None else sink)
    launch_on(guard_of(device), launch, *operands, *more)


def _planned(
    operands: Operands,
    dim: int,
    form: str,
    batch_invariant: bool,
    scores: Scores,
    device: Device,
    mask: torch.Tensor | None,
    number: float,
) -> Any:
    """Plans and compiles a launch of operands like these, on copies of them where they must be copied first."""
    strides = mask.stride() if mask is not None else (0,) * operands[0].dim()
    way, taken, lines = _arranged(operands, dim, strides, bool(scores.causal), batch_invariant)
    problem = problem_from(taken, lines, form, len(operands) == 3, batch_invariant, scores=scores, mask=mask)
    bits = struct.unpack("<q", struct.pack("<d", number)) if problem.y_dtype == "float64" else (_bits(number),)
    numbers = bits if len(operands) == 3 else (mask_sizes(problem) + bits)
    launch = bind_problem(problem, device, operands[0].device, numbers)
    return launch if way is AS_THEY_LIE else on_copies(launch, way, dim, len(operands) - 1)


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


def _launch_slices(
    operands: Operands,
    dim: int,
    form: str,
    batch_invariant: bool,
    scores: Scores,
    device: Device,
    mask: torch.Tensor | None,
    factor: Factor,
    sink: torch.Tensor | None,
) -> None:
    """Launches once for each index of the outermost dimension: x and its mask together have more levels than a kernel."""
    shape = operands[0].shape
    own = len(shape) - 2 if scores.causal else dim
    outermost = next(at for at, size in enumerate(shape) if size > 1 and at not in (dim, own))

    def sliced(given: Factor, at: int) -> Any:
        """Returns the numbers of a slice's rows, which follow each other."""
        return given.view(shape[outermost], -1)[at] if isinstance(given, torch.Tensor) else given

    for at in range(shape[outermost]):
        taken = tuple(each.narrow(outermost, at, 1) for each in operands)
        part = None if mask is None else mask.narrow(outermost, at, 1)
        _launch(taken, dim, form, batch_invariant, scores, device, part, sliced(factor, at), sliced(sink, at))
