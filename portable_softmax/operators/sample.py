"""sample_token: which calls are launched, and the operator for compilers. Samples have no gradient."""

import operator as operators
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from portable_softmax.errors import DtypeError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import launch, reference
from portable_softmax.operators.arguments import (
    DTYPES,
    SpecialCallError,
    as_float,
    check_broadcast,
    check_factor,
    check_mask,
    check_tensor,
    facts,
    is_real,
    joined,
    softcap_of,
    tensors_and_numbers,
    transforms_are_active,
)
from portable_softmax.operators.launch import Call
from portable_softmax.planning.problem import MAX_COLS

NAME = "sample_token"


class Inputs(NamedTuple):
    """Arguments of a sample, normalized: numbers are floats, seed and position integers of 64 bits, or tensors of them."""

    x: Any
    mask: Any
    temperature: Any
    min_p: Any
    softcap: Any
    seed: Any
    position: Any


def compute(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Computes (ids, log-probabilities): by a launch for plain calls, the operator for compilers, else the reference."""
    x, mask, temperature, min_p, softcap, seed, position = inputs
    temperature, min_p = as_float(NAME, "temperature", temperature), as_float(NAME, "min_p", min_p)
    seed, position = _integer("seed", seed), _integer("position", position)
    inputs = Inputs(
        x, mask, temperature, min_p or None if type(min_p) is float else min_p, softcap_of(NAME, softcap), seed, position
    )
    if is_compiling():
        check(inputs)
        if x.dtype in DTYPES and not transforms_are_active():
            kinds = [tensors_and_numbers(*pair) for pair in ((temperature, min_p), (seed, position))]
            return operator(x, mask, *kinds[0][0], *kinds[0][1], inputs.softcap, *kinds[1][0], *kinds[1][1])
        return reference.sample(*inputs)
    call = call_of(inputs)
    if call is None:
        check(inputs)
    return reference.sample(*inputs) if call is None or call.run is None else call.run(inputs)


def call_of(inputs: Inputs) -> Call | None:
    """Returns the cached form of a call with plain tensors, else None; arguments are checked once per key."""
    tensors = (t if isinstance(t, Tensor) else None for t in (inputs.seed, inputs.position))
    try:
        key = NAME, is_batch_invariant(), inputs.softcap, facts(*inputs[:4], *tensors)
        call: Call | None = launch.calls.get(key)
    except SpecialCallError:
        return None
    if call is None:
        check(inputs)
        call = launch.keep(key, Call(launch.sample(inputs, is_batch_invariant()), None, ()))
    return call


def check(inputs: Inputs) -> None:
    """Raises the errors of api.sample.sample_token for tensors."""
    x, mask, temperature, min_p, _, seed, position = inputs
    check_tensor(NAME, "logits", x)
    if not x.dim() or not is_real(x.dtype):
        raise DtypeError(
            f"{NAME}(): argument 'logits' must have a dimension and a floating-point dtype of 16 bits or more, not {x.dtype} "
            f"of shape {tuple(x.shape)}"
        )
    if x.shape[-1] > MAX_COLS:
        raise ValueError(f"{NAME}(): argument 'logits' has {x.shape[-1]} tokens per row; at most {MAX_COLS} are numbered")
    check_mask(NAME, x, mask, x.dim() - 1)
    check_factor(NAME, "temperature", x, temperature, x.dim() - 1)
    check_factor(NAME, "min_p", x, min_p, x.dim() - 1)
    if type(min_p) is float and not 0 <= min_p < 1:
        raise ValueError(f"{NAME}(): argument 'min_p' must be at least 0 and below 1, not {min_p}")
    for argument, value in (("seed", seed), ("position", position)):
        if isinstance(value, Tensor):
            if value.dtype not in (torch.int64, torch.int32):
                raise DtypeError(f"{NAME}(): argument '{argument}' must hold int64 or int32, not {value.dtype}")
            check_broadcast(NAME, argument, x[..., 0], value)


def _integer(argument: str, value: Any) -> Any:
    """Returns an integer of 64 bits, a tensor, or a symbol of compilers; raises TypeError or ValueError for others."""
    if isinstance(value, (Tensor, torch.SymInt)):
        return value
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(
            f"{NAME}(): argument '{argument}' must be an integer or a Tensor of integers, not {type(value).__name__}"
        )
    if not -(2**63) <= (value := operators.index(value)) < 2**63:
        raise ValueError(f"{NAME}(): argument '{argument}' must be an integer of 64 bits, not {value}")
    return value


@torch.library.custom_op("portable_softmax::sample_token", mutates_args=())
def operator(
    x: Tensor, mask: Tensor | None, temperature: Tensor | None, min_p: Tensor | None, temperature_number: float | None,
    min_p_number: float | None, softcap: float | None, seed: Tensor | None, position: Tensor | None, seed_number: int | None,
    position_number: int | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Draws (ids, their log-probabilities) from the softmax of the last dimension."""
    factors = joined(temperature, min_p, temperature_number, min_p_number)
    return compute(Inputs(x, mask, *factors, softcap, *joined(seed, position, seed_number, position_number)))


@operator.register_fake
def _(x: Tensor, mask: Any, *rest: Any) -> tuple[Tensor, Tensor]:
    temperature, min_p, temperature_number, min_p_number, softcap, *keys = rest
    factors = joined(temperature, min_p, temperature_number, min_p_number)
    check(Inputs(x, mask, *factors, softcap, *joined(*keys)))
    rows = x.shape[:-1]
    return x.new_empty(rows, dtype=torch.int64), x.new_empty(rows, dtype=torch.promote_types(x.dtype, torch.float32))
