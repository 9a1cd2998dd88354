"""Planning, compilation and loading ahead of the first call."""

import math
import operator
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from portable_softmax.devices.detect import chosen, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.errors import NoDeviceError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.planning.operands import contiguous_problem
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime import compiler
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.guard import guard_of
from portable_softmax.runtime.plans import plan_problem
from portable_softmax.runtime.specialization import KernelSpec

if TYPE_CHECKING:
    import torch


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

    It prepares contiguous tensors, as torch allocates them, and the softmax along the last dimension, under the active
    `batch_invariant`. Tensors that do not start at a multiple of 16 bytes or have gaps between rows, other dimensions, and
    `dtype=` may need further kernels. Kernels do not depend on sizes: other shapes with the same tiles and the same number of
    elements per access are prepared too.

    Args:
        shapes: shapes of the tensors, for example [(n_rows, n_cols)].
        dtypes: dtypes of input and output, as torch.dtype or by name; every shape is prepared for all of them.
        form: softmax, log_softmax or token_log_probs.
        backward: True to prepare the gradient too.
        device: the device, as in `plan`. For an absent device, kernels are compiled into Triton's cache on disk
            (TRITON_CACHE_DIR), for a process that has the device.
        measure: number of launches, such as 4, that are timed for a range of rows; None for none. The first one by expected
            time stays unless another one is at least 2% faster twice; later calls of this process use the fastest. Nothing is
            timed below 10 us, while a stream captures, under `batch_invariant`, or for an absent device. Ranks, and later
            processes, may select other launches.

    Returns:
        The plans by shape and dtype, the gradient's after the softmax's. On a machine without a device, and without
        `device=`, an empty list, with a warning: PyTorch computes the calls there, and compiles nothing.

    Raises:
        ValueError: `shapes` or `dtypes` is no list of them, a size is not positive or too large, or `form` is unknown.
        TypeError, ProfileError: `device` is invalid, as in `plan`.
        DtypeError: the device does not support a dtype.
        DeviceError, PlanError, CompileError: the kernel cannot run on the device.
    """
    if measure is not None:
        from portable_softmax.runtime.timing import check_measure

        check_measure(measure)
    if shapes and all(hasattr(size, "__index__") for size in shapes):
        raise ValueError(f"shapes should be a list of shapes, not one shape; pass [{tuple(shapes)}]")
    sizes = [_rows_and_columns(shape) for shape in shapes]
    if isinstance(dtypes, str) or not isinstance(dtypes, Sequence) or (sizes and not dtypes):
        raise ValueError(f"dtypes should be like [torch.float32, 'bfloat16'], not {dtypes!r}")
    try:
        device = chosen(device)
    except NoDeviceError as error:
        warnings.warn(f"warm_up() does nothing, as there is no device: {error}", stacklevel=2)
        return []
    directions, invariant = (False, True) if backward else (False,), is_batch_invariant()
    problems = [
        contiguous_problem(*size, dtype, form, direction, invariant)
        for size in sizes
        for dtype in dtypes
        for direction in directions
    ]
    with guard_of(device).made_current():
        return [_ready(problem, device, measure) for problem in problems]


def _rows_and_columns(shape: Sequence[int]) -> tuple[int, int]:
    try:
        sizes = [operator.index(size) for size in shape]
    except TypeError:
        sizes = [-1]
    if min(sizes, default=0) < 0:
        raise ValueError(f"shapes should be like [(4096, 781), (8, 16, 1024)]; one of them is {shape!r}")
    return math.prod(sizes[:-1]), sizes[-1] if sizes else 1


def _ready(problem: Problem, device: Device, count: int | None) -> LaunchPlan:
    if count and device.index is not None and not interpreting():
        from portable_softmax.runtime.measured import measure

        measure(problem, device, count)
    planned = plan_problem(problem, device)
    if device.index is not None:
        compiler.load(compile_kernel(KernelSpec.of(planned.problem, planned.tiling), device))
    return planned
