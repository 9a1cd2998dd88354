"""softmax and log_softmax: which calls are launched, autograd, and the operator for compilers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import launch, reference
from portable_softmax.operators.arguments import (
    DTYPES,
    Factors,
    Inputs,
    Options,
    SpecialCallError,
    check_out,
    check_tensor,
    dtype_of,
    facts,
    has_voids,
    joined,
    needs_of,
    read,
    sink_of,
    tensors_and_numbers,
    transforms_are_active,
)
from portable_softmax.operators.launch import Call

NAMES = launch.FORMS
NO_FACTORS = None, None, None, None


def compute(log: bool, inputs: Inputs, dim: Any, dtype: Any, causal: Any, masked_rows: Any, out: Any = None) -> Tensor:
    """Computes a softmax: by a launch for plain calls, the operator for compilers, else the reference.

    Args:
        log: log_softmax.
        inputs: as the caller passed them.
        dim, dtype, causal, masked_rows, out: see api.functional.softmax.
    """
    x, sink = inputs[0], inputs[4]
    if not isinstance(x, Tensor):
        check_tensor(NAMES[log], "input", x)
    if sink is not None:
        inputs = *inputs[:4], sink_of(NAMES[log], x, sink), inputs[5]
    if out is not None:
        return _into(out, log, inputs, dim, x.dtype if dtype is None else dtype, causal, masked_rows)
    if not x.dim():
        return compute(log, (x[None], *inputs[1:]), dim, dtype, causal, masked_rows)[0]
    call = None if is_compiling() else call_of(log, inputs, dim, dtype, causal, masked_rows)
    if call is None:
        return _special(log, inputs, dim, dtype, causal, masked_rows)
    if call.run is None or (call.needs and transforms_are_active()):
        return reference.softmax(*inputs, call.options)
    return _recorded(call, *inputs) if call.needs else call.run(None, inputs)


def call_of(
    log: bool, inputs: Inputs, dim: Any, dtype: Any, causal: Any, masked_rows: Any, out: Tensor | None = None
) -> Call | None:
    """Returns the cached form of a call with plain tensors, else None; arguments are checked once per key.

    The key has all that a launch depends on: of factors the magnitude, but a softcap itself, which is compiled.
    """
    try:
        x, tensors, at_x, writes = inputs[0], facts(*inputs, out), False, True
        if out is not None:
            at_x, writes = out.data_ptr() == x.data_ptr(), not out.is_inference() or torch.is_inference_mode_enabled()
        if dtype is None:
            dtype = x.dtype if x.dtype is torch.float32 else dtype_of(NAMES[log], x)
        key = (
            log, dim, type(dim), dtype, causal, type(causal), masked_rows, is_batch_invariant(), torch.is_grad_enabled(), at_x,
            writes, inputs[5], tensors,
        )  # fmt: skip
        call: Call | None = launch.calls.get(key)
    except (SpecialCallError, TypeError, RuntimeError):  # of an option without a hash, a tensor without memory: see `read`
        return None
    if call is None:
        options, invariant, fits = read(NAMES[log], inputs, dim, dtype, causal, masked_rows), is_batch_invariant(), True
        needs, voids = needs_of(inputs), has_voids(inputs, options)
        if out is not None:
            check_out(NAMES[log], out, x, options.dtype, inputs)
            fits = writes and out.shape == x.shape and 0 not in out.stride() and (not at_x or out.stride() == x.stride())
        run = launch.softmax(inputs, options, invariant, out) if fits else None
        read_beside = tuple(at for at, t in enumerate(inputs) if isinstance(t, Tensor) and (at or not at_x))
        apart = 0 if out is None else max(_extent(t) for t in (out, *inputs) if isinstance(t, Tensor))
        call = launch.keep(key, Call(run, options, needs, voids, x.dtype, invariant, apart, read_beside))
    return call


def _special(log: bool, inputs: Inputs, dim: Any, dtype: Any, causal: Any, masked_rows: Any) -> Tensor:
    """Computes a call that is not plain: by the operator for compilers, else by the reference."""
    x = inputs[0]
    plain = all(other is None for other in inputs[1:]) and causal is False and masked_rows == "nan"
    if plain and (x.is_nested or x.layout is not torch.strided):
        return (torch.log_softmax if log else torch.softmax)(x, dim, dtype=dtype)  # computes it, or raises torch's error
    options = read(NAMES[log], inputs, dim, dtype, causal, masked_rows)
    if is_compiling() and x.dtype in DTYPES and options.dtype in DTYPES and not transforms_are_active():
        tensors, numbers = tensors_and_numbers(*inputs[2:4])
        return operator(x, inputs[1], *tensors, inputs[4], *numbers, *inputs[5:], *options)
    return reference.softmax(*inputs, options)


def _into(out: Any, log: bool, inputs: Inputs, dim: Any, dtype: Any, causal: Any, masked_rows: Any) -> Tensor:
    """Writes to out: directly if it is x or shares no memory with inputs; otherwise, the result is copied."""
    x, name = inputs[0], NAMES[log]
    if not isinstance(out, Tensor):
        check_tensor(name, "out", out)
    call = None if is_compiling() else call_of(log, inputs, dim, dtype, causal, masked_rows, out)
    if call is not None and call.run is not None:
        start = out.data_ptr()
        for at in call.read_beside:
            if abs(inputs[at].data_ptr() - start) < call.apart:
                break
        else:
            increment_version(out)
            return call.run(out, inputs)
    y = compute(log, inputs, dim, dtype, causal, masked_rows)
    check_out(name, out, x, y.dtype, inputs)
    return out.copy_(y) if out.shape == y.shape else torch.mul(y, 1, out=out)  # which resizes it, with torch's warning


def _extent(t: Tensor) -> int:
    """Returns the bytes from the start of a tensor's first element to the end of its last."""
    return (1 + sum((size - 1) * step for size, step in zip(t.shape, t.stride(), strict=True))) * t.element_size()


