"""softmax, log_softmax and softmin as torch has them."""

import inspect
from numbers import Real
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor

from portable_softmax.operators.dispatch import call, call_with
from portable_softmax.operators.options import Options, check_local
from portable_softmax.operators.out import call_into

if TYPE_CHECKING:
    from typing_extensions import Unpack

Numbers = float | torch.Tensor | None


class Keywords(TypedDict, total=False):
    """Arguments of softmax that are given by name."""

    scale: Numbers
    temperature: Numbers
    mask: torch.Tensor | None
    causal: bool | str
    softcap: float | None
    sink: Numbers
    masked_rows: str
    out: torch.Tensor | None


def softmax(
    input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None, **keywords: "Unpack[Keywords]"
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
        out: what the result is written to, of its type and device, and any strides; the input itself for a softmax in place. Of
            another shape, it is resized, with torch's warning if elements are lost. Not differentiable. Where it lies so that
            no kernel takes it, the result is computed elsewhere and copied.

    Returns:
        A contiguous tensor of the input's shape; `out` if it is given. A DTensor is computed by torch.softmax.

    Raises:
        IndexError, ValueError: there is no such dim, or it has more than 64 bits.
        TypeError: `input` is not a tensor, `dim` no integer, or `dtype` no dtype, as torch has it; or a tensor is a DTensor,
            and anything from `scale` on is given.
        ValueError: `causal`, `softcap` or `masked_rows` is none of the above.
        RuntimeError: `out` has another type or device, its elements lie under each other or partly under the input's, or a
            gradient is needed; a tensor does not broadcast, has not 1 along `dim`, or is on another device; in torch's words.
        DtypeError: the device does not compute that type; a NotImplementedError, as torch's.
        LayoutError: the tensor is nested, sparse or of another layout than strided; a NotImplementedError too.
        DeviceError, PlanError, CompileError: the kernel cannot run on the tensor's device.
    """
    if not keywords and type(input) is Tensor:
        return call("softmax", input, dim, dtype)
    return _general(softmax, input, dim, dtype, **keywords)


def log_softmax(
    input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None, **keywords: "Unpack[Keywords]"
) -> torch.Tensor:
    """Computes input - max - log(sum(exp(input - max))), the logarithm of softmax, by one fused kernel.

    Arguments, result and errors are those of `softmax`.
    """
    if not keywords and type(input) is Tensor:
        return call("log_softmax", input, dim, dtype)
    return _general(log_softmax, input, dim, dtype, **keywords)


def softmin(
    input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None, **keywords: "Unpack[Keywords]"
) -> torch.Tensor:
    """Computes softmax of -input: that of scores whose scale is -1, or the negative of `scale`.

    Arguments, result and errors are those of `softmax`. A mask is added to the negated scores, and a row of temperature 0 has
    its weight on the smallest input.
    """
    if isinstance(input, Tensor) and not input.is_floating_point():
        return softmax(-input, dim, dtype, **keywords)  # unsigned integers wrap around, as in torch
    return softmax(input, dim, dtype, **{**keywords, "scale": _negative(keywords.get("scale"))})


def _negative(scale: Any) -> Any:
    """Returns the negative of a scale; what is no number stays as it is, for `softmax` to refuse it."""
    if isinstance(scale, Tensor):
        return scale * -1.0
    is_number = isinstance(scale, Real | torch.SymInt | torch.SymFloat) and not isinstance(scale, bool)
    return -1.0 if scale is None else -scale if is_number else scale


def _general(function: Any, x: Any, dim: Any, dtype: Any, *, out: torch.Tensor | None = None, **given: Any) -> torch.Tensor:
    """Computes a form of softmax by what is given: with options or without, into `out` or not."""
    form = function.__name__
    options = _options(form, given) if given else None
    if options and not isinstance(x, Tensor):
        raise TypeError(f"{form}(): argument 'input' must be Tensor, not {type(x).__name__}")
    if out is not None or options:
        check_local(form, input=x, out=out, **options._asdict() if options else {})
    if out is not None:
        return call_into(form, x, dim, dtype, out, options)
    return call_with(form, x, dim, dtype, options) if options else call(form, x, dim, dtype)


def _options(form: str, given: dict[str, Any]) -> Options | None:
    """Returns what is given by name; None where all is as by default."""
    if unknown := [name for name in given if name not in Options._fields]:  # torch.compile of torch 2.11 subtracts no keys
        raise TypeError(f"{form}() got an unexpected keyword argument {unknown[0]!r}")
    options = Options(**given)
    return None if options.are_default else options


def _signature() -> inspect.Signature:
    """Returns the signature with each keyword by its name, as help() shows it."""
    positional = [*inspect.signature(softmax).parameters.values()][:-1]
    defaults = {**Options._field_defaults, "out": None}
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=annotation)
        for name, annotation in Keywords.__annotations__.items()
    ]
    return inspect.Signature([*positional, *keywords], return_annotation=torch.Tensor)


_SIGNATURE = _signature()
for _function in (softmax, log_softmax, softmin):
    _function.__signature__ = _SIGNATURE  # type: ignore[attr-defined]
