"""The torch operators portable_softmax::token_log_probs and ::token_log_probs_backward, with all that a dispatcher asks.

Their results do not depend on autocast: log-probabilities are float32, or float64 of float64.
"""

from typing import Any, cast

import torch

from portable_softmax.errors import DtypeError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.arguments import KERNEL_DTYPES, check_layout
from portable_softmax.operators.autograd import at_autograd_key
from portable_softmax.operators.library import batch_first, rows_of_batch
from portable_softmax.operators.log_probs import by_torch, launching
from portable_softmax.operators.log_probs.asked import BACKWARD_SCHEMA, SCHEMA, Asked, AskedGradient

Results = tuple[torch.Tensor, torch.Tensor]
_library = torch.library.Library("portable_softmax", "FRAGMENT")
NAME, BACKWARD = "token_log_probs", "token_log_probs_backward"
for _name, _schema in ((NAME, SCHEMA), (BACKWARD, BACKWARD_SCHEMA)):
    _library.define(f"{_name}{_schema}", tags=torch.Tag.pt2_compliant_tag)
operator = torch.ops.portable_softmax.token_log_probs.default
backward_operator = torch.ops.portable_softmax.token_log_probs_backward.default


def check(asked: Asked) -> None:
    """Raises an error for what no kernel takes: the cases of api.log_probs.token_log_probs but those of ids' values."""
    x, ids = asked.x, asked.ids
    check_layout("token_log_probs", x)
    if x.dtype not in KERNEL_DTYPES:
        raise DtypeError(
            f"token_log_probs of {x.dtype} was asked for; give logits of a floating-point dtype of 16, 32 or 64 bits"
        )
    if not x.dim():
        raise ValueError(
            "token_log_probs(): logits without dimensions were given; give one row of them at least, of shape (1,)"
        )
    if ids.dtype != torch.int64:
        raise DtypeError(f"token_log_probs(): argument 'ids' must hold integers, not {ids.dtype}")
    if [*ids.shape][: x.dim() - 1] != asked.rows or ids.dim() > x.dim():
        rows = tuple(asked.rows)
        raise ValueError(
            f"token_log_probs(): ids of shape {tuple(ids.shape)} were given for logits of shape {tuple(x.shape)} and dim "
            f"{asked.dim}; give them the shape {rows}, or {(*rows, 'K')} for K tokens of each row".replace("'", "")
        )
    if ids.device != x.device:
        raise RuntimeError(
            f"token_log_probs(): Expected all tensors to be on the same device, but logits are on {x.device} and ids on "
            f"{ids.device}; use ids.to(logits.device)"
        )


def _forward(*arguments: Any) -> Results:
    asked = Asked(*arguments)
    check(asked)
    return launching.forward(asked._replace(ids=asked.ids.contiguous()), is_batch_invariant())


def _forward_fake(*arguments: Any) -> Results:
    asked = Asked(*arguments)
    check(asked)
    new = asked.x.new_empty
    return new(asked.ids.shape, dtype=asked.compute), new(asked.statistics_shape, dtype=asked.compute)


def _forward_batched(info: Any, in_dims: Any, *arguments: Any) -> Any:
    asked, at = Asked(*arguments), cast(Any, Asked(*in_dims))
    x = batch_first(asked.x, at.x, info.batch_size)
    whole = asked._replace(
        x=x, ids=batch_first(asked.ids, at.ids, info.batch_size), dim=_dim_of(asked.dim, x),
        factors=rows_of_batch(asked.factors, at.factors, info.batch_size),
    )  # fmt: skip
    return operator(*whole), (0, 1)


def _backward(*arguments: Any) -> torch.Tensor:
    given = AskedGradient(*arguments)
    return launching.backward(contiguous(given))


