"""token_log_probs: which calls are launched, autograd, and the operator for compilers."""

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
    SpecialCallError,
    as_float,
    check_alike,
    check_factor,
    check_mask,
    check_tensor,
    differ,
    facts,
    is_plain,
    is_real,
    joined,
    needs_of,
    softcap_of,
    tensors_and_numbers,
    transforms_are_active,
    wrap_dim,
)
from portable_softmax.operators.launch import Call
from portable_softmax.planning.problem import LogProbs

NAME, GRADIENT = "token_log_probs", "token_log_probs_backward"
Results = tuple[Tensor, Tensor | None, Tensor | None]  # log-probabilities; logsumexp and entropies if they are requested


def compute(inputs: Any, options: tuple[Any, ...], grad_inplace: bool) -> Results:
    """Computes log-probabilities: by a launch for plain calls, the operator for compilers, else the reference.

    Args:
        inputs: (x, ids, mask, scale, temperature, softcap), as the caller passed them.
        options: (dim, ignore_index, entropy, lse, zero_rows), likewise, but for the last.
        grad_inplace: the gradient is written over x.
    """
    x, ids, mask, *numbers, softcap = inputs
    if not numbers[0] is numbers[1] is softcap is None:
        factors = zip(("scale", "temperature"), numbers, strict=True)
        inputs = x, ids, mask, *(as_float(NAME, *factor) for factor in factors), softcap_of(NAME, softcap)
    if is_compiling():
        options = read(inputs, *options)
        if x.dtype not in DTYPES or transforms_are_active():
            return reference.log_probs(*inputs, *options)
        tensors, numbers = tensors_and_numbers(*inputs[3:5])
        return _results(options, *operator(*inputs[:3], *tensors, *numbers, inputs[5], *options))
    call = call_of(inputs, options)
    if call is None:
        return reference.log_probs(*inputs, *read(inputs, *options))
    if call.run is None or (call.needs and transforms_are_active()):
        return reference.log_probs(*inputs, *call.options)
    if call.needs:
        return _recorded(call, grad_inplace, *inputs)
    return _results(options, *call.run(inputs))


def _results(options: tuple[Any, ...], picked: Tensor, statistics: Tensor) -> Results:
    """Returns the results, which a caller may modify: none of them is saved."""
    _, _, entropy, lse, _ = options
    return picked, statistics[0].clone() if lse else None, statistics[-1].clone() if entropy else None


def call_of(inputs: Any, options: tuple[Any, ...]) -> Call | None:
    """Returns the cached form of a call with plain tensors, else None; arguments are checked once per key."""
    try:
        key = NAME, options, tuple(map(type, options)), is_batch_invariant(), torch.is_grad_enabled(), inputs[5], facts(*inputs)
        call: Call | None = launch.calls.get(key)
    except (SpecialCallError, TypeError):  # of an option without a hash, which `read` refuses
        return None
    if call is None:
        checked = read(inputs, *options)
        run = launch.log_probs(inputs, checked, is_batch_invariant())
        call = launch.keep(key, Call(run, checked, needs_of(inputs)))
    return call


def read(inputs: Any, dim: Any, ignore_index: Any, entropy: Any, lse: Any, zero_rows: bool = False) -> tuple[Any, ...]:
    """Returns (dim, ignore_index, entropy, lse, zero_rows) of a call, after checks of all arguments.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError, LayoutError, DtypeError: the cases of api.log_probs.token_log_probs.
    """
    x, ids, mask, scale, temperature, _ = inputs
    check_tensor(NAME, "logits", x)
    check_tensor(NAME, "ids", ids)
    if ids.dtype is torch.bool or ids.is_floating_point() or ids.is_complex():
        raise DtypeError(f"{NAME}(): argument 'ids' must hold integers, not {ids.dtype}")
    if not is_real(x.dtype):
        raise DtypeError(f"{NAME}(): argument 'logits' must have a floating-point dtype of 16 bits or more, not {x.dtype}")
    if x.device != ids.device:
        raise RuntimeError(
            f"{NAME}(): Expected all tensors to be on the same device, but logits are on {x.device}, ids on {ids.device}"
        )
    for argument, value in (("entropy", entropy), ("return_lse", lse)):
        if not isinstance(value, bool):
            raise TypeError(f"{NAME}(): argument '{argument}' must be bool, not {type(value).__name__}")
    if not isinstance(ignore_index, (int, torch.SymInt)) or isinstance(ignore_index, bool):
        raise TypeError(f"{NAME}(): argument 'ignore_index' must be int, not {type(ignore_index).__name__}")
    if isinstance(ignore_index, int) and not -(2**63) <= ignore_index < 2**63:
        raise ValueError(f"{NAME}(): argument 'ignore_index' must be an integer of 64 bits, as ids are")
    dim = wrap_dim(NAME, dim, x.dim())
    rows = rows_of(x, dim)
    if not x.dim() or ids.dim() > x.dim() or differ(ids.shape[: len(rows)], rows):
        raise ValueError(
            f"{NAME}(): ids must have the shape {rows} of logits without dim, or one more dimension, not {tuple(ids.shape)}"
        )
    check_mask(NAME, x, mask, dim)
    check_factor(NAME, "scale", x, scale, dim)
    check_factor(NAME, "temperature", x, temperature, dim)
    return dim, ignore_index, entropy, lse, zero_rows


