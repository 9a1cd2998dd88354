"""Plans for tensors and for shapes, and their launch on the active stream."""

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from portable_softmax import compiler, planner
from portable_softmax.backends.base import DTYPE_BYTES, KernelResources, Occupancy
from portable_softmax.device import Device, chosen
from portable_softmax.errors import DtypeError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.problem import FORMS, VECTOR_BYTES, LaunchPlan, Problem, Tiling
from portable_softmax.spec import KernelSpec, compile_kernel, launcher

if TYPE_CHECKING:
    import torch

SHORTEST_RAGGED = 512  # columns; below it, edges cost more than a body of whole vectors saves (H200, 2026-11-21)


def plan(
    n_rows: int,
    n_cols: int,
    dtype: "torch.dtype | str",
    device: Device | str | None = None,
    *,
    form: str = "softmax",
    backward: bool = False,
) -> LaunchPlan:
    """How the softmax of the rows of a contiguous [n_rows, n_cols] matrix is launched, and why.

    Args:
        n_rows, n_cols: integers; numpy's and torch's too.
        dtype: of input and output: float16, bfloat16, float32 or float64, as torch.dtype or by name.
        device: the current one if None; `Device.from_profile`, or just the name, gives one that is not here.
        form: softmax, log_softmax or softmin.
        backward: the gradient's launch instead.

    Raises:
        TypeError: a size is not an integer, or the device is not one.
        ValueError: a size is not positive or too large, or there is no such form.
        DtypeError: the device does not compute that type.
        PlanError: nothing fits the device.
        ProfileError: there is no profile of that name.
        DeviceError: no device was given, and there is none.
    """
    device = chosen(device)
    return plan_problem(checked_problem(n_rows, n_cols, dtype, device, form, backward, is_batch_invariant()), device)


def checked_problem(
    n_rows: int, n_cols: int, dtype: "torch.dtype | str", device: Device, form: str, backward: bool, batch_invariant: bool
) -> Problem:
    """Checks arguments as a user gives them to `plan`, and makes the contiguous_problem of them."""
    if form not in FORMS:
        raise ValueError(f"form {form!r} was asked for; there are {', '.join(FORMS)}")
    name = str(dtype).removeprefix("torch.")
    check_dtype(name, device)
    return contiguous_problem(n_rows, n_cols, name, device, form, backward, batch_invariant)


