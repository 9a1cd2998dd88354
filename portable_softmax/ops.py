"""softmax as torch has it: arguments to rows, rows to the kernel."""

import torch

from portable_softmax.device import Device, current_device, interpreting
from portable_softmax.errors import DeviceError
from portable_softmax.launch import check_dtype, softmax_rows


def softmax(input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None) -> torch.Tensor:
    """exp(input) / sum(exp(input)) along `dim`, by one fused kernel.

    A tensor on the CPU is computed by torch.softmax, unless TRITON_INTERPRET=1: then Triton's interpreter runs the kernel.
    Rows that are all -inf, or hold nan or +inf, give what torch.softmax gives. Differentiable; the backward pass is not
    fused yet.

    Args:
        input: any shape, any strides; float16, bfloat16, float32 or float64. A copy is made if the elements along `dim`
            are not next to each other, or the rows not evenly spaced.
        dim: the axis along which the result sums to 1.
        dtype: what the input is rounded to first, and the type of the result; that of the input if None.

    Returns:
        A contiguous tensor of the input's shape.

    Raises:
        IndexError: there is no such dim.
        DtypeError: the device does not compute that type.
        DeviceError, PlanError, CompileError: the kernel cannot run on the tensor's device.
    """
    if input.device.type == "cpu" and not interpreting():
        return torch.softmax(input, dim, dtype=dtype)
    if not -max(input.dim(), 1) <= dim < max(input.dim(), 1):
        raise IndexError(
            f"dim {dim} of a tensor of {input.dim()} dimensions; it must lie within "
            f"[{-max(input.dim(), 1)}, {max(input.dim(), 1) - 1}]"
        )
    result: torch.Tensor = _Softmax.apply(input, dim, dtype or input.dtype)  # type: ignore[no-untyped-call]
    return result


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:  # type: ignore[no-untyped-def]
        y = _forward(x, dim, dtype)
        ctx.save_for_backward(y)
        ctx.dim, ctx.x_dtype = dim, x.dtype
        return y

    @staticmethod
    def backward(ctx, dy: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # type: ignore[no-untyped-def]
        (y,) = ctx.saved_tensors
        weighted = dy * y
        return (weighted - y * weighted.sum(ctx.dim, keepdim=True)).to(ctx.x_dtype), None, None


def _forward(x: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    device = _device_of(x)
    for each in (x.dtype, dtype):
        check_dtype(str(each).removeprefix("torch."), device)
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=dtype, device=x.device)
    moved = x.reshape(x.shape or (1,)).movedim(dim, -1)
    rows = moved.reshape(-1, moved.shape[-1])
    if rows.shape[1] > 1 and rows.stride(1) != 1:
        rows = rows.contiguous()
    y = torch.empty(moved.shape, dtype=dtype, device=x.device)
    softmax_rows(rows, y.view(rows.shape), device)
    return y.movedim(-1, dim).reshape(x.shape).contiguous()


def _device_of(x: torch.Tensor) -> Device:
    device = current_device(x.device.index)
    if device.vendor.torch_device_type != x.device.type:
        raise DeviceError(f"a tensor on {x.device} was given; {device} computes tensors on {device.vendor.torch_device_type}")
    return device