class Recorded(torch.autograd.Function):
    """A launch that autograd records. The gradient is one launch, or two with a mask; second derivatives use the reference."""

    @staticmethod
    def forward(ctx: Any, call: Call, *inputs: Any) -> Tensor:  # noqa: D102
        y = call.run(None, inputs)  # type: ignore[misc]
        save(ctx, call, inputs, y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        return None, *gradients(ctx, dy, launched_gradient), None


_recorded = super(torch.autograd.Function, Recorded).apply  # Function.apply itself first checks functorch's levels: none


def save(ctx: Any, call: Call, inputs: Any, y: Tensor) -> None:
    """Saves y; x if there is a softcap; all inputs if scale, temperature or sink require a gradient."""
    ctx.call = call
    x, mask, scale, temperature, sink, softcap = inputs
    if mask is scale is temperature is sink is softcap is None:
        ctx.save_for_backward(y)
        return
    tensors, numbers = tensors_and_numbers(scale, temperature)
    ctx.numbers = *numbers, softcap
    again = any(call.needs[2:])
    x, sink = x if again or softcap is not None else None, sink if again else None
    ctx.save_for_backward(y, x, mask if again or call.needs[1] else None, sink, *tensors)


def gradients(ctx: Any, dy: Tensor, compute_gradient: Callable[..., Tensor]) -> tuple[Tensor | None, ...]:
    """Computes the gradients of (x, mask, scale, temperature, sink)."""
    y, *tensors = ctx.saved_tensors
    call: Call = ctx.call
    options, needs, twice = call.options, call.needs, torch.is_grad_enabled()
    if twice:
        compute_gradient = reference.gradient
    rest = options.log, options.dim, call.voids
    if not tensors:
        return compute_gradient(dy, y, NO_FACTORS, *rest, call.x_dtype, call.invariant), None, None, None, None
    x, mask, sink, *tensors = tensors
    *numbers, softcap = ctx.numbers
    scale, temperature = joined(*tensors, *numbers)
    if any(needs[2:]):
        grads = reference.differentiate(
            reference.softmax, (x, mask, scale, temperature, sink), needs[:5], (softcap, options), (dy,), twice
        )
        return tuple(grads)
    dx = compute_gradient(dy, y, (x, scale, temperature, softcap), *rest, call.x_dtype, call.invariant) if needs[0] else None
    if not needs[1]:
        return dx, None, None, None, None
    if isinstance(temperature, Tensor):
        temperature = torch.where(temperature == 0, 0.0, 1.0)
    greedy = (None, None, temperature if isinstance(temperature, Tensor) or temperature == 0 else None, None)
    wide = torch.promote_types(y.dtype, torch.float32)
    dscores = compute_gradient(dy, y, greedy, *rest, wide, call.invariant)
    return dx, dscores.sum_to_size(mask.shape).to(mask.dtype), None, None, None


def launched_gradient(
    dy: Tensor, y: Tensor, factors: Factors, log: bool, dim: int, voids: bool, dtype: torch.dtype, invariant: bool,
    otherwise: Callable[..., Any] = reference.gradient,
) -> Any:  # fmt: skip
    """Computes `reference.gradient`, of plain tensors by a launch, else by `otherwise`."""
    if is_compiling():  # compiled autograd
        return _gradient_by_operator(dy, y, factors, log, dim, voids, dtype, invariant)
    try:
        of_tensors = facts(dy, y, *(() if factors is NO_FACTORS else factors))
        key = "gradient", log, dim, voids, dtype, invariant, factors[3], of_tensors
    except SpecialCallError:
        return otherwise(dy, y, factors, log, dim, voids, dtype)
    run = launch.calls.get(key, launch)
    if run is launch:  # None is kept too
        if dy.shape != y.shape or dy.dtype != y.dtype:
            raise RuntimeError(f"a gradient of {dy.dtype} {tuple(dy.shape)} for a result of {y.dtype} {tuple(y.shape)}")
        run = launch.keep(key, launch.gradient(dy, y, factors, log, dim, voids, dtype, invariant))
    return otherwise(dy, y, factors, log, dim, voids, dtype) if run is None else run(dy, y, factors)


# The operator of compilers, by the same rule and with the same gradients. It reads batch_invariant when a graph runs.


@torch.library.custom_op("portable_softmax::softmax", mutates_args=())
def operator(
    x: Tensor, mask: Tensor | None, scale: Tensor | None, temperature: Tensor | None, sink: Tensor | None,
    scale_number: float | None, temperature_number: float | None, softcap: float | None, log: bool, dim: int,
    dtype: torch.dtype, causal: str, zero_rows: bool,
) -> Tensor:  # fmt: skip
    """Computes a softmax: see `Inputs` and `Options`."""
    factors = joined(scale, temperature, scale_number, temperature_number)
    inputs = x, mask, *factors, sink, softcap
    call = call_of(log, inputs, dim, dtype, causal or False, "zero" if zero_rows else "nan")
    if call is not None and call.run is not None:
        return call.run(None, inputs)
    return reference.softmax(*inputs, Options(log, dim, dtype, causal, zero_rows))


@torch.library.custom_op("portable_softmax::softmax_backward", mutates_args=())
def backward_operator(
    dy: Tensor, y: Tensor, x: Tensor | None, scale: Tensor | None, temperature: Tensor | None, scale_number: float | None,
    temperature_number: float | None, softcap: float | None, log: bool, dim: int, voids: bool, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """Computes the gradient of x."""
    factors = x, *joined(scale, temperature, scale_number, temperature_number), softcap
    dx: Tensor = launched_gradient(dy, y, factors, log, dim, voids, dtype, is_batch_invariant())
    return dx.contiguous()


def _gradient_by_operator(dy: Tensor, y: Tensor, factors: Factors, *rest: Any) -> Tensor:
    tensors, numbers = tensors_and_numbers(*factors[1:3])
    return backward_operator(dy, y, factors[0], *tensors, *numbers, factors[3], *rest[:4])


def _save_of_operator(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, mask, scale, temperature, sink, scale_number, temperature_number, softcap, *rest = inputs
    factors = joined(scale, temperature, scale_number, temperature_number)
    inputs, options = (x, mask, *factors, sink, softcap), Options(*rest)
    save(ctx, Call(None, options, ctx.needs_input_grad[:5], has_voids(inputs, options), x.dtype), inputs, output)


def _gradients_of_operator(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return *gradients(ctx, dy, _gradient_by_operator), *(None,) * 8


operator.register_fake(lambda x, *rest: torch.empty(x.shape, dtype=rest[9], device=x.device))
backward_operator.register_fake(lambda dy, y, *rest: torch.empty(y.shape, dtype=rest[-1], device=y.device))
operator.register_autograd(_gradients_of_operator, setup_context=_save_of_operator)
