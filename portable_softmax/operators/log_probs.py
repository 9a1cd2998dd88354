"""token_log_probs: the rule which calls are launched, autograd, and the operator of compilers."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from portable_softmax.errors import DtypeError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import launch, log_probs_launch, reference
from portable_softmax.operators.arguments import (
    DTYPES,
    SpecialCallError,
    check_factor,
    check_reverse_mode,
    check_softcap,
    check_tensor,
    facts,
    requires_grad,
    tensors_and_numbers,
    transforms_are_active,
    wrap_dim,
)

NAME = "token_log_probs"
Results = tuple[Tensor, Tensor | None, Tensor | None]  # log-probabilities; logsumexp and entropies if they are requested


class Call(NamedTuple):
    """What a call became.

    Args:
        run: launches calls like it; None for one that the reference computes.
        options: (dim, counted from 0; ignore_index; entropy; lse), the last arguments of `reference.log_probs`.
    """

    run: Callable[..., Any] | None
    options: tuple[Any, ...]


def compute(inputs: Any, options: tuple[Any, ...], grad_inplace: bool) -> Results:
    """Computes log-probabilities by the rule: plain calls are launched, compilers get the operator, else the reference.

    Args:
        inputs: (x, ids, scale, temperature, softcap), as the caller passed them.
        options: (dim, ignore_index, entropy, lse), likewise.
        grad_inplace: the gradient is written over x.
    """
    x, ids, scale, temperature, softcap = inputs
    if softcap is not None:
        check_softcap(NAME, softcap)
    if is_compiling():
        options = read(inputs, *options)
        if x.dtype not in DTYPES or transforms_are_active():
            return reference.log_probs(*inputs, *options)
        tensors, numbers = tensors_and_numbers(scale, temperature)
        picked, _, lse, entropies = operator(x, ids, *tensors, *numbers, softcap, *options)
        return picked, lse if options[3] else None, entropies if options[2] else None
    try:
        check_reverse_mode()
        call = call_of(inputs, options)
    except SpecialCallError:
        return reference.log_probs(*inputs, *read(inputs, *options))
    recorded = requires_grad(inputs)
    if call.run is None or (recorded and transforms_are_active()):
        return reference.log_probs(*inputs, *call.options)
    if recorded:
        return _recorded(call, grad_inplace, *inputs)
    picked, _, lse, entropies = call.run(inputs)
    return picked, lse, entropies


def call_of(inputs: Any, options: tuple[Any, ...]) -> Call:
    """Returns what a call of plain tensors became; all arguments are read once for all calls with the same key.

    Raises:
        SpecialCallError: a tensor is not plain.
    """
    x, ids, scale, temperature, softcap = inputs
    key = (
        NAME, options, type(options[0]), is_batch_invariant(), facts(x), facts(ids), facts(scale), facts(temperature),
        softcap if softcap is None or isinstance(scale, Tensor) else (softcap, scale),
    )  # fmt: skip
    call: Call | None = launch.calls.get(key)
    if call is None:
        checked = read(inputs, *options)
        call = launch.keep(key, Call(log_probs_launch.log_probs(inputs, checked, is_batch_invariant()), checked))
    return call


def read(inputs: Any, dim: Any, ignore_index: Any, entropy: Any, lse: Any) -> tuple[Any, ...]:
    """Returns (dim, ignore_index, entropy, lse) of a call, all of whose arguments are right.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError, LayoutError, DtypeError: the cases of api.log_probs.token_log_probs.
    """
    x, ids, scale, temperature, _ = inputs
    check_tensor(NAME, "logits", x)
    check_tensor(NAME, "ids", ids)
    if ids.dtype is torch.bool or ids.is_floating_point() or ids.is_complex():
        raise DtypeError(f"{NAME}(): argument 'ids' must hold integers, not {ids.dtype}")
    if not x.dtype.is_floating_point:
        raise DtypeError(f"{NAME}() of {x.dtype}; convert logits to a floating-point dtype")
    if x.device != ids.device:
        raise RuntimeError(
            f"{NAME}(): Expected all tensors to be on the same device, but logits are on {x.device}, ids on {ids.device}"
        )
    for argument, value in (("entropy", entropy), ("return_lse", lse)):
        if not isinstance(value, bool):
            raise TypeError(f"{NAME}(): argument '{argument}' must be bool, not {type(value).__name__}")
    if not isinstance(ignore_index, (int, torch.SymInt)) or isinstance(ignore_index, bool):
        raise TypeError(f"{NAME}(): argument 'ignore_index' must be int, not {type(ignore_index).__name__}")
    dim = wrap_dim(NAME, dim, x.dim())
    rows = (*x.shape[:dim], *x.shape[dim + 1 :])
    if not x.dim() or tuple(ids.shape[: len(rows)]) != rows or ids.dim() > x.dim():
        raise ValueError(
            f"{NAME}(): ids must have the shape {rows} of logits without dim, or one more dimension, not {tuple(ids.shape)}"
        )
    check_factor(NAME, "scale", x, scale, dim)
    check_factor(NAME, "temperature", x, temperature, dim)
    return dim, ignore_index, entropy, lse


class Recorded(torch.autograd.Function):
    """A launch that autograd records; what needs more than one launch for the gradient of logits is the reference's."""

    @staticmethod
    def forward(ctx: Any, call: Call, grad_inplace: bool, *inputs: Any) -> Results:  # noqa: D102
        picked, statistics, lse, entropies = call.run(inputs)  # type: ignore[misc]
        save(ctx, call.options, launched_gradient, inputs, statistics)
        ctx.grad_inplace = grad_inplace
        return picked, lse, entropies

    @staticmethod
    def backward(ctx: Any, *dresults: Tensor | None) -> tuple[Any, ...]:  # noqa: D102
        return None, None, *gradients(ctx, dresults, ctx.needs_input_grad[2:6]), None