def contiguous_problem(
    n_rows: int,
    n_cols: int,
    dtype: str,
    device: Device,
    form: str = "softmax",
    backward: bool = False,
    batch_invariant: bool = False,
) -> Problem:
    """The softmax of aligned matrices whose rows follow each other, input and output of the same type.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is not positive or too large.
    """
    n_rows, n_cols = _integer("n_rows", n_rows), _integer("n_cols", n_cols)
    vector = math.gcd(n_cols, VECTOR_BYTES // DTYPE_BYTES[dtype])
    problem = Problem(n_rows, n_cols, dtype, dtype, vector, True, form, backward, batch_invariant=batch_invariant)
    return _ragged(problem, [n_cols], device)


def _integer(name: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} should be an integer, not {value!r}") from error


def _ragged(problem: Problem, strides: list[int], device: Device) -> Problem:
    """With the widest accesses, where lines are rows of one matrix that start in the same place of a vector in all operands.

    Their elements are then added up in an order that depends on that place, so not where a row must not depend on others.
    """
    alike = len({stride % problem.widest for stride in strides}) == 1
    long_enough = problem.n_cols >= SHORTEST_RAGGED and problem.vector < problem.widest
    if not (alike and long_enough and problem.aligned and device.vendor.aligned_access):
        return problem
    if problem.across or problem.batch_invariant:
        return problem
    return replace(problem, vector=problem.widest, ragged=True)


def occupancy(resources: KernelResources, device: Device | str | None = None) -> Occupancy:
    """Programs per multiprocessor of a kernel that uses `resources`, by the exact rule of the device's vendor.

    Args:
        device: as of `plan`.

    Raises:
        TypeError, ProfileError, DeviceError: the device, as `plan`.
        ValueError: the kernel has no num_warps, on a device whose programs have warps.
    """
    device = chosen(device)
    return device.vendor.occupancy(resources, device.hardware)


def check_dtype(name: str, device: Device) -> None:
    if name not in device.vendor.dtypes:
        computed = ", ".join(device.vendor.dtypes)
        raise DtypeError(
            f"softmax of {name} was asked for; {device.backend} computes {computed}; convert to one of these first"
        )


@functools.lru_cache(maxsize=4096)
def plan_problem(problem: Problem, device: Device) -> LaunchPlan:
    """The plan for exactly this problem; kept."""
    compiler.check_target(device)
    return planner.choose(problem, device, _measure)


def _measure(problem: Problem, tiling: Tiling, device: Device) -> KernelResources:
    lines = tiling.tile_rows, tiling.tile_cols
    x_bytes, y_bytes = DTYPE_BYTES[problem.x_dtype], DTYPE_BYTES[problem.y_dtype]
    in_bytes, out_bytes = ((y_bytes, y_bytes), x_bytes) if problem.backward else ((x_bytes,), y_bytes)
    modelled = device.vendor.model(*(lines[::-1] if problem.across else lines), in_bytes, out_bytes, device.hardware)
    if modelled is not None and device.index is None:
        return modelled  # no compiler here that could say more
    used = device.vendor.resources(compile_kernel(KernelSpec.of(problem, tiling), device))
    return modelled or used


def softmax_rows(x: "torch.Tensor", y: "torch.Tensor", device: Device, form: str = "softmax") -> None:
    """y = softmax(x) on the active stream of their device.

    Both are [n_rows, n_cols] matrices of contiguous rows; or [matrices, n_cols, inner] of contiguous lines of `inner`
    neighbouring rows, and the softmax is taken across the lines.
    """
    bind((y, x), x, y, form, False, device, is_batch_invariant())(y, x)


def softmax_backward_rows(
    dy: "torch.Tensor", y: "torch.Tensor", dx: "torch.Tensor", device: Device, form: str = "softmax"
) -> None:
    """dx = the gradient of softmax_rows' x, from that of y, and y; all of its layouts, y and dy of one type."""
    bind((dx, dy, y), dx, y, form, True, device, is_batch_invariant())(dx, dy, y)


class Call(NamedTuple):
    """A launch with all decided but the operands: it is right for any of the same shapes, strides, types and alignment."""

    launch: Callable[..., Any]
    grid: tuple[int, int, int]
    sizes: tuple[int, ...]
    device_index: int | None
    current_index: Callable[[], int | None]
    module: Any  # torch's module of the device's type; None for the interpreter

    def __call__(self, *operands: "torch.Tensor") -> None:
        """On the current stream of the operands' device, made the current one: kernels are loaded and launched there."""
        launch, grid, sizes, device_index, current_index, module = self
        if current_index() == device_index:
            launch(grid, *operands, *sizes)
        else:
            with module.device(device_index):
                launch(grid, *operands, *sizes)


def _current_index(device_type: str, module: Any) -> Callable[[], int | None]:
    """module.current_device, which makes sure first that the type is initialised: here it is, since it has tensors."""
    import torch

    if module is None:
        return lambda: None
    query: Callable[[], int] = getattr(torch._C, f"_{device_type}_getDevice", module.current_device)
    return query


def bind(
    operands: tuple["torch.Tensor", ...],
    x: "torch.Tensor",
    y: "torch.Tensor",
    form: str,
    backward: bool,
    device: Device,
    batch_invariant: bool,
) -> Call:
    """Plans and compiles for `operands`, in the kernel's order, x and y among them."""
    import torch

    from portable_softmax.workspace import with_words

    n_lines, length = x.shape[-2:]
    n_matrices = x.shape[0] if x.dim() == 3 else 1
    line_strides = [each.stride(-2) if n_lines > 1 else 0 for each in operands]
    matrix_strides = [each.stride(0) if n_matrices > 1 else 0 for each in operands]
    widest = VECTOR_BYTES // max(each.element_size() for each in operands)
    problem = Problem(
        n_rows=n_matrices * length if x.dim() == 3 else n_lines,
        n_cols=n_lines if x.dim() == 3 else length,
        x_dtype=name_of(x.dtype),
        y_dtype=name_of(y.dtype),
        vector=math.gcd(length, *line_strides, *matrix_strides, widest),
        aligned=all(each.data_ptr() % VECTOR_BYTES == 0 for each in operands),
        form=form,
        backward=backward,
        inner=length if x.dim() == 3 else 1,
        batch_invariant=batch_invariant,
    )
    problem = _ragged(problem, line_strides, device)
    launch_plan = plan_problem(problem, device)
    tiling = launch_plan.tiling
    launch = launcher(KernelSpec.of(problem, tiling), device)
    if tiling.parts > 1:
        launch = with_words(launch, problem, tiling, x.device)
    unit = 1 if problem.ragged else problem.vector
    strides = [stride // unit for stride in line_strides], [stride // unit for stride in matrix_strides]
    sizes = n_lines, length // unit, *strides[0], n_matrices, *strides[1]
    module = None if x.device.type == "cpu" else getattr(torch, x.device.type)
    current_index = _current_index(x.device.type, module)
    return Call(launch, (launch_plan.num_programs, 1, 1), sizes, x.device.index, current_index, module)


def name_of(dtype: "torch.dtype") -> str:
    return str(dtype).removeprefix("torch.")
