"""Cached plans for shapes; the source of the planner's resources of compiled kernels."""

import functools
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.detect import chosen, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.planning import candidates, planner
from portable_softmax.planning.operands import bucket_of, contiguous_problem
from portable_softmax.planning.plan import LaunchPlan, Tiling
from portable_softmax.planning.problem import LogProbs, Problem
from portable_softmax.runtime import compiler
from portable_softmax.runtime.compiled import compile_kernel, resources_of
from portable_softmax.runtime.specialization import KernelSpec

if TYPE_CHECKING:
    import torch

_measured: dict[tuple[Problem, Device, bool], LaunchPlan] = {}  # by bucket, in place of the choice by cost
_log = logging.getLogger("portable_softmax")


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
        TypeError: a size is not an integer, or `device` is neither a Device nor a name.
        ValueError: a size is not positive or too large, or `form` is unknown.
        DtypeError: the device does not support the dtype.
        PlanError: no launch fits the device.
        ProfileError: no profile has that name.
        DeviceError: `device` is None, and there is no device.
    """
    device = chosen(device)
    return plan_problem(contiguous_problem(n_rows, n_cols, dtype, form, backward, is_batch_invariant()), device)


def occupancy(resources: KernelResources, device: Device | str | None = None) -> Occupancy:
    """Counts programs per multiprocessor of a kernel that uses `resources`, by the exact rule of the device's vendor.

    Args:
        resources: registers, shared memory and warps of one program.
        device: the device, as in `plan`.

    Raises:
        TypeError: `resources` is not a KernelResources.
        TypeError, ProfileError, DeviceError: `device` is invalid, as in `plan`.
        ValueError: num_warps is None on a device with warps.
    """
    device = chosen(device)
    if not isinstance(resources, KernelResources):
        raise TypeError(f"resources must be such as KernelResources(num_warps=4, registers_per_thread=64), not {resources!r}")
    return device.vendor.occupancy(resources, device.hardware)


def plan_problem(problem: Problem, device: Device) -> LaunchPlan:
    """Returns the plan of a problem. The choice for its bucket of rows is cached, and logs a warning if it is slow.

    Resources are estimated where nothing compiles for an absent device, and its vendor has an estimate.

    Raises:
        PlanError: nothing fits the device.
        CompileError: this Triton does not compile for the device, or interprets.
    """
    return planner.plan_of(choice_of(problem, device), problem, device)


def choice_of(problem: Problem, device: Device) -> LaunchPlan:
    """Returns the launch that is chosen for the bucket of a problem, cached; raises the errors of plan_problem."""
    estimated = False
    if device.index is None:
        compiler.check_target(device)
        estimates = device.vendor.model((1, 1), 4, (), device) is not None
        estimated = estimates and (interpreting() or device.vendor.missing() is not None)
        if not estimated:
            compiler.check_compiles()  # or every tiling would fail to compile for this reason
    key = bucket_of(problem), device, estimated
    return _measured.get(key) or _choice(*key)


def prefer(choice: LaunchPlan, problem: Problem, device: Device) -> None:
    """Lets plans of the bucket of a problem on a present device use a launch that was measured, in this process."""
    _measured[bucket_of(problem), device, False] = choice


@functools.lru_cache(maxsize=4096)
def _choice(problem: Problem, device: Device, estimated: bool) -> LaunchPlan:
    plan = planner.choice_of(problem, device, candidates.estimated if estimated else _compile)
    if plan.warning:
        sizes = f"{problem.size}, {'across' if problem.across else 'rows'}"
        _log.warning("%s of %s on %s, %s: %s", problem.name, sizes, device.name, plan.tiling, plan.warning)
    return plan


def _compile(problem: Problem, tiling: Tiling, device: Device) -> KernelResources:
    if problem.is_sample:  # it has the launch of log-probabilities, if it compiles
        compile_kernel(KernelSpec.of(problem, tiling), device)
        problem = replace(problem, log_probs=LogProbs())
    return resources_of(KernelSpec.of(problem, tiling), device)
