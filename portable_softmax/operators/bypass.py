"""Calls past torch's dispatcher, which takes as long as everything else: where only autograd needs to see a call.

Autograd records such a call by a function of its own, sooner than through the dispatcher, with the same gradients.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.compiler import is_dynamo_compiling

from portable_softmax.invariance import in_context, is_batch_invariant
from portable_softmax.operators.arguments import KERNEL_DTYPES, check_gradient, converted
from portable_softmax.operators.call import Asked, AskedGradient, call_of, call_of_gradient
from portable_softmax.operators.launching import Run, backward, bound, by_torch, forward, key_of
from portable_softmax.operators.memory import find, nobody_listens, remember, repeat_like, repeat_of
from portable_softmax.operators.options import Options, numbers, sinks

PLAIN = frozenset((bool, int, float, str, torch.dtype))


class Kind(NamedTuple):
    """All that a call depends on but its tensors, and these: x, what its options hold, and the result's.

    Args:
        key: by which the call is remembered.
        tensors: what is read.
        options: as the caller gave them; None for the softmax of x itself.
        out: where the caller wants the result.
    """

    key: tuple[Any, ...]
    tensors: list[torch.Tensor]
    options: Options | None = None
    out: torch.Tensor | None = None

    @property
    def records_alike(self) -> bool:
        """Tells whether autograd records such calls in one way, gradients on or off: for x alone, or not at all."""
        x, *others = self.tensors if self.out is None else (*self.tensors, self.out)
        alone = self.out is None and not (self.options and self.options.softcap is not None)
        return not any(each.requires_grad for each in others) and (alone or not x.requires_grad)

    @property
    def repeat(self) -> Callable[..., torch.Tensor] | None:
        """Returns the call that was made of such tensors, of (out, x, options), each if there is one; None before the first."""
        return repeat_of(find(self.key), self.tensors, self.out)


def kind_of(form: str, x: Any, dim: Any, dtype: Any, options: Options | None, out: Any = None) -> Kind | None:
    """Returns the kind of a call; None if it is one that is not remembered, as dynamo traces it, or of other classes."""
    if is_dynamo_compiling() or type(x) is not torch.Tensor or x.layout is not torch.strided or x.is_nested:
        return None
    if out is not None and (type(out) is not torch.Tensor or out.layout is not torch.strided or out.is_nested):
        return None
    if options is None and type(dim) is int and (dtype is None or type(dtype) is torch.dtype):
        return Kind((form, dim, dtype, is_batch_invariant(), x.shape, out is x), [x], None, out)
    facts: list[Any] = [form, is_batch_invariant(), x.shape, None if out is None else out is x]
    tensors = [x]
    for each in (dim, dtype, *(options or ())):
        kind = type(each)
        if kind is torch.Tensor:
            tensors.append(each)
            facts.append(kind)
        elif each is None or kind in PLAIN:
            facts += kind, each
        else:
            return None
    return Kind(tuple(facts), tensors, options, out)


def plainly(form: str, x: Any, dim: int, dtype: torch.dtype | None, batch_invariant: bool) -> torch.Tensor | None:
    """Computes the softmax of x itself, as `directly` does, so that `memory.repeated` repeats it."""
    if not nobody_listens(x):
        return None
    kind = Kind((form, dim, dtype, batch_invariant, x.shape), [x])
    return directly(form, Asked(x, dim, dtype), batch_invariant, kind)


def directly(form: str, asked: Asked, batch_invariant: bool, kind: Kind | None = None) -> torch.Tensor | None:
    """Computes a softmax if nobody but autograd listens, and that to x alone; returns None if torch must see the call.

    Args:
        form: softmax or log_softmax.
        asked: what is asked for.
        batch_invariant: True if a row's bits may not depend on the other rows.
        kind: of the call, which is remembered; None for one that is not.
    """
    if not all(nobody_listens(each) for each in asked.tensors) or (recorded := _recorded(asked)) is None:
        return None
    out = kind.out if kind else None
    if by_torch(asked.x):
        return None if recorded or out is not None else forward(form, asked, batch_invariant)
    asked = asked._replace(x=converted(asked.x, asked.dtype))
    call, operands = call_of(form, asked, batch_invariant)
    run = bound(call, operands, out)
    if recorded and out is None:
        run = _recording(run, form, asked, batch_invariant, len(operands))
    if (
        kind
        and kind.records_alike
        and find(key_of(call, operands, out))
        and (again := _again(run, form, asked, len(operands), kind))
    ):
        remember(kind.key, repeat_like(kind.tensors, again, out))
    return run(*operands) if out is None else run(out, *operands)


def _recorded(asked: Asked) -> bool | None:
    """Tells whether autograd records the call, for x alone; None if it needs more than the gradient's kernel."""
    if any(each.requires_grad for each in asked.tensors[1:]) or (asked.x.requires_grad and asked.softcap is not None):
        return None if torch.is_grad_enabled() else False
    return asked.x.requires_grad  # where gradients are off, autograd itself records nothing


