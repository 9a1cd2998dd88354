"""softmax and log_softmax: the rule which calls are launched, autograd, and the operator of compilers."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import launch, reference, softmax_launch
from portable_softmax.operators.arguments import (
    DTYPES,
    Inputs,
    Options,
    SpecialCallError,
    check_out,
    check_reverse_mode,
    check_softcap,
    check_tensor,
    dtype_of,
    facts,
    read,
    requires_grad,
    sink_of,
    tensors_and_numbers,
    transforms_are_active,
)

NAMES = softmax_launch.FORMS


class Call(NamedTuple):
    """What a call became.

    Args:
        run: launches calls like it; None for one that the reference computes.
        options: what is computed.
        invariant: the choice of batch_invariant, which its gradient follows.
    """

    run: Callable[..., Tensor] | None
    options: Options
    invariant: bool = False


def compute(
    log: bool, inputs: Inputs, dim: Any, dtype: Any, causal: Any, masked_rows: Any, out: Any = None, traced: bool = True
) -> Tensor:
    """Computes a softmax by the rule: a plain call is launched, compilers get the operator, all else is the reference's.

    Args:
        log: log_softmax.
        inputs: as the caller passed them.
        dim, dtype, causal, masked_rows, out: see api.functional.softmax.
        traced: False in the operator, which a compiler has got already.
    """
    x, sink, softcap = inputs[0], inputs[4], inputs[5]
    if not isinstance(x, Tensor):
        check_tensor(NAMES[log], "input", x)
    if sink is not None:
        inputs = *inputs[:4], sink_of(NAMES[log], x, sink), softcap
    if softcap is not None:
        check_softcap(NAMES[log], softcap)
    if out is not None and dtype is None:
        dtype = x.dtype  # whatever autocast is
    if traced and is_compiling():
        return _special(log, inputs, dim, dtype, causal, masked_rows, out, True)
    try:
        check_reverse_mode()
        key, call = call_of(log, inputs, dim, dtype, causal, masked_rows)
    except SpecialCallError:
        return _special(log, inputs, dim, dtype, causal, masked_rows, out, False)
    if out is not None:
        return _into(out, call, inputs, key)
    if call.run is None:
        return reference.softmax(inputs, call.options)
    if not requires_grad(inputs):
        return call.run(None, inputs)
    if transforms_are_active():
        return reference.softmax(inputs, call.options)
    return _recorded(call, *inputs)


def call_of(log: bool, inputs: Inputs, dim: Any, dtype: Any, causal: Any, masked_rows: Any) -> tuple[tuple[Any, ...], Call]:
    """Returns (key, call) of plain tensors; all arguments are read once for all calls with the same key.

    The key has all that a launch depends on: of numbers the magnitude, but a softcap and the scale in it, which are compiled.

    Raises:
        SpecialCallError: a tensor is not plain.
    """
    x, mask, scale, temperature, sink, softcap = inputs
    key = (
        log, dim, type(dim), dtype or dtype_of("", x), causal, masked_rows, is_batch_invariant(), facts(x),
        softcap if softcap is None or isinstance(scale, Tensor) else (softcap, scale),
        mask if mask is None else facts(mask), scale if scale is None else facts(scale),
        temperature if temperature is None else facts(temperature), sink if sink is None else facts(sink),
    )  # fmt: skip
    call = launch.calls.get(key)
    if call is None:
        options, invariant = read(NAMES[log], inputs, dim, dtype, causal, masked_rows), is_batch_invariant()
        call = launch.keep(key, Call(softmax_launch.softmax(inputs, options, invariant), options, invariant))
    return key, call


def _special(
    log: bool, inputs: Inputs, dim: Any, dtype: Any, causal: Any, masked_rows: Any, out: Any, compiling: bool
) -> Tensor:
    """Computes a call that is not plain: by the operator for compilers, else by the reference."""
    x = inputs[0]
    plain = all(other is None for other in inputs[1:]) and causal is False and masked_rows == "nan"
    if plain and out is None and (x.is_nested or x.layout is not torch.strided):
        return (torch.log_softmax if log else torch.softmax)(x, dim, dtype=dtype)  # computes it, or raises torch's error
    options = read(NAMES[log], inputs, dim, dtype, causal, masked_rows)
    if out is not None:
        check_out(NAMES[log], out, x, options.dtype, inputs)
    if not x.dim() and not plain:
        y = compute(log, (x[None], *inputs[1:]), 0, options.dtype, causal, masked_rows)[0]
    elif compiling and x.dim() and x.dtype in DTYPES and options.dtype in DTYPES and not transforms_are_active():
        tensors, numbers = tensors_and_numbers(*inputs[2:4])
        y = operator(x, inputs[1], *tensors, inputs[4], *numbers, *inputs[5:], *options)
    else:
        y = reference.softmax(inputs, options)
    return y if out is None else _copied(out, y)


def _into(out: Any, call: Call, inputs: Inputs, key: tuple[Any, ...]) -> Tensor:
    """Writes to out: directly if it is x itself or has memory of its own; all else is computed and copied."""
    x, options = inputs[0], call.options
    check_out(NAMES[options.log], out, x, options.dtype, inputs)
    if call.run is None:
        return _copied(out, reference.softmax(inputs, options))
    if out.shape == x.shape and (not out.is_inference() or torch.is_inference_mode_enabled()):  # else torch's copy raises
        with contextlib.suppress(SpecialCallError):
            in_place = out.data_ptr() == x.data_ptr() and out.stride() == x.stride()
            key, storage = ("out", key, facts(out), in_place), out.untyped_storage().data_ptr()
            others = [t for t in inputs[in_place:] if isinstance(t, Tensor)]
            if all(storage != t.untyped_storage().data_ptr() for t in others) and 0 not in out.stride():
                run = launch.calls.get(key) or launch.keep(key, softmax_launch.softmax(inputs, options, call.invariant, out))
                increment_version(out)
                return run(out, inputs)
    return _copied(out, call.run(None, inputs))


def _copied(out: Tensor, y: Tensor) -> Tensor:
    return out.copy_(y) if out.shape == y.shape else torch.mul(y, 1, out=out)  # which resizes it, with torch's warning


class Recorded(torch.autograd.Function):
    """A launch that autograd records. Its gradient is one launch and short formulas; the second derivative the reference's."""

    @staticmethod
    def forward(ctx: Any, call: Call, *inputs: Any) -> Tensor:  # noqa: D102
        y = call.run(None, inputs)  # type: ignore[misc]
        save(ctx, call, launched_gradient, inputs, ctx.needs_input_grad[1:6], y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        return None, *gradients(ctx, dy, ctx.needs_input_grad[1:6]), None


_recorded = super(torch.autograd.Function, Recorded).apply  # Function.apply itself first asks for functorch's levels: none


class Saved(NamedTuple):
    """What a gradient needs beside the saved tensors."""

    call: Call
    gradient: Callable[..., Tensor]  # of scores
    scale: Any
    temperature: Any
    softcap: float | None
    x_dtype: torch.dtype
    mask_like: tuple[torch.Size, torch.dtype] | None  # of a mask that needs a gradient
    by_scores: bool  # the chain rule from scores to x, scale and temperature is the reference's
    by_reference: bool  # everything is
    voids: bool  # elements without weight have a gradient of 0, whatever dy is


def save(ctx: Any, call: Call, gradient: Callable[..., Tensor], inputs: Any, needs: Any, y: Tensor) -> None:
    """Saves y; x too if the chain rule needs it; mask and sink if everything is computed again."""
    x, mask, scale, temperature, sink, softcap = inputs
    voids = bool(call.options.causal) or call.options.zero_rows
    if mask is scale is temperature is sink is softcap is None:
        ctx.saved = Saved(call, gradient, None, None, None, x.dtype, None, False, False, voids)
        ctx.save_for_backward(y)
        return
    by_scores, by_reference = needs[2] or needs[3] or softcap is not None, needs[4]
    (scale_rows, temperature_rows), (scale, temperature) = tensors_and_numbers(scale, temperature)
    voids = voids or sink is not None or (mask is not None and mask.dtype is torch.bool)
    mask_like = (mask.shape, mask.dtype) if needs[1] else None
    ctx.saved = Saved(call, gradient, scale, temperature, softcap, x.dtype, mask_like, by_scores, by_reference, voids)
    x, more = x if by_scores or by_reference else None, (mask, sink) if by_reference else (None, None)
    ctx.save_for_backward(y, x, *more, scale_rows, temperature_rows)


def gradients(ctx: Any, dy: Tensor, needs: Any) -> list[Tensor | None]:
    """Computes the gradients of (x, mask, scale, temperature, sink), those that are needed."""
    y, *tensors = ctx.saved_tensors
    saved, twice = ctx.saved, torch.is_grad_enabled()
    options, scale, temperature, softcap = saved.call.options, saved.scale, saved.temperature, saved.softcap
    if tensors:
        x, mask, sink, scale_rows, temperature_rows = tensors
        scale = scale if scale_rows is None else scale_rows
        temperature = temperature if temperature_rows is None else temperature_rows
    if saved.by_reference:
        function = _softmax_of_five
        return reference.differentiate(function, (x, mask, scale, temperature, sink), needs, (softcap, options), (dy,), twice)
    compute_gradient = reference.gradient if twice else saved.gradient
    rest = options.log, options.dim, saved.voids
    found: list[Tensor | None] = [None] * 5
    if not saved.by_scores and not needs[1]:
        factor = factor_of(scale, temperature)
        found[0] = compute_gradient(dy, y, factor, *rest, saved.x_dtype, saved.call.invariant)
        return found
    wide, greedy = (
        torch.promote_types(y.dtype, torch.float32),
        None if temperature is None else factor_of(None, temperature, 1.0),
    )
    dscores = compute_gradient(dy, y, greedy, *rest, wide, saved.call.invariant)
    if needs[1]:
        shape, dtype = saved.mask_like
        found[1] = dscores.sum_to_size(shape).to(dtype)
    if not saved.by_scores:
        factor = factor_of(scale, temperature)
        found[0] = (dscores if factor is None else dscores * factor).to(saved.x_dtype)
        return found
    inputs, needed = (x, scale, temperature), (needs[0], *needs[2:4])
    found[0], found[2], found[3] = reference.differentiate(
        _scores, inputs, needed, (softcap, options.dtype), (dscores,), twice
    )  # fmt: skip
    return found


def _softmax_of_five(x: Any, mask: Any, scale: Any, temperature: Any, sink: Any, softcap: Any, options: Options) -> Tensor:
    return reference.softmax((x, mask, scale, temperature, sink, softcap), options)


def _scores(x: Tensor, scale: Any, temperature: Any, softcap: float | None, dtype: torch.dtype) -> Tensor:
    wide = torch.promote_types(dtype, torch.float32)
    return reference.scores(x.to(dtype).to(wide), scale, temperature, softcap)[0]


def factor_of(scale: Any, temperature: Any, greedy: float | None = None) -> Any:
    """Returns scale / temperature, 0 for greedy rows, or None; with `greedy`, 0 for greedy rows and that number for others."""
    if temperature is None:
        return scale
    if isinstance(temperature, Tensor):
        temperature = temperature.to(torch.promote_types(temperature.dtype, torch.float32))
        quotient = greedy or (1.0 if scale is None else scale) / torch.where(temperature == 0, 1.0, temperature)
        return torch.where(temperature == 0, 0.0, quotient)
    if greedy and temperature:
        return None
    one = 1.0 if scale is None else scale
    return one / temperature if temperature else one * 0.0


def launched_gradient(
    dy: Tensor, y: Tensor, factor: Any, log: bool, dim: int, voids: bool, dtype: torch.dtype, invariant: bool,
    otherwise: Callable[..., Any] = reference.gradient,
) -> Any:  # fmt: skip
    """Computes `reference.gradient`, of plain tensors by a launch, else by `otherwise`."""
    if is_compiling():  # compiled autograd
        return _gradient_by_operator(dy, y, factor, log, dim, voids, dtype, invariant)
    try:
        check_reverse_mode()
        key = "gradient", log, dim, voids, dtype, invariant, facts(dy), facts(y), factor if factor is None else facts(factor)
    except SpecialCallError:
        return otherwise(dy, y, factor, log, dim, voids, dtype)
    run = launch.calls.get(key, launch)
    if run is launch:  # None is kept too
        if dy.shape != y.shape or dy.dtype != y.dtype:
            raise RuntimeError(f"a gradient of {dy.dtype} {tuple(dy.shape)} for a result of {y.dtype} {tuple(y.shape)}")
        run = launch.keep(key, softmax_launch.gradient(dy, y, factor, log, dim, voids, dtype, invariant))
    return otherwise(dy, y, factor, log, dim, voids, dtype) if run is None else run(dy, y, factor)


# The operator of compilers, by the same rule and with the same gradients. It reads batch_invariant when a graph runs.


@torch.library.custom_op("portable_softmax::softmax", mutates_args=())
def operator(
    x: Tensor, mask: Tensor | None, scale: Tensor | None, temperature: Tensor | None, sink: Tensor | None,
    scale_number: float | None, temperature_number: float | None, softcap: float | None, log: bool, dim: int,
    dtype: torch.dtype, causal: str, zero_rows: bool,
) -> Tensor:  # fmt: skip
    """Computes a softmax: see `Inputs` and `Options`."""
    scale = scale_number if scale is None else scale  # type: ignore[assignment]
    temperature = temperature_number if temperature is None else temperature  # type: ignore[assignment]
    inputs = x, mask, scale, temperature, sink, softcap
    with torch.no_grad():
        return compute(log, inputs, dim, dtype, causal or False, "zero" if zero_rows else "nan", traced=False)


@torch.library.custom_op("portable_softmax::softmax_backward", mutates_args=())
def backward_operator(
    dy: Tensor, y: Tensor, factor: Tensor | None, number: float | None, log: bool, dim: int, voids: bool, dtype: torch.dtype
) -> Tensor:
    """Computes the gradient of scores, times a factor."""
    factor = number if factor is None else factor  # type: ignore[assignment]
    dx: Tensor = launched_gradient(dy, y, factor, log, dim, voids, dtype, is_batch_invariant())
    return dx.contiguous()


def _gradient_by_operator(dy: Tensor, y: Tensor, factor: Any, *rest: Any) -> Tensor:
    (tensor,), (number,) = tensors_and_numbers(factor)
    return backward_operator(dy, y, tensor, number, *rest[:4])


def _save_of_operator(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, mask, scale, temperature, sink, scale_number, temperature_number, softcap, *options = inputs
    scale, temperature = scale_number if scale is None else scale, temperature_number if temperature is None else temperature
    call, taken = Call(None, Options(*options)), (x, mask, scale, temperature, sink, softcap)
    save(ctx, call, _gradient_by_operator, taken, ctx.needs_input_grad[:5], output)


def _gradients_of_operator(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return *gradients(ctx, dy, ctx.needs_input_grad[:5]), *(None,) * 8


operator.register_fake(lambda x, *rest: torch.empty(x.shape, dtype=rest[9], device=x.device))
backward_operator.register_fake(lambda dy, y, *rest: torch.empty(y.shape, dtype=rest[-1], device=y.device))
operator.register_autograd(_gradients_of_operator, setup_context=_save_of_operator)
