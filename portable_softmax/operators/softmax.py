"""softmax and log_softmax: which calls are launched, autograd, and the operator for compilers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from portable_softmax.errors import DtypeError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import launch, reference
from portable_softmax.operators.arguments import (
    DTYPES,
    Inputs,
    Options,
    SpecialCallError,
    check_alike,
    check_factor,
    check_tensor,
    dtype_of,
    facts,
    has_voids,
    is_real,
    joined,
    needs_of,
    normalized,
    read,
    softcap_of,
    tensors_and_numbers,
    transforms_are_active,
    wrap_dim,
)
from portable_softmax.operators.launch import Call
from portable_softmax.operators.memory import check_out, extent, overlaps

NAMES, GRADIENT = launch.FORMS, "softmax_backward"
NO_FACTORS = Inputs(None)


def compute(log: bool, inputs: Inputs, dim: Any, dtype: Any, causal: Any, masked_rows: Any, out: Any = None) -> Tensor:
    """Computes a softmax: by a launch for plain calls, the operator for compilers, else the reference.

    Args:
        log: log_softmax.
        inputs: as the caller passed them.
        dim, dtype, causal, masked_rows, out: see api.functional.softmax.
    """
    x, _, scale, temperature, sink, softcap = inputs
    if not isinstance(x, Tensor):
        check_tensor(NAMES[log], "input", x)
    if not scale is temperature is sink is softcap is None:
        inputs = normalized(NAMES[log], inputs)
    if out is not None:
        return _into(out, log, inputs, dim, x.dtype if dtype is None else dtype, causal, masked_rows)
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
    x, at_x, writes = inputs.x, False, True
    if dtype is None:
        dtype = x.dtype if x.dtype is torch.float32 else dtype_of(NAMES[log], x)
    try:
        tensors = facts(*inputs, out)
        if out is not None:  # elements of another type lie elsewhere, and are written over rows that are still to be read
            at_x = out.data_ptr() == x.data_ptr() and out.dtype is x.dtype
            writes = not out.is_inference() or torch.is_inference_mode_enabled()
        key = (
            log, dim, type(dim), dtype, causal, type(causal), masked_rows, is_batch_invariant(), torch.is_grad_enabled(), at_x,
            writes, inputs.softcap, tensors,
        )  # fmt: skip
        call: Call | None = launch.calls.get(key)
    except (SpecialCallError, TypeError):  # of an option without a hash, which `read` refuses
        return None
    if call is None:
        options, invariant, fits = read(NAMES[log], inputs, dim, dtype, causal, masked_rows), is_batch_invariant(), True
        needs, voids = needs_of(inputs), has_voids(inputs, options)
        if out is not None:
            check_out(NAMES[log], out, x, options.dtype, inputs)
            fits = writes and out.shape == x.shape and not overlaps(out) and (not at_x or out.stride() == x.stride())
        run = launch.softmax(inputs, options, invariant, out) if fits else None
        read_beside = tuple(at for at, t in enumerate(inputs) if isinstance(t, Tensor) and (at or not at_x))
        apart = 0 if out is None else max(extent(t) for t in (out, *inputs) if isinstance(t, Tensor))
        call = launch.keep(key, Call(run, options, needs, voids, x.dtype, invariant, apart, read_beside))
    return call


def _special(log: bool, inputs: Inputs, dim: Any, dtype: Any, causal: Any, masked_rows: Any) -> Tensor:
    """Computes a call that is not plain: by the operator for compilers, else by the reference."""
    x = inputs.x
    plain = all(other is None for other in inputs[1:]) and causal is False and masked_rows == "nan"
    if plain and (x.is_nested or x.layout is not torch.strided):
        return (torch.log_softmax if log else torch.softmax)(x, dim, dtype=dtype)  # computes it, or raises torch's error
    options = read(NAMES[log], inputs, dim, dtype, causal, masked_rows)
    if is_compiling() and x.dtype in DTYPES and options.dtype in DTYPES and not transforms_are_active():
        tensors, numbers = tensors_and_numbers(inputs.scale, inputs.temperature)
        return operator(x, inputs.mask, *tensors, inputs.sink, *numbers, inputs.softcap, *options)
    return reference.softmax(*inputs, options)


def _into(out: Any, log: bool, inputs: Inputs, dim: Any, dtype: Any, causal: Any, masked_rows: Any) -> Tensor:
    """Writes to out: directly if it is x or shares no memory with inputs; otherwise, the result is copied."""
    x, name = inputs.x, NAMES[log]
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
    factors = Inputs(x, None, scale, temperature, None, softcap)
    dx = compute_gradient(dy, y, factors, *rest, call.x_dtype, call.invariant) if needs[0] else None
    if not needs[1]:
        return dx, None, None, None, None
    if isinstance(temperature, Tensor):
        temperature = torch.where(temperature == 0, 0.0, 1.0)
    greedy = Inputs(None, temperature=temperature if isinstance(temperature, Tensor) or temperature == 0 else None)
    wide = torch.promote_types(y.dtype, torch.float32)
    dscores = compute_gradient(dy, y, greedy, *rest, wide, call.invariant)
    return dx, dscores.sum_to_size(mask.shape).to(mask.dtype), None, None, None


def launched_gradient(
    dy: Tensor, y: Tensor, factors: Inputs, log: bool, dim: int, voids: bool, dtype: torch.dtype, invariant: bool,
    otherwise: Callable[..., Any] = reference.gradient,
) -> Any:  # fmt: skip
    """Computes `reference.gradient`, of plain tensors by a launch, else by `otherwise`."""
    if is_compiling():  # compiled autograd
        return _gradient_by_operator(dy, y, factors, log, dim, voids, dtype, invariant)
    try:
        of_tensors = facts(dy, y, *(() if factors is NO_FACTORS else factors))
        key = "gradient", log, dim, voids, dtype, invariant, factors.softcap, of_tensors
    except SpecialCallError:
        return otherwise(dy, y, factors, log, dim, voids, dtype)
    run = launch.calls.get(key, launch)
    if run is launch:  # None is kept too
        run = launch.keep(key, launch.gradient(dy, y, factors, log, dim, voids, dtype, invariant))
    return otherwise(dy, y, factors, log, dim, voids, dtype) if run is None else run(dy, y, factors)


# The operator of compilers, by the same rule, with the same checks and gradients. It reads batch_invariant when a graph runs.


def _arguments_of(*arguments: Any) -> tuple[Inputs, Options]:
    """Returns the inputs and options of a call of the operator, after checks."""
    x, mask, scale, temperature, sink, *numbers, softcap, log, dim, dtype, causal, zero_rows = arguments
    inputs = Inputs(x, mask, *joined(scale, temperature, *numbers), sink, softcap_of(NAMES[log], softcap))
    return inputs, read(NAMES[log], inputs, dim, dtype, causal or False, "zero" if zero_rows else "nan")


@torch.library.custom_op("portable_softmax::softmax", mutates_args=())
def operator(
    x: Tensor, mask: Tensor | None, scale: Tensor | None, temperature: Tensor | None, sink: Tensor | None,
    scale_number: float | None, temperature_number: float | None, softcap: float | None, log: bool, dim: int,
    dtype: torch.dtype, causal: str, zero_rows: bool,
) -> Tensor:  # fmt: skip
    """Computes a softmax: see `Inputs` and `Options`."""
    factors = scale, temperature, sink, scale_number, temperature_number, softcap
    inputs, options = _arguments_of(x, mask, *factors, log, dim, dtype, causal, zero_rows)
    call = call_of(log, inputs, options.dim, dtype, causal or False, "zero" if zero_rows else "nan")
    return reference.softmax(*inputs, options) if call is None or call.run is None else call.run(None, inputs)


@torch.library.custom_op("portable_softmax::softmax_backward", mutates_args=())
def backward_operator(
    dy: Tensor, y: Tensor, x: Tensor | None, scale: Tensor | None, temperature: Tensor | None, scale_number: float | None,
    temperature_number: float | None, softcap: float | None, log: bool, dim: int, voids: bool, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """Computes the gradient of x."""
    numbers = scale_number, temperature_number, softcap
    factors, dim = _gradient_arguments_of(dy, y, x, scale, temperature, *numbers, log, dim, voids, dtype)
    dx: Tensor = launched_gradient(dy, y, factors, log, dim, voids, dtype, is_batch_invariant())
    return dx.contiguous()


def _gradient_arguments_of(*arguments: Any) -> tuple[Inputs, int]:
    """Returns (factors, dim counted from 0) of a call of the gradient's operator, after checks."""
    dy, y, x, scale, temperature, *numbers, softcap, _, dim, _, dtype = arguments
    scale, temperature = joined(scale, temperature, *numbers)
    if (x is None) != (softcap is None):
        raise ValueError(f"{GRADIENT}(): x is required with a softcap, and only with one")
    check_tensor(GRADIENT, "y", y)
    check_alike(GRADIENT, "dy", dy, y.shape, y.dtype, y.device)
    if x is not None:
        check_alike(GRADIENT, "x", x, y.shape, dtype, y.device)
    if not is_real(y.dtype, dtype):
        raise DtypeError(f"{GRADIENT}(): dtypes must be floating-point of 16 bits or more, not {y.dtype} and {dtype}")
    dim = wrap_dim(GRADIENT, dim, y.dim())
    check_factor(GRADIENT, "scale", y, scale, dim)
    check_factor(GRADIENT, "temperature", y, temperature, dim)
    return Inputs(x, None, scale, temperature, None, softcap_of(GRADIENT, softcap)), dim


def _gradient_by_operator(dy: Tensor, y: Tensor, factors: Inputs, *rest: Any) -> Tensor:
    tensors, numbers = tensors_and_numbers(factors.scale, factors.temperature)
    return backward_operator(dy, y, factors.x, *tensors, *numbers, factors.softcap, *rest[:4])


def _save_of_operator(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    checked, options = _arguments_of(*inputs)
    save(ctx, Call(None, options, ctx.needs_input_grad[:5], has_voids(checked, options), checked.x.dtype), checked, output)


def _gradients_of_operator(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return *gradients(ctx, dy, _gradient_by_operator), *(None,) * 8


@operator.register_fake
def _(*arguments: Any) -> Tensor:
    inputs, options = _arguments_of(*arguments)
    return torch.empty(inputs.x.shape, dtype=options.dtype, device=inputs.x.device)


@backward_operator.register_fake
def _(*arguments: Any) -> Tensor:
    _gradient_arguments_of(*arguments)
    return torch.empty(arguments[1].shape, dtype=arguments[-1], device=arguments[1].device)


operator.register_autograd(_gradients_of_operator, setup_context=_save_of_operator)