_recorded = super(torch.autograd.Function, Recorded).apply  # as in softmax.py


def save(ctx: Any, options: Any, gradient: Callable[..., Any], inputs: Any, statistics: Tensor) -> None:
    """Saves what gradients need; gradients of results that are not used are None."""
    x, ids, scale, temperature, softcap = inputs
    ctx.set_materialize_grads(False)
    tensors, numbers = tensors_and_numbers(scale, temperature)
    ctx.saved = options, gradient, *numbers, softcap
    ctx.save_for_backward(x, ids, statistics, *tensors)


def gradients(ctx: Any, dresults: tuple[Tensor | None, ...], needs: Any) -> list[Tensor | None]:
    """Computes the gradients of (x, ids, scale, temperature): all of them, ahead of x being written over."""
    x, ids, statistics, scale_rows, temperature_rows = ctx.saved_tensors
    options, compute_gradient, scale, temperature, softcap = ctx.saved
    dpicked, dlse, dentropy = dresults
    if dpicked is None and dlse is None and dentropy is None:
        return [None] * 4
    scale, temperature = (
        scale if scale_rows is None else scale_rows,
        temperature if temperature_rows is None else temperature_rows,
    )
    twice = torch.is_grad_enabled()
    in_place = getattr(ctx, "grad_inplace", False) and not twice
    inputs = x, ids, scale, temperature, softcap
    # The reference knows that the logsumexp of a greedy row has no gradient.
    if not (twice or needs[2] or needs[3] or (dlse is not None and temperature is not None)):
        dx = compute_gradient(inputs, statistics, dresults, options, in_place)
        if dx is not None:
            return [dx, None, None, None]
    found = reference.differentiate(reference.log_probs, inputs[:4], needs, (softcap, *options), dresults, twice)
    if in_place and found[0] is not None and type(found[0]) is Tensor and type(x) is Tensor:
        found[0] = x.detach().copy_(found[0])
    return found


def launched_gradient(inputs: Any, statistics: Tensor, dresults: Any, options: Any, in_place: bool = False) -> Tensor | None:
    """Computes the gradient of x by one launch; returns None for calls that are not plain."""
    if is_compiling():  # compiled autograd
        return _gradient_by_operator(inputs, statistics, dresults, options)
    dpicked, dlse, dentropy = dresults
    dpicked = statistics.new_zeros(inputs[1].shape) if dpicked is None else dpicked
    x, ids, scale, temperature, softcap = inputs
    try:
        check_reverse_mode()
        key = (
            "gradient of log-probs", options[:2], in_place, facts(x), facts(ids), facts(statistics), facts(dpicked),
            dlse if dlse is None else facts(dlse), dentropy if dentropy is None else facts(dentropy), facts(scale),
            facts(temperature), softcap if softcap is None or isinstance(scale, Tensor) else (softcap, scale),
        )  # fmt: skip
    except SpecialCallError:
        return None
    run = launch.calls.get(key, launch)
    if run is launch:  # None is kept too
        _check_gradient(inputs, statistics, dpicked, dlse, dentropy, options[0])
        has = {"lse": dlse is not None, "entropy": dentropy is not None}
        run = launch.keep(key, log_probs_launch.log_probs_gradient(inputs, options[:2], in_place, **has))
    if run is None:
        return None
    if in_place:
        increment_version(x)
    dx: Tensor = run(inputs, statistics, dpicked, dlse, dentropy)
    return dx


