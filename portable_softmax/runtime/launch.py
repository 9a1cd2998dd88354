"""Launches on the active stream: a Problem from operands, its plan, its compiled kernel, bound into one call."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from portable_softmax.devices.device import Device
from portable_softmax.planning.lines import Lines
from portable_softmax.planning.log_probs import LogProbs
from portable_softmax.planning.problem import VECTOR_BYTES, Problem
from portable_softmax.planning.request import problem_of
from portable_softmax.planning.scores import NONE, Scores
from portable_softmax.runtime.plans import plan_problem
from portable_softmax.runtime.prepared import prepare
from portable_softmax.runtime.specialization import KernelSpec

if TYPE_CHECKING:
    import torch


def bind_problem(
    problem: Problem, device: Device, where: "torch.device", more_sizes: tuple[int, ...] = ()
) -> Callable[..., None]:
    """Plans and compiles a launch: all is decided but the operands, of the same shapes, strides, types and alignment.

    Args:
        problem: what is computed, with its lines.
        device: where the operands are.
        where: torch's name of the device.
        more_sizes: values of parameters that only this problem's kernel has.

    Returns:
        launch(*operands), in the kernel's order, on the current stream of their device, which must be the current one; see
        guard.py.

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
    return n_lines, lines.length // unit, *in_units[0], n_matrices, *in_units[1], n_batches, *in_units[2]


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
    """Describes what `bind_problem` plans, of scores or not; or what has no result of x's shape but `y_dtype`: `log_probs`."""
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
