"""Plans of buckets, which are kept; planning, compilation and loading ahead of the first call."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.detect import chosen, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, NoDeviceError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.planning import candidates, planner
from portable_softmax.planning.operands import bucket_key, bucket_of, contiguous_problem
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.problem import LogProbs, Problem
from portable_softmax.planning.tiling import Tiling
from portable_softmax.runtime.compile import compiled, loaded, on_device, resources_of, triton_version
from portable_softmax.runtime.kernel import kernels_of

if TYPE_CHECKING:
    import torch

_choices: dict[tuple[tuple[Any, ...], Device], LaunchPlan] = {}  # by bucket
n_measured = 0  # choices that were made anew to be measured; a call is kept under it, as they may replace that of the call


def plan(
    n_rows: int,
    n_cols: int,
    dtype: "torch.dtype | str",
    device: Device | str | None = None,
    *,
    form: str = "softmax",
    backward: bool = False,
) -> LaunchPlan:
    """Plans the launch of a softmax along the rows of a contiguous [n_rows, n_cols] matrix, with its reasons.

    Args:
        n_rows, n_cols: integers, also of numpy and torch.
        dtype: dtype of input and output: float16, bfloat16 or float32, as torch.dtype or by name (also fp16, bf16, fp32).
        device: a Device, or the name of one, which may be absent; None is the current device.
        form: softmax, log_softmax or token_log_probs.
        backward: True to plan the gradient.

    Raises:
        TypeError, ValueError, DtypeError: a size, the form or the dtype is not supported.
        TypeError, ProfileError, DeviceError: `device` is invalid, or there is none.
        PlanError: no launch compiles and fits the device. TargetError: this Triton compiles none for it.
    """
    device = chosen(device)
    return plan_problem(contiguous_problem(n_rows, n_cols, dtype, form, backward, is_batch_invariant()), device)


def warm_up(
    shapes: Sequence[Sequence[int]],
    dtypes: "Sequence[torch.dtype | str]",
    *,
    form: str = "softmax",
    backward: bool = False,
    device: Device | str | None = None,
    measure: int | None = None,
) -> list[LaunchPlan]:
    """Plans and compiles softmaxes, and loads their kernels onto the device, so that later calls do not wait for it.

    It prepares contiguous tensors and the softmax along the last dimension, under the active `batch_invariant`. Other layouts
    and dimensions, and `dtype=`, may need further kernels; other shapes with the same tiles and accesses do not.

    Args:
        shapes: shapes of the tensors, for example [(n_rows, n_cols)].
        dtypes: dtypes of input and output, as torch.dtype or by name; every shape is prepared for all of them.
        form, backward, device: as in `plan`; with backward, the gradient is prepared too. For an absent device, kernels are
            compiled into Triton's cache on disk (TRITON_CACHE_DIR), for a process that has the device.
        measure: number of launches, such as 4, that are timed for a range of rows, as by `launcher`; None for none. Ranks, and
            later processes, may select other launches. Nothing is timed for an absent device, or under `batch_invariant`.

    Returns:
        The plans by shape and dtype, the gradient's after the softmax's. On a machine without a device, and without
        `device=`, an empty list, with a warning: PyTorch computes the calls there, and compiles nothing.

    Raises:
        ValueError: `shapes` or `dtypes` is no list of them, or as in `plan`.
        TypeError, DtypeError, ProfileError, DeviceError, PlanError, CompileError: as in `plan`, or it does not compile.
    """
    if measure is not None:
        from portable_softmax.runtime.measuring import check_measure

        check_measure(measure)
    if not all(isinstance(shape, Sequence) for shape in shapes):
        raise ValueError(f"shapes should be a list of shapes, such as [(4096, 781), (8, 16, 1024)], not {shapes!r}")
    if isinstance(dtypes, str) or not isinstance(dtypes, Sequence) or (shapes and not dtypes):
        raise ValueError(f"dtypes should be like [torch.float32, 'bfloat16'], not {dtypes!r}")
    try:
        device = chosen(device)
    except NoDeviceError as error:
        warnings.warn(f"warm_up() does nothing, as there is no device: {error}", stacklevel=2)
        return []
    sizes = [(math.prod(shape[:-1]), math.prod(shape[-1:])) for shape in shapes]
    requests = product(sizes, dtypes, sorted({False, backward}))
    problems = [contiguous_problem(*size, dtype, form, grad, is_batch_invariant()) for size, dtype, grad in requests]
    if device.index is None:
        return [plan_problem(problem, device) for problem in problems]
    return [on_device(_ready, device)(problem, device, measure) for problem in problems]


def _ready(problem: Problem, device: Device, measure: int | None) -> LaunchPlan:
    """Loads the kernels of a problem, after its launches are measured if requested, and returns its plan."""
    from portable_softmax.runtime.measuring import time_softmaxes

    choice = choice_of(problem, device, measure, partial(time_softmaxes, problem=problem, device=device))
    planned = choice.resized(problem)
    loaded(choice.problem, planned.tiling, device)
    return planned


def occupancy(resources: KernelResources, device: Device | str | None = None) -> Occupancy:
    """Counts programs per multiprocessor of a kernel, a program of which uses `resources`, by the exact rule of the vendor.

    Raises:
        TypeError, ProfileError, DeviceError: `resources` is no KernelResources, or `device` is invalid, as in `plan`.
        ValueError: num_warps is None on a device with warps.
    """
    device = chosen(device)
    if not isinstance(resources, KernelResources):
        raise TypeError(f"resources must be such as KernelResources(num_warps=4, registers_per_thread=64), not {resources!r}")
    return device.vendor.occupancy(resources, device.hardware)


def plan_problem(problem: Problem, device: Device) -> LaunchPlan:
    """Returns the plan of a problem; raises PlanError if no candidate compiles and fits, TargetError if none could compile."""
    return choice_of(problem, device).resized(problem)


def choice_of(problem: Problem, device: Device, count: int | None = None, time: planner.Time | None = None) -> LaunchPlan:
    """Returns the plan of the bucket of a problem, which is kept; raises the errors of plan_problem.

    With a count, it is chosen anew, as the fastest of so many launches by `time`; not under batch_invariant. Two threads may
    both choose one: either is right, and the last one is kept.
    """
    global n_measured
    if not count or problem.batch_invariant:
        count, time = 1, None
    key = bucket_key(problem), device
    choice = _choices.get(key)
    if choice is None or time:
        choice = planner.choose_launch(bucket_of(problem), device, _compile, problem.size, count, time)
        if not choice.resources.estimated:  # without a compiler, which may be installed meanwhile
            _choices[key] = choice
        if time:
            n_measured += 1
    return choice


def _compile(problem: Problem, tiling: Tiling, device: Device) -> KernelResources:
    """Returns what a program uses, by an estimate where nothing compiles for an absent device, and its vendor has a model."""
    is_compiled = device.index is not None or not (interpreting() or device.vendor.missing())
    if not is_compiled and device.vendor.model((1, 1), 4, (), device):
        return candidates.estimated(problem, tiling, device)
    version = triton_version()  # raises CompileError if there is none
    kernel, *_ = kernels_of(problem, tiling, device)  # a second one, of two launches, is compiled where it is loaded
    if kernel.config.BLOCKS > 1 and version < (3, 3):
        raise CompileError("this Triton has no tuples of tensors; install Triton 3.3 or later")
    if problem.log_probs and problem.log_probs.sample:  # ranked as log-probabilities, of which it may have the launch
        compiled(kernel, device)
        kernel, *_ = kernels_of(replace(problem, log_probs=LogProbs()), tiling, device)
    return resources_of(kernel, device)
