"""softmax, log_softmax and softmin as torch has them."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from portable_softmax.operators.arguments import check_chunks
from portable_softmax.operators.dispatch import call
from portable_softmax.operators.out import call_into

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def softmax(
    input: torch.Tensor,
    dim: int = -1,
    dtype: torch.dtype | None = None,
    *,
    group: "ProcessGroup | None" = None,
    chunks: int = 1,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes exp(input) / sum(exp(input)) along `dim`, by one fused kernel.

    A tensor on the CPU is computed by torch.softmax, unless TRITON_INTERPRET=1: then Triton's interpreter runs the kernel.
    Rows that are all -inf, or hold nan or +inf, give what torch.softmax gives. Differentiable in reverse and forward mode,
    as often as one likes; the first gradient is one fused kernel, and only the output is saved for it.

    Args:
        input: any shape, any strides; float16, bfloat16, float32 or float64, and with `dtype` all others that torch converts.
            A copy is made where neither the elements along `dim` nor those of a dimension after it are next to each other, or
            where more than three strides lead from row to row; on Ascend, more than one, or fewer than 16 rows side by side.
        dim: the axis along which the result sums to 1.
        dtype: the type that the input is rounded to first, and that of the result; the input's if None, but float32 under
            torch.autocast.
        group: a process group whose ranks each hold a part of the input along `dim`, and of the result; see docs/sharded.md.
            A DTensor needs none.
        chunks: in which the rows of an input that is sharded along `dim` are exchanged, one's beside another's kernels.
        out: what the result is written to, of its type and device, and any strides; the input itself for a softmax in place. Of
            another shape, it is resized, with torch's warning if elements are lost. Not differentiable, and not for rows that
            are sharded. Where it lies so that no kernel takes it, the result is computed elsewhere and copied. In place no
            programs share a row, so long rows may have other last bits than elsewhere.

    Returns:
        A contiguous tensor of the input's shape; a DTensor for a DTensor; `out` if it is given.

    Raises:
        IndexError, ValueError: there is no such dim, or it has more than 64 bits.
        TypeError: `input` is not a tensor, `dim` or `chunks` no integer, or `dtype` no dtype, as torch has it.
        ValueError: `chunks` is less than 1, or `out` is given for rows that are sharded.
        RuntimeError: `out` has another type or device, its elements lie under each other or partly under the input's, or a
            gradient is needed; in torch's words.
        DtypeError: the device does not compute that type; a NotImplementedError, as torch's.
        LayoutError: the tensor is nested, sparse or of another layout than strided; a NotImplementedError too.
        DeviceError, PlanError, CompileError: the kernel cannot run on the tensor's device.
    """
    if type(input) is not Tensor or group is not None or chunks != 1 or out is not None:
        return _maybe_sharded("softmax", input, dim, dtype, group, chunks, out)
    return call("softmax", input, dim, dtype)


def log_softmax(
    input: torch.Tensor,
    dim: int = -1,
    dtype: torch.dtype | None = None,
    *,
    group: "ProcessGroup | None" = None,
    chunks: int = 1,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes input - max - log(sum(exp(input - max))), the logarithm of softmax, by one fused kernel.

    Arguments, result and errors are those of `softmax`.
    """
    if type(input) is not Tensor or group is not None or chunks != 1 or out is not None:
        return _maybe_sharded("log_softmax", input, dim, dtype, group, chunks, out)
    return call("log_softmax", input, dim, dtype)


def softmin(
    input: torch.Tensor,
    dim: int = -1,
    dtype: torch.dtype | None = None,
    *,
    group: "ProcessGroup | None" = None,
    chunks: int = 1,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes softmax of -input, by one fused kernel.

    Arguments, result and errors are those of `softmax`.
    """
    if type(input) is not Tensor or group is not None or chunks != 1 or out is not None:
        return _maybe_sharded("softmin", input, dim, dtype, group, chunks, out)
    return call("softmin", input, dim, dtype)


for _function in (softmax, log_softmax, softmin):  # in torch.jit.script a call of it is one of the operator
    torch.jit._builtins._register_builtin(_function, f"portable_softmax::{_function.__name__}")


def _maybe_sharded(
    form: str,
    x: torch.Tensor,
    dim: int,
    dtype: torch.dtype | None,
    group: "ProcessGroup | None",
    chunks: int,
    out: torch.Tensor | None,
) -> torch.Tensor:
    """Finds out whether other ranks hold parts of the rows, and computes the softmax with them or alone."""
    if out is not None:
        if group is not None or hasattr(x, "device_mesh"):
            raise ValueError(f"{form} into out= was asked for rows that are sharded; give no out=")
        check_chunks(form, chunks)
        return call_into(form, x, dim, dtype, out)
    if group is not None:
        from portable_softmax.distributed.entry import sharded

        return sharded(form, x, dim, dtype, [group], chunks)
    if chunks != 1:
        check_chunks(form, chunks)
    if isinstance(x, Tensor) and hasattr(x, "device_mesh"):
        from portable_softmax.distributed.dtensor import of_dtensor

        return of_dtensor(form, x, dim, dtype, chunks)
    return call(form, x, dim, dtype)
