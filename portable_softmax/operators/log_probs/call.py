"""One call of token_log_probs: past torch's dispatcher where only autograd needs to see it, or through it."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import increment_version
from torch.compiler import is_dynamo_compiling

from portable_softmax.errors import DtypeError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.arguments import check_layout, int_of, wrap_dim
from portable_softmax.operators.launching import by_torch
from portable_softmax.operators.log_probs import by_torch as torchs
from portable_softmax.operators.log_probs.asked import Asked, AskedGradient
from portable_softmax.operators.log_probs.launching import Forward, Gradient, Results, Run, backward, forward
from portable_softmax.operators.log_probs.library import backward_operator, check, operator
from portable_softmax.operators.memory import find, nobody_listens, remember, repeat_like, repeat_of, repeated_pair
from portable_softmax.operators.options import check_local, factor_of
from portable_softmax.operators.out import check_differentiable
from portable_softmax.operators.overlap import are_disjoint

Found = torch.Tensor | tuple[torch.Tensor, ...]
NAME = "token_log_probs"


class Given(NamedTuple):
    """Everything that a caller gives beside logits, ids and out."""

    dim: Any = -1
    scale: Any = None
    temperature: Any = None
    ignore_index: Any = -100
    entropy: Any = False
    grad_inplace: Any = False


def call(
    x: Any,
    ids: Any,
    dim: Any,
    scale: Any,
    temperature: Any,
    ignore_index: Any,
    entropy: Any,
    grad_inplace: Any,
    out: Any,
) -> Found:
    """Computes log-probabilities, or a tuple of them and entropies.

    Arguments and errors are those of api.log_probs.token_log_probs.
    """
    key = None
    if (
        out is None and scale is None and (temperature is None or type(temperature) in (float, torch.Tensor))
        and not is_dynamo_compiling() and type(x) is torch.Tensor and type(dim) is int and type(ignore_index) is int
        and type(entropy) is bool and type(grad_inplace) is bool
    ):  # fmt: skip
        by_row = type(temperature) is torch.Tensor
        by = "rows" if by_row else temperature
        key = NAME, dim, by, ignore_index, entropy, grad_inplace, is_batch_invariant(), x.shape
        if not by_row:
            found: Any = repeated_pair(key, x, ids)
            if found is not None:
                return found
        elif isinstance(ids, torch.Tensor) and (repeat := repeat_of(find(key), [x, ids, temperature])):
            return repeat(x, ids, temperature)
    return _anew(x, ids, Given(dim, scale, temperature, ignore_index, entropy, grad_inplace), out, key)


def _anew(x: Any, ids: Any, given: Given, out: Any, key: tuple[Any, ...] | None) -> Found:
    """Does the same, and remembers a call that has a key."""
    asked = read(x, ids, given)
    if out is not None:
        return _into(out, asked)
    if not all(nobody_listens(each, autocast=False) for each in (asked.x, asked.ids, *asked.numbers)):
        return named(asked, *operator(*asked))
    invariant = is_batch_invariant()
    if by_torch(asked.x):
        run: Run = partial(_by_torch, _without_tensors(asked), invariant)
        factors = asked.numbers
    else:
        bound = Forward(asked, invariant)
        run, factors = bound.quickly, bound.factors
    rest = _without_tensors(asked)._replace(factor=None if factors else asked.factor)
    recorded = asked.x.requires_grad or any(each.requires_grad for each in factors)
    function: Any = _unrecorded(run, rest)
    if recorded:
        kind = _Kind(run, rest, given.grad_inplace, {})
        # Function.apply asks for torch.func's levels, and there are none.
        function = partial(super(torch.autograd.Function, _Recorded).apply, kind)
    given_tensors = [each for each in (x, ids, given.temperature) if isinstance(each, torch.Tensor)]
    if key and _are_same([asked.x, asked.ids, *factors], given_tensors):
        remember(key, repeat_like(given_tensors, function))
    return function(asked.x, asked.ids, *factors)


def read(x: Any, ids: Any, given: Given) -> Asked:
    """Reads the arguments of a call, or refuses them."""
    for name, each in (("logits", x), ("ids", ids)):
        if not isinstance(each, torch.Tensor):
            raise TypeError(f"{NAME}(): argument '{name}' must be Tensor, not {type(each).__name__}")
    check_local(NAME, logits=x, ids=ids, scale=given.scale, temperature=given.temperature)
    check_layout(NAME, x)
    if ids.dtype is torch.bool or ids.is_floating_point() or ids.is_complex():
        raise DtypeError(f"{NAME}(): argument 'ids' must hold integers, not {ids.dtype}")
    for name in ("entropy", "grad_inplace"):
        if not isinstance(getattr(given, name), bool):
            raise TypeError(f"{NAME}(): argument '{name}' must be bool, not {type(getattr(given, name)).__name__}")
    if not isinstance(given.ignore_index, int | torch.SymInt) or isinstance(given.ignore_index, bool):
        raise TypeError(f"{NAME}(): argument 'ignore_index' must be int, not {type(given.ignore_index).__name__}")
    dim = wrap_dim(int_of(NAME, given.dim), x.dim())
    ignored: Any = given.ignore_index
    asked = Asked(x, ids.to(torch.int64), dim, ignore_index=ignored, entropy=given.entropy)
    check(asked)
    x, by, divides = factor_of(NAME, x, dim, asked.compute, given.scale, given.temperature)
    rows = by if isinstance(by, torch.Tensor) else None
    return asked._replace(
        x=x, ids=asked.ids.contiguous(), factors=rows, factor=None if rows is not None else by, divides=divides
    )


def named(asked: Asked, picked: torch.Tensor, statistics: torch.Tensor) -> Found:
    """Returns what a caller gets: entropies are the last numbers of rows."""
    return (picked, statistics[2]) if asked.entropy else picked


def _by_torch(rest: Asked, batch_invariant: bool, x: torch.Tensor, ids: torch.Tensor, *factors: torch.Tensor) -> Results:
    return forward(rest._replace(x=x, ids=ids, factors=factors[0] if factors else None), batch_invariant)


def _are_same(taken: list[torch.Tensor], given: list[torch.Tensor]) -> bool:
    """Tells whether a launch takes the memory of what was given, as it lies, and no gradient of factors is recorded."""
    return (
        len(taken) == len(given)
        and all(
            one.dtype == other.dtype and one.data_ptr() == other.data_ptr() for one, other in zip(taken, given, strict=True)
        )
        and taken[0].numel() > 0
        and not by_torch(taken[0])
        and not any(each.requires_grad for each in taken[2:])
    )


def _without_tensors(asked: Asked) -> Asked:
    return asked._replace(x=None, ids=None, factors=None)  # type: ignore[arg-type]


def _unrecorded(run: Run, rest: Asked) -> Callable[..., Found]:
    """Returns `run` with the results that a caller gets."""
    if rest.entropy:
        return lambda *tensors: named(rest, *run(*tensors))
    return lambda *tensors: run(*tensors)[0]


class _Kind(NamedTuple):
    """A call that autograd records, and its gradients' launches: without an entropy's gradient, and with one."""

    run: Run
    rest: Asked
    in_place: bool
    gradients: dict[bool, Gradient]


class _Recorded(torch.autograd.Function):
    """A call, as autograd records it; its gradient lies in place of logits if the caller allows it."""

    @staticmethod
    def forward(ctx: Any, kind: _Kind, x: torch.Tensor, ids: torch.Tensor, *factors: torch.Tensor) -> Found:
        picked, statistics = kind.run(x, ids, *factors)
        ctx.save_for_backward(x, ids, statistics, *factors)
        ctx.kind = kind
        if not kind.rest.entropy:
            return picked
        ctx.set_materialize_grads(False)
        return named(kind.rest, picked, statistics)

    @staticmethod
    def backward(ctx: Any, dpicked: torch.Tensor | None, *more: torch.Tensor | None) -> tuple[Any, ...]:
        x, ids, statistics, *factors = ctx.saved_tensors
        _, rest, in_place, gradients = ctx.kind
        dpicked = statistics.new_zeros(ids.shape) if dpicked is None else dpicked.contiguous()
        dentropy = more[0].contiguous() if rest.entropy and more[0] is not None else None
        traced = torch.is_grad_enabled() or is_dynamo_compiling()  # for a second derivative, or by compiled autograd
        if not traced and not factors and (gradient := gradients.get(dentropy is not None)):
            numbers = () if dentropy is None else (dentropy,)
            return None, gradient(x, (), statistics, ids, dpicked, *numbers), None
        by = factors[0] if factors else None
        given = AskedGradient(x, ids, statistics, dpicked, dentropy, rest.dim, by, *rest[4:7])
        _, needs_x, _, *need = ctx.needs_input_grad
        dx = None
        if needs_x:
            dx = backward_operator(*given) if traced else backward(given, in_place, gradients)
        return None, dx, None, *(torchs.of_factors(given) if each else None for each in need)


def check_out(out: Any, asked: Asked) -> None:
    """Raises an error for an `out` that log-probabilities cannot be written to."""
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"{NAME}(): argument 'out' must be Tensor, not {type(out).__name__}")
    check_layout(NAME, out)
    wanted = asked.compute, asked.ids.shape, asked.x.device
    if (out.dtype, out.shape, out.device) != wanted:
        found = f"{out.dtype}, {tuple(out.shape)}, on {out.device}"
        raise RuntimeError(f"{NAME}(): out must be {wanted[0]}, {tuple(wanted[1])}, on {wanted[2]}, and is {found}")
    check_differentiable(NAME, asked.x, out, *asked.numbers)


def _into(out: Any, asked: Asked) -> Found:
    """Writes log-probabilities to `out`, or refuses it."""
    check_out(out, asked)
    read = asked.x, asked.ids, *asked.numbers
    if (
        all(nobody_listens(each, autocast=False) for each in (out, *read))
        and not by_torch(asked.x)
        and out.is_contiguous()
        and all(are_disjoint(each, out) for each in read if each.numel() and out.numel())
    ):
        run = Forward(asked, is_batch_invariant())
        if run.of_nothing is None:
            increment_version(out)
            return named(asked, *run.into(out, asked.x, asked.ids, *run.factors))
    picked, statistics = operator(*asked)
    return named(asked, out.copy_(picked), statistics)
