"""Arguments and options of operators, and the facts of tensors that a launch depends on.

Arguments are passed to a launch; options are what it is compiled for.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

# True of tensors under dispatch modes and functorch, of subclasses, sparse and meta tensors, in one call of 60 ns; modes and
# functorch have no public name (2.6 to 2.13). torch.jit.is_tracing is _is_tracing behind two calls of Python (2.6 to 2.13).
from torch._C import _dispatch_isTensorSubclassLike, _is_tracing
from torch.autograd import forward_ad  # _current_level takes 8 ns, the public unpack_dual 200 for each tensor (2.6 to 2.13)
from torch.nn import Parameter

from portable_softmax.planning.problem import VECTOR_BYTES

# True under functorch, where Function.apply is refused, even of plain tensors that a transformed function closes over; it has
# no public name (2.6 to 2.13).
transforms_are_active = torch._C._are_functorch_transforms_active
DTYPES = frozenset((torch.float16, torch.bfloat16, torch.float32))  # of kernels
TINY, HUGE = 2.0**-60, 2.0**60  # kernels multiply by numbers between them, and by their quotients
Factor = Tensor | float | None
Integers = Tensor | int


class SoftmaxArgs(NamedTuple):
    """Arguments of a softmax; a sink is one number per row."""

    x: Tensor
    mask: Tensor | None = None
    scale: Factor = None
    temperature: Factor = None
    sink: Tensor | None = None


class SoftmaxOptions(NamedTuple):
    """Options of a softmax.

    Args:
        softcap: c of c * tanh(scale * x / c), or None.
        log: log_softmax.
        dim: counted from 0.
        dtype: type of the result; x is rounded to it first.
        causal: "upper_left", "lower_right" or "".
        zero_rows: rows that are masked completely are 0, or -inf.
    """

    softcap: float | None
    log: bool
    dim: int
    dtype: torch.dtype
    causal: str = ""
    zero_rows: bool = False


class SoftmaxGradientArgs(NamedTuple):
    """Arguments of the gradient of a softmax; x is required with a softcap, and only with one."""

    dy: Tensor
    y: Tensor
    x: Tensor | None = None
    scale: Factor = None
    temperature: Factor = None


class SoftmaxGradientOptions(NamedTuple):
    """Options of the gradient of a softmax; with voids it is 0 where y has no weight, and its type is dtype."""

    softcap: float | None
    log: bool
    dim: int
    voids: bool
    dtype: torch.dtype


class TokenArgs(NamedTuple):
    """Arguments of log-probabilities of tokens."""

    x: Tensor
    ids: Tensor
    mask: Tensor | None = None
    scale: Factor = None
    temperature: Factor = None


class TokenOptions(NamedTuple):
    """Options of log-probabilities and their gradient: which results are requested, and as those of a softmax."""

    softcap: float | None
    dim: int
    ignore_index: int
    entropy: bool
    lse: bool
    zero_rows: bool = False


class TokenGradientArgs(NamedTuple):
    """Arguments of the gradient of log-probabilities: statistics of rows as a launch leaves them, gradients of results."""

    x: Tensor
    ids: Tensor
    statistics: Tensor
    dpicked: Tensor | None
    dlse: Tensor | None
    dentropy: Tensor | None
    mask: Tensor | None = None
    scale: Factor = None
    temperature: Factor = None


class SampleArgs(NamedTuple):
    """Arguments of a sample; seed and position are integers of 64 bits."""

    x: Tensor
    mask: Tensor | None
    temperature: Factor
    min_p: Factor
    seed: Integers
    position: Integers


class SampleOptions(NamedTuple):
    """Options of a sample."""

    softcap: float | None


class SpecialCallError(Exception):
    """A call that no launch computes: a tensor is not plain, or more than autograd's reverse mode observes the call."""


def facts(arguments: Any) -> tuple[Any, ...]:
    """Returns the key of arguments: of a tensor everything but its elements, of a float its magnitude, of an integer nothing.

    Raises:
        SpecialCallError: there is a tensor that is not plain; or the call is in forward mode, or under torch.jit.trace.
    """
    if forward_ad._current_level >= 0 or _is_tracing():
        raise SpecialCallError
    key: list[Any] = []
    for t in arguments:
        if t is None:
            key.append(None)
        elif (kind := type(t)) is Tensor or kind is Parameter:
            if not is_plain(t) or not (start := t.data_ptr()):  # without an address: empty, or a zero tensor of autograd
                raise SpecialCallError
            key += t.dtype, t.shape, t.stride(), start % VECTOR_BYTES == 0, t.get_device(), t.requires_grad
        elif kind is float:
            key += kind, TINY < t < HUGE
        elif kind is int:
            key.append(kind)
        else:  # a subclass, or a symbol of a compiler
            raise SpecialCallError
    return tuple(key)


def is_plain(t: Tensor) -> bool:
    """True if elements are in strided memory of the tensor's own, and no mode, functorch level or subclass observes it."""
    return not (_dispatch_isTensorSubclassLike(t) or t.is_nested or t.is_neg() or t.layout is not torch.strided)


def needs_of(arguments: Any) -> tuple[bool, ...]:
    """Returns which arguments require a gradient; () if autograd does not record the call."""
    needs = tuple(isinstance(t, Tensor) and t.requires_grad for t in arguments)
    return needs if torch.is_grad_enabled() and any(needs) else ()


def has_voids(args: SoftmaxArgs, options: SoftmaxOptions) -> bool:
    """True if elements may have no weight; their gradients are 0, whatever the gradient of the result is."""
    return bool(options.causal) or options.zero_rows or args.sink is not None or hides(args.mask)


def hides(mask: Tensor | None) -> bool:
    """True for a mask of kept elements, boolean or in bits, of which others have no gradient; an added one has torch's rule."""
    return mask is not None and not mask.dtype.is_floating_point
