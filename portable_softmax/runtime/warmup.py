"""Work that a first call waits for, done before it: planning, compiling, loading."""

import contextlib
import math
import operator
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

from portable_softmax.devices.detect import chosen
from portable_softmax.devices.device import Device
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.request import checked_problem
from portable_softmax.runtime import compiler
from portable_softmax.runtime.calls import NOTHING_NOTED, Calls
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.guard import guard_of
from portable_softmax.runtime.plans import plan_problem
from portable_softmax.runtime.specialization import KernelSpec

if TYPE_CHECKING:
    import torch


def warm_up(
    shapes: "Sequence[Sequence[int]] | Calls | str | PathLike[str]",
    dtypes: "Sequence[torch.dtype | str]" = (),
    *,
    form: str = "softmax",
    backward: bool = False,
    device: Device | str | None = None,
) -> list[LaunchPlan]:
    """Plans and compiles softmaxes, and loads their kernels onto the device: no call waits for it.

    Either of calls of a model, which `watch_calls` has noted: `warm_up(calls)`, or `warm_up("calls.json")` of those that were
    saved. They say all about themselves, so nothing but the device may be given with them.

    Or of shapes: for tensors as torch allocates them, contiguous, and the softmax along the last dim. A tensor that starts off
    a multiple of 16 bytes or has gaps between its rows, another dim, or a `dtype=` may need a kernel of its own; `watch_calls`
    notes such too. No kernel depends on sizes: other shapes whose rows are cut into the same tiles, with the same number of
    elements per access, are ready too. The choice of `batch_invariant` that is in force holds.

    Args:
        shapes: shapes of the tensors; (n_rows, n_cols) is one. Or calls, or the path of a file of them.
        dtypes: types of input and output, as torch.dtype or by name; every shape is prepared for each.
        form: softmax, log_softmax, softmin or token_log_probs.
        backward: True to prepare the gradient too.
        device: the device, in the forms that `plan` takes. For one that is not here, the kernels that this machine's Triton
            compiles for it are left in Triton's cache on disk (TRITON_CACHE_DIR) for a process that has the device.

    Returns:
        Plans, by shape, then by dtype, the gradient's after the softmax's; or one of each call.

    Raises:
        ValueError: these are not shapes and dtypes, a size is not positive or too large, or there is no such form; the file is
            not one of calls; there are none; or more than the device was given with calls.
        OSError: the file cannot be read.
        TypeError, ProfileError: the device, in the cases in which `plan` raises them.
        DtypeError: the device does not compute that type.
        DeviceError, PlanError, CompileError: the kernel cannot run on the device.
    """
    if isinstance(shapes, str | PathLike):
        shapes = Calls.load(shapes)
    if isinstance(shapes, Calls):
        if dtypes or form != "softmax" or backward:
            raise ValueError("calls say themselves of which dtypes, form and direction they are; give nothing but the device")
        if not shapes:
            raise ValueError(f"warm_up was given no calls: {NOTHING_NOTED}")
        device = chosen(device)
        return _all_ready(list(shapes), device)
    if shapes and all(hasattr(size, "__index__") for size in shapes):
        raise ValueError(f"shapes should be a list of shapes, not one shape; give [{tuple(shapes)}]")
    sizes = [_sizes(shape) for shape in shapes]
    if isinstance(dtypes, str) or not isinstance(dtypes, Sequence) or (sizes and not dtypes):
        raise ValueError(f"dtypes should be like [torch.float32, 'bfloat16'], not {dtypes!r}")
    device = chosen(device)
    directions = (False, True) if backward else (False,)
    invariant = is_batch_invariant()
    problems = [
        checked_problem(math.prod(shape[:-1]), _length(shape), dtype, device, form, direction, invariant)
        for shape in sizes
        for dtype in dtypes
        for direction in directions
    ]
    return _all_ready(problems, device)


def _all_ready(problems: Sequence[Problem], device: Device) -> list[LaunchPlan]:
    for name in {name for problem in problems for name in (problem.x_dtype, problem.y_dtype)}:
        device.check_dtype(name)
    with guard_of(device).made_current():
        return [_ready(problem, device) for problem in problems]


def _sizes(shape: Sequence[int]) -> list[int]:
    with contextlib.suppress(TypeError):
        sizes = [operator.index(size) for size in shape]
        if min(sizes, default=0) >= 0:
            return sizes
    raise ValueError(f"shapes should be like [(4096, 781), (8, 16, 1024)]; one of them is {shape!r}")


def _length(shape: Sequence[int]) -> int:
    return shape[-1] if shape else 1


def _ready(problem: Problem, device: Device) -> LaunchPlan:
    planned = plan_problem(problem, device)
    if device.index is not None:
        compiler.load(compile_kernel(KernelSpec.of(planned.problem, planned.tiling), device))
    return planned