def _again(run: Run, form: str, asked: Asked, n_operands: int, kind: Kind) -> Callable[..., torch.Tensor] | None:
    """Returns a call that was made as its caller makes it again; None if the launch took x or mask otherwise than given."""
    options = kind.options
    if not _is_same(asked.x, kind.tensors[0]) or n_operands != len(asked.tensors):
        return None
    if options is None:
        return run
    both = options.scale is not None and options.temperature is not None
    if (asked.factors is not None and both) or not _is_same(asked.mask, options.mask):
        return None
    by = "scale" if options.temperature is None else "temperature"
    given = (asked.factors, by), (asked.sinks, "sink")
    read = [_read(name, form, asked, taken, options) for taken, name in given if taken is not None]
    masked = asked.mask is not None

    def again(*given: Any) -> torch.Tensor:
        *tensors, options = given
        more = [each(tensors[-1], options) for each in read]
        return run(*tensors, options.mask, *more) if masked else run(*tensors, *more)

    return again


def _read(name: str, form: str, asked: Asked, taken: torch.Tensor, options: Options) -> Callable[[torch.Tensor, Options], Any]:
    """Returns what reads one number for each row from an option, as it was read."""
    if _is_same(taken, getattr(options, name)):
        return lambda x, options: getattr(options, name)
    dim, compute = asked.dim, torch.promote_types(asked.y_dtype, torch.float32)
    read = sinks if name == "sink" else partial(numbers, name)
    return lambda x, options: read(form, x, dim, getattr(options, name), compute)


def _is_same(taken: torch.Tensor | None, given: Any) -> bool:
    """Tells whether a launch reads the memory of what was given, as it lies; or neither is a tensor."""
    if taken is None or not isinstance(given, torch.Tensor):
        return taken is None and not isinstance(given, torch.Tensor)
    return taken.dtype == given.dtype and taken.data_ptr() == given.data_ptr()


def _recording(run: Run, form: str, asked: Asked, batch_invariant: bool, n_operands: int) -> Run:
    """Returns `run`, which computes what is asked for of so many operands, as autograd records it for the gradient of x."""
    gradient = _gradient_of(form, asked, batch_invariant)
    ahead = int(asked.mask is not None)
    factors = slice(ahead, ahead + (asked.factors is not None))  # of the operands after x, what the gradient needs
    nothing = (None,) * (n_operands - 1)

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
            y = run(x, *more)
            ctx.save_for_backward(y, *more[factors])
            return y

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> Any:
            dx = gradient(dy, *ctx.saved_tensors)
            return (dx, *nothing) if nothing else dx

    # Function.apply asks for torch.func's levels, and there are none.
    apply: Run = super(torch.autograd.Function, Recorded).apply
    return apply


def _gradient_of(form: str, asked: Asked, batch_invariant: bool) -> Run:
    """Returns gradient(dy, y, factors), that of x, with factors if there were some."""
    dim, x_dtype, rest = asked.dim, asked.x.dtype, asked.of_gradient
    key = _key_of_gradient(form, batch_invariant, asked.x.shape, dim, x_dtype, rest)

    def gradient(dy: torch.Tensor, y: torch.Tensor, *factors: torch.Tensor) -> torch.Tensor:
        traced = torch.is_grad_enabled() or is_dynamo_compiling()  # for a second derivative, or by compiled autograd
        if not traced and (run := repeat_of(find(key), [dy, y, *factors])):
            return run(dy, y, *factors)
        wanted = AskedGradient(dy, y, dim, x_dtype, *(factors or (None,)), *rest)
        dx = None if traced else gradient_directly(form, wanted, batch_invariant)
        return fused(form, wanted, batch_invariant) if dx is None else dx

    return gradient


def gradient_directly(form: str, asked: AskedGradient, batch_invariant: bool) -> torch.Tensor | None:
    """Computes the gradient of x, which is not recorded itself, if nobody listens; returns None if torch must see the call."""
    if is_dynamo_compiling() or type(asked.y) is not torch.Tensor or asked.y.is_nested:
        return None
    given = [*asked.tensors]
    key = _key_of_gradient(form, batch_invariant, asked.y.shape, *asked[2:4], asked[5:])
    if run := repeat_of(find(key), given):
        return run(*given)
    if not all(nobody_listens(each) for each in given):
        return None
    if by_torch(asked.y) or asked.x_dtype not in KERNEL_DTYPES:
        return backward(form, asked, batch_invariant)
    check_gradient(asked.dy, asked.y, asked.dim)
    call, operands = call_of_gradient(form, asked, batch_invariant)
    run = bound(call, operands)
    if len(operands) == len(given) and find(key_of(call, operands)):
        remember(key, repeat_like(given, run))
    return run(*operands)


def _key_of_gradient(form: str, batch_invariant: bool, *facts: Any) -> tuple[Any, ...]:
    """Returns all that a gradient depends on but its tensors, with their shape."""
    return "gradient", form, batch_invariant, *facts


def fused(form: str, asked: AskedGradient, batch_invariant: bool) -> torch.Tensor:
    """Computes the gradient's operator, with the choice of batch_invariant that was in force in the forward."""
    operator = getattr(torch.ops.portable_softmax, f"{form}_backward")
    # Compiled autograd traces this, and a graph reads the choice when it runs.
    with contextlib.nullcontext() if is_dynamo_compiling() else in_context(batch_invariant):
        result: torch.Tensor = operator(*asked)
    return result