def rows_of(x: Tensor, dim: int) -> tuple[int, ...]:
    """Returns the shape of one number for each row."""
    return *x.shape[:dim], *x.shape[dim + 1 :]


class Recorded(torch.autograd.Function):
    """A launch that autograd records. The reference computes gradients that one launch does not."""

    @staticmethod
    def forward(ctx: Any, call: Call, in_place: bool, *inputs: Any) -> Results:  # noqa: D102
        picked, statistics = call.run(inputs)  # type: ignore[misc]
        save(ctx, call, in_place, inputs, statistics)
        return _results(call.options, picked, statistics)

    @staticmethod
    def backward(ctx: Any, *dresults: Tensor | None) -> tuple[Any, ...]:  # noqa: D102
        return None, None, *gradients(ctx, dresults, launched_gradient), None


_recorded = super(torch.autograd.Function, Recorded).apply  # as in softmax.py


def save(ctx: Any, call: Call, in_place: bool, inputs: Any, statistics: Tensor) -> None:
    """Saves what gradients need; gradients of results that are not used are None."""
    x, ids, mask, scale, temperature, softcap = inputs
    ctx.set_materialize_grads(False)
    tensors, numbers = tensors_and_numbers(scale, temperature)
    ctx.saved = call, in_place, *numbers, softcap
    ctx.save_for_backward(x, ids, statistics, mask, *tensors)


def gradients(ctx: Any, dresults: tuple[Tensor | None, ...], compute_gradient: Callable[..., Any]) -> tuple[Any, ...]:
    """Computes the gradients of (x, ids, mask, scale, temperature): all of them, ahead of x being written over."""
    if all(dy is None for dy in dresults):
        return None, None, None, None, None
    x, ids, statistics, mask, *tensors = ctx.saved_tensors
    call, in_place, *numbers, softcap = ctx.saved
    scale, temperature = joined(*tensors, *numbers)
    inputs, twice = (x, ids, mask, scale, temperature, softcap), torch.is_grad_enabled()
    # In the reference, the logsumexp of a greedy row has no gradient.
    if not (twice or any(call.needs[2:]) or (dresults[1] is not None and temperature is not None)):
        dx = compute_gradient(inputs, statistics, dresults, call.options, in_place)
        if dx is not None:
            return dx, None, None, None, None
    grads = reference.differentiate(reference.log_probs, inputs[:5], call.needs[:5], (softcap, *call.options), dresults, twice)
    if in_place and not twice and grads[0] is not None and is_plain(grads[0]) and is_plain(x):
        grads[0] = x.detach().copy_(grads[0])
    return tuple(grads)


def launched_gradient(inputs: Any, statistics: Tensor, dresults: Any, options: Any, in_place: bool = False) -> Tensor | None:
    """Computes the gradient of x by one launch; returns None for calls that are not plain.

    Args:
        inputs: (x, ids, mask, scale, temperature, softcap).
        statistics: of rows, as a launch leaves them.
        dresults: gradients of log-probabilities, logsumexp and entropies, or None.
        options: (dim, ignore_index, entropy, lse, zero_rows).
        in_place: the gradient is written over x.
    """
    if is_compiling():  # compiled autograd
        return _gradient_by_operator(inputs, statistics, dresults, options)
    dpicked, dlse, dentropy = dresults
    if dpicked is None:
        dpicked = statistics.new_zeros(inputs[1].shape)
    try:
        options = *options[:2], options[-1]
        key = GRADIENT, options, in_place, inputs[5], facts(*inputs, statistics, dpicked, dentropy, dlse)
    except SpecialCallError:
        return None
    of_rows = tuple(t for t in (statistics, dpicked, dentropy, dlse) if t is not None)
    run = launch.calls.get(key, launch)
    if run is launch:  # None is kept too
        has = {"lse": dlse is not None, "entropy": dentropy is not None}
        run = launch.keep(key, launch.log_probs_gradient(inputs, options, in_place, of_rows, **has))
    if run is None:
        return None
    if in_place:
        increment_version(inputs[0])
    dx: Tensor = run(inputs, of_rows)
    return dx


# The operator of compilers, by the same rule and with the same gradients. It checks its arguments as functions do.


def _arguments_of(x: Tensor, ids: Tensor, mask: Tensor | None, *arguments: Any) -> tuple[Any, Any]:
    """Returns the inputs and options of a call of an operator, after checks."""
    *factors, softcap, dim, ignore_index, entropy, lse, zero_rows = arguments
    inputs = x, ids, mask, *joined(*factors), softcap_of(NAME, softcap)
    return inputs, read(inputs, dim, ignore_index, entropy, lse, zero_rows)