def contiguous(given: AskedGradient) -> AskedGradient:
    """Returns what is given with its numbers as kernels take them."""
    dentropy = None if given.dentropy is None else given.dentropy.contiguous()
    ids, dpicked, statistics = given.ids.contiguous(), given.dpicked.contiguous(), given.statistics.contiguous()
    return given._replace(ids=ids, dpicked=dpicked, dentropy=dentropy, statistics=statistics)


def _backward_fake(*arguments: Any) -> torch.Tensor:
    given = AskedGradient(*arguments)
    return torch.empty_like(given.x, memory_format=torch.contiguous_format)


def _backward_batched(info: Any, in_dims: Any, *arguments: Any) -> Any:
    given, at = AskedGradient(*arguments), cast(Any, AskedGradient(*in_dims))
    size = info.batch_size
    x = batch_first(given.x, at.x, size)
    whole = given._replace(
        x=x, ids=batch_first(given.ids, at.ids, size), dim=_dim_of(given.dim, x),
        statistics=batch_first(given.statistics, at.statistics, size).movedim(0, 1).contiguous(),
        dpicked=batch_first(given.dpicked, at.dpicked, size),
        dentropy=rows_of_batch(given.dentropy, at.dentropy, size), factors=rows_of_batch(given.factors, at.factors, size),
    )  # fmt: skip
    return backward_operator(*whole), 0


def _dim_of(dim: int, x: torch.Tensor) -> int:
    """Returns a dim of a part of vmap as one of x with its batch ahead."""
    return dim if dim < 0 else dim + 1


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, below: Any, _: str, batch_invariant: bool, *arguments: Any) -> Results:
        asked = Asked(*arguments)
        results: Results = below(*arguments, batch_invariant=batch_invariant)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(asked.x, asked.ids, results[1], asked.factors)
        ctx.asked, ctx.n_arguments = asked._replace(x=None, ids=None, factors=None), len(arguments)  # type: ignore[arg-type]
        return results

    @staticmethod
    def backward(ctx: Any, dpicked: torch.Tensor | None, dstatistics: torch.Tensor | None) -> tuple[Any, ...]:
        x, ids, statistics, factors = ctx.saved_tensors
        asked, needs = ctx.asked, Asked(*ctx.needs_input_grad[3:])
        dpicked = statistics.new_zeros(ids.shape) if dpicked is None else dpicked
        dentropy = None if dstatistics is None or not asked.entropy else dstatistics[2]
        given = AskedGradient(x, ids, statistics, dpicked, dentropy, asked.dim, factors, *asked[4:7])
        found = Asked(
            backward_operator(*given) if needs.x else None, None, None,  # type: ignore[arg-type]
            factors=by_torch.of_factors(given) if needs.factors else None,
            divides=None, ignore_index=None, entropy=None,  # type: ignore[arg-type]
        )  # fmt: skip
        return None, None, None, *found[: ctx.n_arguments]


class _RecordedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, below: Any, _: str, batch_invariant: bool, *arguments: Any) -> torch.Tensor:
        result: torch.Tensor = below(*arguments, batch_invariant=batch_invariant)
        return result

    @staticmethod
    def backward(ctx: Any, ddx: torch.Tensor) -> Any:
        raise RuntimeError(
            "a second derivative of token_log_probs was asked for, and it has only a first one; "
            "log_softmax(logits, dtype=torch.float32).gather(-1, ids.unsqueeze(-1)) has both"
        )


for _name, _compute, _fake, _batched, _function in (
    (NAME, _forward, _forward_fake, _forward_batched, _Recorded),
    (BACKWARD, _backward, _backward_fake, _backward_batched, _RecordedGradient),
):
    _library.impl(_name, _compute, "CompositeExplicitAutograd")
    _library.impl(_name, at_autograd_key(_name, "", _function), "Autograd", with_keyset=True)
    torch.library.register_fake(f"portable_softmax::{_name}", _fake, lib=_library)
    torch.library.register_vmap(f"portable_softmax::{_name}", _batched, lib=_library)
