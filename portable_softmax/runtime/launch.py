"""Launches on the active stream: a Problem from operands, its plan, its compiled kernel, bound into one call."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from portable_softmax.devices.device import Device
from portable_softmax.errors import LayoutError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.planning.lines import Lines, lines_of
from portable_softmax.planning.log_probs import LogProbs
from portable_softmax.planning.problem import VECTOR_BYTES, Problem
from portable_softmax.planning.request import problem_of
from portable_softmax.planning.scores import NONE, Scores
from portable_softmax.runtime.guard import guard_of, launch_on
from portable_softmax.runtime.plans import plan_problem
from portable_softmax.runtime.prepared import prepare
from portable_softmax.runtime.specialization import KernelSpec

if TYPE_CHECKING:
    import torch


def softmax_rows(x: "torch.Tensor", y: "torch.Tensor", device: Device, form: str = "softmax") -> None:
    """Launches y = softmax(x) on the active stream of their device.

    Args:
        x, y: [n_rows, n_cols] matrices of contiguous rows; or [matrices, n_cols, inner] of contiguous lines of `inner`
            neighbouring rows, and the softmax is taken across the lines. float16, bfloat16, float32 or float64.
        device: where they are.
        form: softmax, log_softmax or softmin.

    Raises:
        PlanError, CompileError: the kernel cannot run on the device.
        LayoutError: the lines are not contiguous.
    """
    _launch((y, x), device, form, False)


def softmax_backward_rows(
    dy: "torch.Tensor", y: "torch.Tensor", dx: "torch.Tensor", device: Device, form: str = "softmax"
) -> None:
    """Launches dx = the gradient of softmax_rows' x, from dy, the gradient of y, and y.

    Args:
        dy, y, dx: in the layouts of softmax_rows; y and dy of one type.
        device: where they are.
        form: softmax, log_softmax or softmin.

    Raises:
        PlanError, CompileError: the kernel cannot run on the device.
        LayoutError: the lines are not contiguous.
    """
    _launch((dx, dy, y), device, form, True)


def _launch(operands: tuple["torch.Tensor", ...], device: Device, form: str, backward: bool) -> None:
    lines = lines_of(operands[0].shape, 1, [each.stride() for each in operands], device.vendor.scattered_rows)
    if lines is None:
        strides = ", ".join(str(each.stride()) for each in operands)
        raise LayoutError(f"tensors of strides {strides} were given; their lines must be contiguous: copy them first")
    launch_on(guard_of(device), bind(operands, lines, form, backward, device, is_batch_invariant()), *operands)


def bind(
    operands: tuple["torch.Tensor", ...],
    lines: Lines,
    form: str,
    backward: bool,
    device: Device,
    batch_invariant: bool,
) -> Callable[..., None]:
    """Plans and compiles a launch: all is decided but the operands, of the same shapes, strides, types and alignment.

    Args:
        operands: tensors in the kernel's order: (y, x), or (dx, dy, y).
        lines: how they lie.
        form: softmax, log_softmax or softmin.
        backward: True for the gradient.
        device: where the operands are.
        batch_invariant: True if a row's bits may not depend on the other rows.

    Returns:
        launch(*operands), on the current stream of their device, which must be the current one; see guard.py.

    Raises:
        PlanError, CompileError: the kernel cannot run on the device.
    """
    problem = problem_from(operands, lines, form, backward, batch_invariant)
    return bind_problem(problem, device, operands[0].device)


def bind_problem(
    problem: Problem, device: Device, where: "torch.device", more_sizes: tuple[int, ...] = ()
) -> Callable[..., None]:
    """Plans and compiles a launch, as `bind` does, of a problem that is described already.

    Args:
        problem: what is computed, with its lines.
        device: where the operands are.
        where: torch's name of the device.
        more_sizes: values of parameters that only this problem's kernel has.

    Raises:
        PlanError, CompileError: the kernel cannot run on the device.
    """
    from portable_softmax.runtime.workspace import with_workspace

    planned = plan_problem(problem, device)
    problem, tiling, sizes = planned.problem, planned.tiling, (*sizes_of(planned.problem), *more_sizes)
    spec = KernelSpec.of(problem, tiling)
    launch = prepare(spec, device, (planned.num_programs, 1, 1), sizes)
    if spec.exchanges:
        launch = with_workspace(launch, problem, tiling, where)
    return launch


def sizes_of(problem: Problem) -> tuple[int, ...]:
    """Returns the values of the kernel's parameters from n_lines on, in the units that it takes them in."""
    lines = problem.lines
    if lines is None:
        raise ValueError(f"a {problem.name} of {problem.size} is launched, whose lines are not known")
    (n_batches, batches), (n_matrices, matrices), (n_lines, within) = lines.levels
    unit = 1 if problem.unaligned else problem.vector
    out_and_a = slice(2) if problem.stores else slice(1, None, -1)  # (a, b) is reduced: b lies where a result would
    in_units = [tuple(stride // unit for stride in each[out_and_a]) for each in (within, matrices, batches)]
    lines_given = n_lines // unit if lines.transposed else n_lines
    return lines_given, lines.length // unit, *in_units[0], n_matrices, *in_units[1], n_batches, *in_units[2]


def mask_sizes(problem: Problem) -> tuple[int, ...]:
    """Returns the mask's strides as the kernel takes them: but along a line in units of `mask_vector` elements."""
    if problem.lines is None or problem.lines.mask is None:
        raise ValueError(f"a {problem.name} is launched, whose mask's strides are not known")
    unit, along = problem.mask_vector, 1 if problem.across else 0
    return tuple(stride if at == along else stride // unit for at, stride in enumerate(problem.lines.mask))


def problem_from(
    operands: tuple["torch.Tensor", ...],
    lines: Lines,
    form: str,
    backward: bool,
    batch_invariant: bool,
    y_dtype: "torch.dtype | None" = None,
    scores: Scores = NONE,
    mask: "torch.Tensor | None" = None,
    log_probs: LogProbs | None = None,
) -> Problem:
    """Describes what `bind` plans, of scores or not; or what has no result of x's shape but `y_dtype`: `log_probs`."""
    x, y = (operands[0], operands[-1]) if backward else (operands[1], operands[0])
    return problem_of(
        lines,
        name_of(x.dtype),
        name_of(y_dtype or y.dtype),
        aligned=all(each.data_ptr() % VECTOR_BYTES == 0 for each in operands),
        form=form,
        backward=backward,
        batch_invariant=batch_invariant,
        scores=scores,
        in_place=not log_probs and any(_at_one_place(operands[0], each) for each in operands[1:]),
        mask_aligned=mask is not None and mask.data_ptr() % VECTOR_BYTES == 0,
        log_probs=log_probs,
    )


def _at_one_place(a: "torch.Tensor", b: "torch.Tensor") -> bool:
    """Tells whether two tensors start at one address; on meta, where none has memory, whether at one of their storage."""
    stored = not a.is_meta or a.untyped_storage()._cdata == b.untyped_storage()._cdata
    return stored and a.data_ptr() == b.data_ptr()


def name_of(dtype: "torch.dtype") -> str:
    """Returns torch's name of a type, without `torch.`."""
    return str(dtype).removeprefix("torch.")