@torch.library.custom_op("portable_softmax::token_log_probs", mutates_args=())
def operator(
    x: Tensor, ids: Tensor, mask: Tensor | None, scale: Tensor | None, temperature: Tensor | None, scale_number: float | None,
    temperature_number: float | None, softcap: float | None, dim: int, ignore_index: int, entropy: bool, lse: bool,
    zero_rows: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Computes (log-probabilities of ids, statistics of rows)."""
    factors = scale, temperature, scale_number, temperature_number, softcap
    inputs, options = _arguments_of(x, ids, mask, *factors, dim, ignore_index, entropy, lse, zero_rows)
    call = call_of(inputs, options)
    if call is not None and call.run is not None:
        return call.run(inputs)
    with_lse = *options[:3], True, zero_rows
    picked, *results = reference.log_probs(*inputs, *with_lse)
    statistics = picked.new_zeros(LogProbs(entropy=entropy).n_statistics, *rows_of(x, options[0]))
    for at, result in zip((0, -1), results, strict=True):
        if result is not None:
            statistics[at] = result
    return picked.contiguous(), statistics


@torch.library.custom_op("portable_softmax::token_log_probs_backward", mutates_args=())
def backward_operator(  # noqa: PLR0913 - a schema has no tuples of tensors and numbers
    x: Tensor, ids: Tensor, statistics: Tensor, dpicked: Tensor | None, dlse: Tensor | None, dentropy: Tensor | None,
    mask: Tensor | None, scale: Tensor | None, temperature: Tensor | None, scale_number: float | None,
    temperature_number: float | None, softcap: float | None, dim: int, ignore_index: int, entropy: bool, lse: bool,
    zero_rows: bool,
) -> Tensor:  # fmt: skip
    """Computes the gradient of x."""
    factors = scale, temperature, scale_number, temperature_number, softcap
    inputs, options = _arguments_of(x, ids, mask, *factors, dim, ignore_index, entropy, lse, zero_rows)
    dresults = dpicked, dlse, dentropy
    _check_gradient(inputs, statistics, dresults, options)
    dx = launched_gradient(inputs, statistics, dresults, options)
    return (reference.log_probs_gradient(inputs, options, dresults) if dx is None else dx).contiguous()


def _check_gradient(inputs: Any, statistics: Tensor, dresults: Any, options: Any) -> None:
    """Raises RuntimeError unless tensors that kernels read without strides are of the results' shapes, dtype and device."""
    (x, ids), (dim, _, entropy, lse, _) = inputs[:2], options
    rows, (dpicked, dlse, dentropy) = rows_of(x, dim), dresults
    like = torch.promote_types(x.dtype, torch.float32), x.device
    check_alike(GRADIENT, "statistics", statistics, (LogProbs(entropy=entropy).n_statistics, *rows), *like)
    if dpicked is not None:
        check_alike(GRADIENT, "dpicked", dpicked, ids.shape, *like)
    for argument, dy, requested in (("dlse", dlse, lse), ("dentropy", dentropy, entropy)):
        if dy is not None:
            check_alike(GRADIENT, argument, dy, rows, *like)
            if not requested:
                raise RuntimeError(f"{GRADIENT}(): argument '{argument}' is the gradient of a result that was not requested")


def _gradient_by_operator(inputs: Any, statistics: Tensor, dresults: Any, options: Any, in_place: bool = False) -> Tensor:
    x, ids, mask, scale, temperature, softcap = inputs
    tensors, numbers = tensors_and_numbers(scale, temperature)
    return backward_operator(x, ids, statistics, *dresults, mask, *tensors, *numbers, softcap, *options)


def _save_of_operator(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    inputs, options = _arguments_of(*inputs)
    save(ctx, Call(None, options, ctx.needs_input_grad[:5]), False, inputs, output[1])


def _gradients_of_operator(ctx: Any, dpicked: Tensor | None, dstatistics: Tensor | None) -> tuple[Any, ...]:
    _, _, entropy, lse, _ = ctx.saved[0].options
    dlse = dstatistics[0] if lse and dstatistics is not None else None
    dentropy = dstatistics[-1] if entropy and dstatistics is not None else None
    return *gradients(ctx, (dpicked, dlse, dentropy), _gradient_by_operator), *(None,) * 8


@operator.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    (x, ids, *_), (dim, _, entropy, _, _) = _arguments_of(*arguments)
    shapes = ids.shape, (LogProbs(entropy=entropy).n_statistics, *rows_of(x, dim))
    return tuple(torch.empty(shape, dtype=torch.promote_types(x.dtype, torch.float32), device=x.device) for shape in shapes)


@backward_operator.register_fake
def _(x: Tensor, ids: Tensor, statistics: Tensor, *rest: Any) -> Tensor:
    inputs, options = _arguments_of(x, ids, *rest[3:])
    _check_gradient(inputs, statistics, rest[:3], options)
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


operator.register_autograd(_gradients_of_operator, setup_context=_save_of_operator)
