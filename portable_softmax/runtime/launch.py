"""Launches on the active stream: a Problem from operands, its plan, its compiled kernel, bound into one call."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from portable_softmax.devices.device import Device
from portable_softmax.planning.invariance import is_batch_invariant
from portable_softmax.planning.problem import VECTOR_BYTES, Problem
from portable_softmax.planning.request import as_ragged
from portable_softmax.runtime.plans import plan_problem
from portable_softmax.runtime.specialization import KernelSpec, launcher

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
    """
    bind((y, x), x, y, form, False, device, is_batch_invariant())(y, x)


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
    """
    bind((dx, dy, y), dx, y, form, True, device, is_batch_invariant())(dx, dy, y)


class Call(NamedTuple):
    """Launch with all decided but the operands: it is right for any of the same shapes, strides, types and alignment."""

    launch: Callable[..., Any]
    grid: tuple[int, int, int]
    sizes: tuple[int, ...]
    device_index: int | None
    current_index: Callable[[], int | None]
    module: Any  # torch's module of the device's type; None for the interpreter

    def __call__(self, *operands: "torch.Tensor") -> None:
        """Launches on the current stream of the operands' device, which is made the current one for that."""
        launch, grid, sizes, device_index, current_index, module = self
        if current_index() == device_index:
            launch(grid, *operands, *sizes)
        else:
            with module.device(device_index):
                launch(grid, *operands, *sizes)


def _current_index(device_type: str, module: Any) -> Callable[[], int | None]:
    """Returns a quick module.current_device, which need not initialise the type first: it has tensors already."""
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
    """Plans and compiles a launch.

    Args:
        operands: tensors in the kernel's order, x and y among them; layouts as of softmax_rows.
        x, y: the operands of the input's type and shape, and of the output's.
        form: softmax, log_softmax or softmin.
        backward: True for the gradient.
        device: where the operands are.
        batch_invariant: True if a row's bits may not depend on the other rows.

    Raises:
        PlanError, CompileError: the kernel cannot run on the device.
    """
    import torch

    from portable_softmax.runtime.workspace import with_words

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
    problem = as_ragged(problem, line_strides, device)
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
    """Returns torch's name of a type, without `torch.`."""
    return str(dtype).removeprefix("torch.")