def _check_gradient(inputs: Any, statistics: Tensor, dpicked: Tensor, dlse: Any, dentropy: Any, dim: int) -> None:
    """Raises RuntimeError unless tensors that kernels read without strides have the shapes of a forward's results."""
    x, ids = inputs[:2]
    rows = torch.Size([*x.shape[:dim], *x.shape[dim + 1 :]])
    same = dpicked.shape == ids.shape and all(t is None or t.shape == rows for t in (dlse, dentropy))
    wide = all(t is None or t.dtype is torch.float32 for t in (statistics, dpicked, dlse, dentropy))
    if not (same and wide and statistics.shape == (2 if dentropy is not None or len(statistics) == 2 else 1, *rows)):
        raise RuntimeError(
            f"{NAME}_backward: tensors do not have the shapes and types of the results for logits of {tuple(x.shape)}"
        )


# The operator of compilers, by the same rule and with the same gradients. Empty results stand for None, as none is optional.


@torch.library.custom_op("portable_softmax::token_log_probs", mutates_args=())
def operator(
    x: Tensor, ids: Tensor, scale: Tensor | None, temperature: Tensor | None, scale_number: float | None,
    temperature_number: float | None, softcap: float | None, dim: int, ignore_index: int, entropy: bool, lse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Computes (log-probabilities of ids, statistics of rows, logsumexp, entropies)."""
    scale = scale_number if scale is None else scale  # type: ignore[assignment]
    temperature = temperature_number if temperature is None else temperature  # type: ignore[assignment]
    inputs, options = (x, ids, scale, temperature, softcap), (dim, ignore_index, entropy, lse)
    try:
        check_reverse_mode()
        call = call_of(inputs, options)
    except SpecialCallError:
        call = Call(None, read(inputs, *options))
    if call.run is not None:
        results = call.run(inputs)
    else:
        picked, total, entropies = reference.log_probs(*inputs, *call.options)
        statistics = picked.new_zeros((2 if entropy else 1, *x.shape[:dim], *x.shape[dim + 1 :]))
        results = picked, statistics, total, entropies
    return tuple(x.new_empty(0, dtype=results[0].dtype) if t is None else t for t in results)  # type: ignore[return-value]


@torch.library.custom_op("portable_softmax::token_log_probs_backward", mutates_args=())
def backward_operator(
    x: Tensor, ids: Tensor, statistics: Tensor, dpicked: Tensor | None, dlse: Tensor | None, dentropy: Tensor | None,
    scale: Tensor | None, temperature: Tensor | None, scale_number: float | None, temperature_number: float | None,
    softcap: float | None, dim: int, ignore_index: int, entropy: bool, lse: bool,
) -> Tensor:  # fmt: skip
    """Computes the gradient of x."""
    scale = scale_number if scale is None else scale  # type: ignore[assignment]
    temperature = temperature_number if temperature is None else temperature  # type: ignore[assignment]
    inputs, options = (x, ids, scale, temperature, softcap), (dim, ignore_index, entropy, lse)
    dx = launched_gradient(inputs, statistics, (dpicked, dlse, dentropy), options)
    if dx is None:
        needs, rest = (True, False, False, False), (softcap, *options)
        dx = reference.differentiate(reference.log_probs, inputs[:4], needs, rest, (dpicked, dlse, dentropy), False)[0]
    return torch.zeros_like(x) if dx is None else dx.contiguous()


def _gradient_by_operator(inputs: Any, statistics: Tensor, dresults: Any, options: Any, in_place: bool = False) -> Tensor:
    x, ids, scale, temperature, softcap = inputs
    tensors, numbers = tensors_and_numbers(scale, temperature)
    dresults = dresults[0], dresults[1] if options[3] else None, dresults[2] if options[2] else None
    return backward_operator(x, ids, statistics, *dresults, *tensors, *numbers, softcap, *options)


def _save_of_operator(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, ids, scale, temperature, scale_number, temperature_number, softcap, *options = inputs
    scale, temperature = scale_number if scale is None else scale, temperature_number if temperature is None else temperature
    save(ctx, tuple(options), _gradient_by_operator, (x, ids, scale, temperature, softcap), output[1])


def _gradients_of_operator(ctx: Any, dpicked: Tensor | None, dstatistics: None, *dmore: Tensor | None) -> tuple[Any, ...]:
    options = ctx.saved[0]
    dlse, dentropy = (dt if wanted else None for dt, wanted in zip(dmore, (options[3], options[2]), strict=True))
    return *gradients(ctx, (dpicked, dlse, dentropy), ctx.needs_input_grad[:4]), *(None,) * 7


@operator.register_fake
def _(x: Tensor, ids: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    dim, _, entropy, lse = rest[-4:]
    rows = (*x.shape[:dim], *x.shape[dim + 1 :])
    shapes = ids.shape, (2 if entropy else 1, *rows), rows if lse else (0,), rows if entropy else (0,)
    dtype = torch.promote_types(x.dtype, torch.float32)
    return tuple(torch.empty(shape, dtype=dtype, device=x.device) for shape in shapes)


backward_operator.register_fake(lambda x, *rest: torch.empty(x.shape, dtype=x.dtype, device=x.device))
operator.register_autograd(_gradients_of_operator, setup_context=_save_of_operator)
