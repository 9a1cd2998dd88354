"""Launches on the active stream: a Problem from operands, its plan, its compiled kernel, bound into one call."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from portable_softmax.devices.device import Device
from portable_softmax.planning.invariance import is_batch_invariant
from portable_softmax.planning.problem import VECTOR_BYTES, Problem
from portable_softmax.planning.request import as_ragged
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


def on_device(launch: Callable[..., None], device_type: str, device_index: int | None) -> Callable[..., None]:
    """Returns a launch that makes the operands' device the current one, where another is."""
    import torch

    if device_type == "cpu":
        return launch
    module = getattr(torch, device_type)
    # quicker than module.current_device, which initialises the type first: it has tensors already
    current_index = getattr(torch._C, f"_{device_type}_getDevice", module.current_device)

    def call(*operands: "torch.Tensor") -> None:
        if current_index() == device_index:
            launch(*operands)
        else:
            with module.device(device_index):
                launch(*operands)

    return call


def bind(
    operands: tuple["torch.Tensor", ...],
    x: "torch.Tensor",
    y: "torch.Tensor",
    form: str,
    backward: bool,
    device: Device,
    batch_invariant: bool,
) -> Callable[..., None]:
    """Plans and compiles a launch: all is decided but the operands, of the same shapes, strides, types and alignment.

    Args:
        operands: tensors in the kernel's order, x and y among them; layouts as of softmax_rows.
        x, y: the operands of the input's type and shape, and of the output's.
        form: softmax, log_softmax or softmin.
        backward: True for the gradient.
        device: where the operands are.
        batch_invariant: True if a row's bits may not depend on the other rows.

    Returns:
        launch(*operands), on the current stream of their device.

    Raises:
        PlanError, CompileError: the kernel cannot run on the device.
    """
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
    unit = 1 if problem.ragged else problem.vector
    strides = [stride // unit for stride in line_strides], [stride // unit for stride in matrix_strides]
    sizes = n_lines, length // unit, *strides[0], n_matrices, *strides[1]
    launch = prepare(KernelSpec.of(problem, tiling), device, (launch_plan.num_programs, 1, 1), sizes)
    if tiling.parts > 1:
        launch = with_words(launch, problem, tiling, x.device)
    return on_device(launch, x.device.type, x.device.index)


def name_of(dtype: "torch.dtype") -> str:
    """Returns torch's name of a type, without `torch.`."""
    return str(dtype).removeprefix("torch.")
