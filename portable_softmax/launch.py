"""Plans for tensors and for shapes, and their launch on the active stream."""

import contextlib
import functools
import math
from typing import TYPE_CHECKING, Any

from portable_softmax import compiler, planner
from portable_softmax.backends.base import DTYPE_BYTES, KernelResources, Occupancy
from portable_softmax.device import Device, current_device
from portable_softmax.errors import DtypeError
from portable_softmax.planner import LaunchPlan, Problem, Tiling
from portable_softmax.spec import KernelSpec, compile_kernel, launcher

if TYPE_CHECKING:
    import torch

VECTOR_BYTES = 16  # the widest load or store of one thread
MAX_COLS = 2**31 - 2**16  # column offsets are 32 bits wide, and reach past the row by less than a tile


def plan(n_rows: int, n_cols: int, dtype: "torch.dtype | str", device: Device | None = None) -> LaunchPlan:
    """How the softmax of the rows of a contiguous [n_rows, n_cols] matrix is launched, and why.

    Args:
        dtype: of input and output: float16, bfloat16, float32 or float64, as torch.dtype or by name.
        device: the current one if None; `Device.from_profile` gives one that is not here.

    Raises:
        ValueError: a size is not positive.
        DtypeError: the device does not compute that type.
        PlanError: nothing fits the device.
        DeviceError: no device was given, and there is none.
    """
    if n_rows < 1 or n_cols < 1:
        raise ValueError(f"n_rows and n_cols must be positive, not {n_rows} and {n_cols}")
    name = str(dtype).removeprefix("torch.")
    device = device or current_device()
    check_dtype(name, device)
    return plan_problem(contiguous_problem(n_rows, n_cols, name), device)


def contiguous_problem(n_rows: int, n_cols: int, dtype: str) -> Problem:
    """Of an aligned matrix whose rows follow each other, input and output of the same type."""
    return Problem(n_rows, n_cols, dtype, dtype, math.gcd(n_cols, VECTOR_BYTES // DTYPE_BYTES[dtype]))


def occupancy(resources: KernelResources, device: Device) -> Occupancy:
    """Programs per multiprocessor of a kernel that uses `resources`, by the exact rule of the device's vendor."""
    return device.vendor.occupancy(resources, device.hardware)


def check_dtype(name: str, device: Device) -> None:
    if name not in device.vendor.dtypes:
        raise DtypeError(f"softmax of {name} was asked for; {device.backend} computes {', '.join(device.vendor.dtypes)}")


@functools.lru_cache(maxsize=4096)
def plan_problem(problem: Problem, device: Device) -> LaunchPlan:
    """The plan for exactly this problem; kept."""
    compiler.check_target(device)
    return planner.choose(problem, device, _measure)


def _measure(problem: Problem, tiling: Tiling, device: Device) -> KernelResources:
    modelled = device.vendor.model(
        tiling.tile_rows, tiling.tile_cols, DTYPE_BYTES[problem.x_dtype], DTYPE_BYTES[problem.y_dtype], device.hardware
    )
    if modelled is not None and device.index is None:
        return modelled  # no compiler here that could say more
    compiled = device.vendor.resources(compile_kernel(KernelSpec.of(problem, tiling), device))
    return modelled or compiled


def softmax_rows(x: "torch.Tensor", y: "torch.Tensor", device: Device) -> None:
    """y[r] = softmax(x[r]) for matrices whose rows are contiguous, on the active stream of their device."""
    problem, strides = _problem(x, y)
    launch_plan = plan_problem(problem, device)
    launch = launcher(KernelSpec.of(problem, launch_plan.tiling), device)
    sizes = problem.n_rows, problem.n_cols // problem.vector, *(stride // problem.vector for stride in strides)
    with _guard(x):
        launch((launch_plan.num_programs, 1, 1), y, x, *sizes)


def _problem(x: "torch.Tensor", y: "torch.Tensor") -> tuple[Problem, tuple[int, int]]:
    n_rows, n_cols = x.shape
    if n_cols > MAX_COLS:
        raise ValueError(f"a row of {n_cols} elements; rows of up to {MAX_COLS} can be computed")
    strides = (x.stride(0), y.stride(0)) if n_rows > 1 else (0, 0)
    widest = VECTOR_BYTES // max(x.element_size(), y.element_size())
    aligned = (x.data_ptr() | y.data_ptr()) % VECTOR_BYTES == 0
    vector = math.gcd(n_cols, *strides, widest)
    return Problem(n_rows, n_cols, _name(x.dtype), _name(y.dtype), vector, aligned), strides


def _name(dtype: "torch.dtype") -> str:
    return str(dtype).removeprefix("torch.")


def _guard(x: "torch.Tensor") -> Any:
    """Makes the tensor's device the current one: Triton launches on that, and on its current stream."""
    import torch

    return contextlib.nullcontext() if x.device.type == "cpu" else getattr(torch, x.device.type).device(x.device)
