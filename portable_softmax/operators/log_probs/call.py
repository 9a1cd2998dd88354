"""One call of token_log_probs: past torch's dispatcher where only autograd needs to see it, or through it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import increment_version
from torch.compiler import is_dynamo_compiling

from portable_softmax.errors import DtypeError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.arguments import check_layout, int_of, wrap_dim
from portable_softmax.operators.bypass import PLAIN
from portable_softmax.operators.launching import by_torch
from portable_softmax.operators.log_probs import by_torch as torchs
from portable_softmax.operators.log_probs.asked import Asked, AskedGradient
from portable_softmax.operators.log_probs.launching import Results, Run, backward, bound_forward, forward
from portable_softmax.operators.log_probs.library import backward_operator, check, contiguous, operator
from portable_softmax.operators.memory import find, nobody_listens, remember, repeat_like, repeat_of
from portable_softmax.operators.options import factor_of
from portable_softmax.operators.out import check_differentiable
from portable_softmax.operators.overlap import are_disjoint, overlap_of

NAME = "token_log_probs"


class Given(NamedTuple):
    """Everything that a caller gives beside logits, ids and out."""

    dim: Any = -1
    scale: Any = None
    temperature: Any = None
    ignore_index: Any = -100
    entropy: Any = False
    rank: Any = False
    grad_inplace: Any = False


def call(x: Any, ids: Any, given: Given, out: Any = None) -> Results:
    """Computes (log-probabilities, entropies, ranks), of which the last two mean something only if they are asked for.

    Arguments and errors are those of api.log_probs.token_log_probs.
    """
    key, tensors = (None, []) if out is not None or is_dynamo_compiling() else _kind_of(x, ids, given)
    if key and (repeat := repeat_of(find(key), tensors)):
        results: Any = repeat(*tensors)
        return results
    asked = read(x, ids, given)
    if out is not None:
        return _into(out, asked)
    if not all(nobody_listens(each, autocast=False) for each in (asked.x, asked.ids, *asked.numbers)):
        return _named(operator(*asked), asked.entropy)
    run, taken = _direct(asked, given.grad_inplace)
    if key and _is_as_given(asked, taken, tensors):
        remember(key, repeat_like(tensors, run))
    return run(asked.x, asked.ids, *taken)


def _kind_of(x: Any, ids: Any, given: Given) -> tuple[tuple[Any, ...] | None, list[torch.Tensor]]:
    """Returns all that a call depends on but its tensors, and these; None for one that is not remembered."""
    tensors = [each for each in (x, ids, given.scale, given.temperature) if isinstance(each, torch.Tensor)]
    facts: list[Any] = [NAME, is_batch_invariant(), getattr(x, "shape", None)]
    for each in given:
        kind = type(each)
        facts.append(kind)
        if kind is not torch.Tensor:
            facts.append(each)
            if each is not None and kind not in PLAIN:
                return None, tensors
    plain = all(type(each) is torch.Tensor and each.layout is torch.strided and not each.is_nested for each in tensors)
    return (tuple(facts) if plain and isinstance(ids, torch.Tensor) else None), tensors


def read(x: Any, ids: Any, given: Given) -> Asked:
    """Reads the arguments of a call, or refuses them."""
    for name, each in (("logits", x), ("ids", ids)):
        if not isinstance(each, torch.Tensor):
            raise TypeError(f"{NAME}(): argument '{name}' must be Tensor, not {type(each).__name__}")
        if hasattr(each, "device_mesh"):
            raise TypeError(f"{NAME}(): argument '{name}' is a DTensor; give {name}.to_local() of whole rows")
    check_layout(NAME, x)
    if ids.dtype is torch.bool or ids.is_floating_point() or ids.is_complex():
        raise DtypeError(f"{NAME}(): argument 'ids' must hold integers, not {ids.dtype}")
    for name in ("entropy", "rank", "grad_inplace"):
        if not isinstance(getattr(given, name), bool):
            raise TypeError(f"{NAME}(): argument '{name}' must be bool, not {type(getattr(given, name)).__name__}")
    if not isinstance(given.ignore_index, int | torch.SymInt) or isinstance(given.ignore_index, bool):
        raise TypeError(f"{NAME}(): argument 'ignore_index' must be int, not {type(given.ignore_index).__name__}")
    dim = wrap_dim(int_of(NAME, given.dim), x.dim())
    ignored: Any = given.ignore_index
    asked = Asked(x, ids.to(torch.int64), dim, ignore_index=ignored, entropy=given.entropy, rank=given.rank)
    check(asked)
    x, by, divides = factor_of(NAME, x, dim, asked.compute, given.scale, given.temperature)
    rows = by if isinstance(by, torch.Tensor) else None
    return asked._replace(
        x=x, ids=asked.ids.contiguous(), factors=rows, factor=None if rows is not None else by, divides=divides
    )


def _named(results: Results, entropy: bool) -> Results:
    """Returns entropies in place of all numbers of rows."""
    picked, statistics, ranks = results
    return picked, statistics[2] if entropy else statistics, ranks


def _direct(asked: Asked, grad_inplace: bool) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    """Returns run(x, ids, *factors), which computes a call like this one as autograd records it, and these factors."""
    run: Run
    factors: tuple[torch.Tensor, ...]
    if by_torch(asked.x):
        factors = asked.numbers
        rest, invariant = _without_tensors(asked), is_batch_invariant()

        def run(x: torch.Tensor, ids: torch.Tensor, *factors: torch.Tensor) -> Results:
            return forward(rest._replace(x=x, ids=ids, factors=factors[0] if factors else None), invariant)
    else:
        run, factors = bound_forward(asked, is_batch_invariant())
    if asked.x.requires_grad or any(each.requires_grad for each in factors):
        rest = _without_tensors(asked)
        if factors:
            rest = rest._replace(factor=None)
        # Function.apply asks for torch.func's levels, and there are none.
        apply = super(torch.autograd.Function, _Recorded).apply
        return lambda x, ids, *factors: apply(run, rest, grad_inplace, x, ids, *factors), factors
    entropy = asked.entropy
    return lambda x, ids, *factors: _named(run(x, ids, *factors), entropy), factors


def _is_as_given(asked: Asked, factors: tuple[torch.Tensor, ...], tensors: list[torch.Tensor]) -> bool:
    """Tells whether a call takes the memory of what was given, as it lies, and records no gradient of factors."""
    taken = [asked.x, asked.ids, *factors]
    alike = len(taken) == len(tensors) and all(
        one.dtype == other.dtype and one.data_ptr() == other.data_ptr() for one, other in zip(taken, tensors, strict=True)
    )
    return alike and not any(each.requires_grad for each in factors) and not by_torch(asked.x) and asked.x.numel() > 0


def _without_tensors(asked: Asked) -> Asked:
    return asked._replace(x=None, ids=None, factors=None)  # type: ignore[arg-type]


class _Recorded(torch.autograd.Function):
    """A call, as autograd records it; with its gradient in place of logits where the caller allows it."""

    @staticmethod
    def forward(
        ctx: Any, run: Run, rest: Asked, grad_inplace: bool, x: torch.Tensor, ids: torch.Tensor, *factors: torch.Tensor
    ) -> Results:
        picked, statistics, ranks = run(x, ids, *factors)
        ctx.mark_non_differentiable(ranks)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, ids, statistics, *factors)
        ctx.rest, ctx.grad_inplace = rest, grad_inplace
        if rest.entropy:
            return picked, statistics[2], ranks
        ctx.mark_non_differentiable(numbers := statistics.new_empty(0))
        return picked, numbers, ranks

    @staticmethod
    def backward(ctx: Any, dpicked: torch.Tensor | None, dentropy: torch.Tensor | None, _: Any) -> tuple[Any, ...]:
        x, ids, statistics, *factors = ctx.saved_tensors
        dpicked = statistics.new_zeros(ids.shape) if dpicked is None else dpicked
        given = AskedGradient(
            x, ids, statistics, dpicked, dentropy, ctx.rest.dim, factors[0] if factors else None, *ctx.rest[4:7]
        )
        needs, dx = ctx.needs_input_grad, None
        dfactors = [torchs.of_factors(contiguous(given)) for _ in factors if needs[5]]
        if needs[3]:
            dx = backward_operator(*given) if torch.is_grad_enabled() else _gradient(contiguous(given), ctx.grad_inplace)
        return None, None, None, dx, None, *(dfactors or (None,) * len(factors))


def _gradient(given: AskedGradient, in_place: bool) -> torch.Tensor:
    """Computes the gradient of logits, in their memory or elsewhere."""
    if not in_place or not given.x.numel():
        return backward(given)
    overlap_of(given.x, given.x)  # raises where elements share memory
    dx = backward(given, given.x.detach())
    increment_version(given.x)
    return dx


def _into(out: Any, asked: Asked) -> Results:
    """Writes log-probabilities to `out`, or refuses it."""
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"{NAME}(): argument 'out' must be Tensor, not {type(out).__name__}")
    check_layout(NAME, out)
    wanted = asked.compute, asked.ids.shape, asked.x.device
    if (out.dtype, out.shape, out.device) != wanted:
        found = f"{out.dtype}, {tuple(out.shape)}, on {out.device}"
        raise RuntimeError(f"{NAME}(): out must be {wanted[0]}, {tuple(wanted[1])}, on {wanted[2]}, and is {found}")
    check_differentiable(NAME, asked.x, out, *asked.numbers)
    read = asked.x, asked.ids, *asked.numbers
    if (
        all(nobody_listens(each, autocast=False) for each in (out, *read))
        and not by_torch(asked.x)
        and out.is_contiguous()
        and all(are_disjoint(each, out) for each in read if each.numel() and out.numel())
    ):
        run, factors = bound_forward(asked, is_batch_invariant())
        results = _named(run(asked.x, asked.ids, *factors, picked=out), asked.entropy)
        increment_version(out)
        return results
    picked, entropies, ranks = _named(operator(*asked), asked.entropy)
    return out.copy_(picked), entropies, ranks
