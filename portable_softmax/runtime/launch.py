"""Launches on the active stream: a Problem from operands, its plan, its compiled kernel, bound into one call."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from portable_softmax.devices.device import Device
from portable_softmax.planning.operands import problem_of
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.planner import launch_of
from portable_softmax.planning.problem import NONE, VECTOR_BYTES, LogProbs, Problem, Scores
from portable_softmax.runtime.kernel_form import units_of
from portable_softmax.runtime.plans import choice_of
from portable_softmax.runtime.prepared import prepare
from portable_softmax.runtime.specialization import KernelSpec

if TYPE_CHECKING:
    import torch


def bind_problem(
    problem: Problem, device: Device, where: "torch.device", more_sizes: Mapping[str, int] | None = None
) -> Callable[..., None]:
    """Plans and compiles a launch for operands of the same shapes, strides, types and alignment.

    Args:
        problem: what is computed, with its lines.
        device: where the operands are.
        where: torch's name of the device.
        more_sizes: n_ids and ignored, for log-probabilities.

    Returns:
        launch(*operands), tensors and then numbers in the order of KernelSpec.tensors and .numbers, on the current stream of
        their device, which must be the current one; see guard.py.

    Raises:
        PlanError, CompileError: the kernel cannot run on the device.
    """
    planned = launch_of(choice_of(problem, device), problem, device)
    sizes = {**sizes_of(planned.problem), **(more_sizes or {})}
    return bind_tiling(planned.problem, planned.tiling, planned.num_programs, sizes, device, where)


def bind_tiling(
    problem: Problem,
    tiling: Tiling,
    num_programs: int,
    sizes: Mapping[str, int],
    device: Device,
    where: "torch.device",
    prepared: Callable[..., Callable[..., None]] = prepare,
) -> Callable[..., None]:
    """Compiles the launch of a tiling, or two, of which the first reduces splits, and binds it to operands.

    Args:
        problem, tiling, num_programs: what is computed and how; in the grid of the first launch.
        sizes: see sizes_of.
        device, where: where the operands are.
        prepared: makes the launch of one kernel, of the arguments of prepared.prepare.
    """
    from portable_softmax.runtime.workspace import with_workspace

    spec, grid = KernelSpec.of(problem, tiling), (num_programs, 1, 1)
    specs = [spec, replace(spec, step="map")] if spec.step else [spec]
    launches = [prepared(spec, device, grid, sizes) for spec in specs]
    return with_workspace(launches, problem, tiling, where) if spec.words() else launches[0]


def sizes_of(problem: Problem) -> dict[str, int]:
    """Returns the values of kernels' integer parameters by name, in the units in which they are passed."""
    if problem.levels is None:
        raise ValueError(f"the strides of a {problem.name} of {problem.size} are not known, and it is launched")
    (_, batches), (n_heads, heads), (n_lines, within) = problem.levels
    row_unit, col_unit, unit = units_of(problem)
    tensor = "dy" if problem.backward else "x"
    sizes = {"n_rows": problem.n_rows, "n_cols": problem.n_cols // row_unit, "n_heads": n_heads}
    sizes |= {f"{tensor}_batch": batches[1] // unit, f"{tensor}_head": heads[1] // unit}
    if problem.across:
        sizes |= {"n_queries": problem.inner // col_unit, f"{tensor}_query": 1, f"{tensor}_col": within[1] // col_unit}
    else:
        sizes |= {"n_queries": n_lines, f"{tensor}_query": within[1] // row_unit, f"{tensor}_col": 1}
    if problem.mask_strides and problem.scores.mask:
        first = 2 if problem.across else 1  # that is passed in units
        strides = (stride if at < first else stride // problem.mask_vector for at, stride in enumerate(problem.mask_strides))
        sizes |= dict(zip(("m_col", "m_query", "m_head", "m_batch"), strides, strict=True))
    return sizes


def problem_from(
    operands: tuple["torch.Tensor", ...],
    dim: int,
    device: Device,
    mask: "torch.Tensor | None" = None,
    y_dtype: "torch.dtype | None" = None,
    scores: Scores = NONE,
    log_probs: LogProbs | None = None,
    **about: Any,
) -> Problem | None:
    """Returns the Problem that `bind_problem` plans, None if operands must be copied first.

    That of log-probabilities has `y_dtype`, as no result has x's shape.
    """
    x, y = operands[:2] if about["backward"] else (operands[1], operands[0])  # dy is of the type of y
    problem = problem_of(
        operands[0].shape,
        dim,
        [operand.stride() for operand in operands],
        (name_of(x.dtype), name_of(y_dtype or y.dtype)),
        scattered=bool(scores) or log_probs is not None or device.vendor.scattered_rows,
        mask=None if mask is None else mask.stride(),
        mask_aligned=mask is not None and scores.mask != "bits" and mask.data_ptr() % VECTOR_BYTES == 0,
        aligned=all(operand.data_ptr() % VECTOR_BYTES == 0 for operand in operands),
        in_place=not log_probs and any(_at_one_place(operands[0], operand) for operand in operands[1:]),
        scores=scores,
        log_probs=log_probs,
        **about,
    )
    if problem and problem.across and log_probs:
        return None  # the kernels of log-probabilities read rows alone
    return problem


def _at_one_place(a: "torch.Tensor", b: "torch.Tensor") -> bool:
    """True if two tensors start at one address; on meta, where none has memory, at one address of the same storage."""
    stored = not a.is_meta or a.untyped_storage()._cdata == b.untyped_storage()._cdata
    return stored and a.data_ptr() == b.data_ptr()


def name_of(dtype: "torch.dtype") -> str:
    """Returns torch's name of a type, without `torch.`."""
    return str(dtype).removeprefix("torch.")
