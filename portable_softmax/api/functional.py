"""softmax, log_softmax and softmin as torch has them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

from portable_softmax.operators.arguments import check_chunks
from portable_softmax.operators.dispatch import call, call_with
from portable_softmax.operators.options import NO_OPTIONS, Options
from portable_softmax.operators.out import call_into

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Numbers = float | torch.Tensor | None


def softmax(
    input: torch.Tensor,
    dim: int = -1,
    dtype: torch.dtype | None = None,
    *,
    scale: Numbers = None,
    temperature: Numbers = None,
    mask: torch.Tensor | None = None,
    causal: bool | str = False,
    softcap: float | None = None,
    sink: Numbers = None,
    masked_rows: str = "nan",
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
        scale: a number, or a tensor that broadcasts against the input with 1 along `dim`: the scores are input * scale.
        temperature: likewise; the scores are divided by it, and rounded ahead of the maximum being subtracted, so that no
            result exceeds 1. A row of temperature 0 is greedy: all weight is on the largest input * scale that mask and causal
            leave, shared among equals, whatever softcap, sink and other values of the mask are; its gradients are 0. Negative
            ones and nan do what the quotient does. Those of a tensor whose inverse is infinite count as the least that has one.
        mask: a tensor that broadcasts against the input: boolean, True where an element takes part, or floating, and added. It
            is read where it lies.
        causal: True or "upper_left" for column j of row i to take part where j <= i, in the last two dimensions; "lower_right"
            for the last row to have all columns. `dim` is the last then.
        softcap: c of c * tanh(scores / c), ahead of the mask; a positive number.
        sink: one more logit of each row, in the denominator alone: a number; a tensor that broadcasts against the input with 1
            along `dim`; or, if the input has more than two dimensions, one number for each head, the third from the end.
        masked_rows: "nan" for rows all of whose scores are -inf to be nan, as torch has it, or "zero" for 0, or -inf of
            log_softmax, and gradients of 0. With a sink they are so anyway. Under a boolean mask or causal, gradients of rows
            that are nan are 0 either way, as those of masked_fill are; so are those of a row with a nan that is not masked.
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
        ValueError: `chunks` is less than 1; `causal`, `softcap` or `masked_rows` is none of the above; or `out`, or anything
            from `scale` to `masked_rows`, is given for rows that are sharded.
        RuntimeError: `out` has another type or device, its elements lie under each other or partly under the input's, or a
            gradient is needed; a tensor does not broadcast, has not 1 along `dim`, or is on another device; in torch's words.
        DtypeError: the device does not compute that type; a NotImplementedError, as torch's.
        LayoutError: the tensor is nested, sparse or of another layout than strided; a NotImplementedError too.
        DeviceError, PlanError, CompileError: the kernel cannot run on the tensor's device.
    """
    if (
        scale is not None or temperature is not None or mask is not None or causal is not False or softcap is not None
        or sink is not None or masked_rows != "nan"
    ):  # fmt: skip
        given = Options(scale, temperature, mask, causal, softcap, sink, masked_rows)
        return _scored(softmax, "softmax", input, dim, dtype, group, chunks, out, given)
    if type(input) is not Tensor or group is not None or chunks != 1 or out is not None:
        return _maybe_sharded("softmax", input, dim, dtype, group, chunks, out)
    return call("softmax", input, dim, dtype)


def log_softmax(
    input: torch.Tensor,
    dim: int = -1,
    dtype: torch.dtype | None = None,
    *,
    scale: Numbers = None,
    temperature: Numbers = None,
    mask: torch.Tensor | None = None,
    causal: bool | str = False,
    softcap: float | None = None,
    sink: Numbers = None,
    masked_rows: str = "nan",
    group: "ProcessGroup | None" = None,
    chunks: int = 1,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes input - max - log(sum(exp(input - max))), the logarithm of softmax, by one fused kernel.

    Arguments, result and errors are those of `softmax`.
    """
    if (
        scale is not None or temperature is not None or mask is not None or causal is not False or softcap is not None
        or sink is not None or masked_rows != "nan"
    ):  # fmt: skip
        given = Options(scale, temperature, mask, causal, softcap, sink, masked_rows)
        return _scored(log_softmax, "log_softmax", input, dim, dtype, group, chunks, out, given)
    if type(input) is not Tensor or group is not None or chunks != 1 or out is not None:
        return _maybe_sharded("log_softmax", input, dim, dtype, group, chunks, out)
    return call("log_softmax", input, dim, dtype)


def softmin(
    input: torch.Tensor,
    dim: int = -1,
    dtype: torch.dtype | None = None,
    *,
    scale: Numbers = None,
    temperature: Numbers = None,
    mask: torch.Tensor | None = None,
    causal: bool | str = False,
    softcap: float | None = None,
    sink: Numbers = None,
    masked_rows: str = "nan",
    group: "ProcessGroup | None" = None,
    chunks: int = 1,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes softmax of -input, by one fused kernel.

    Arguments, result and errors are those of `softmax`. The input is negated first, and then everything is as in
    softmax: a mask is added to the negated scores, and a row of temperature 0 has its weight on the smallest input.
    """
    if (
        scale is not None or temperature is not None or mask is not None or causal is not False or softcap is not None
        or sink is not None or masked_rows != "nan"
    ):  # fmt: skip
        given = Options(scale, temperature, mask, causal, softcap, sink, masked_rows)
        return _scored(softmin, "softmin", input, dim, dtype, group, chunks, out, given)
    if type(input) is not Tensor or group is not None or chunks != 1 or out is not None:
        return _maybe_sharded("softmin", input, dim, dtype, group, chunks, out)
    return call("softmin", input, dim, dtype)


for _function in (softmax, log_softmax, softmin):  # in torch.jit.script a call of it is one of the operator
    torch.jit._builtins._register_builtin(_function, f"portable_softmax::{_function.__name__}")


def _scored(
    function: Callable[..., torch.Tensor], form: str, x: torch.Tensor, dim: int, dtype: torch.dtype | None,
    group: "ProcessGroup | None", chunks: int, out: torch.Tensor | None, given: Options,
) -> torch.Tensor:  # fmt: skip
    """Computes the softmax of scores of a tensor that holds whole rows."""
    if chunks != 1:
        check_chunks(form, chunks)
    if not isinstance(x, Tensor):
        if has_torch_function_unary(x):
            result: torch.Tensor = handle_torch_function(function, (x,), x, dim, dtype, **given._asdict())
            return result
        raise TypeError(f"{form}(): argument 'input' must be Tensor, not {type(x).__name__}")
    sharded = group is not None or any(hasattr(each, "device_mesh") for each in (x, *given) if isinstance(each, Tensor))
    if sharded:
        asked = ", ".join(name for name, each in given._asdict().items() if each is not getattr(NO_OPTIONS, name))
        raise ValueError(
            f"{form}() of a {'shard' if group is not None else 'DTensor'} was asked for with {asked}; apply these to the input "
            "first, or give local tensors that hold whole rows"
        )
    if out is None:
        return call_with(form, x, dim, dtype, given)
    return call_into(form, x, dim, dtype, out, given)


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
