"""Launches of calls with plain tensors, and the key of a call: a launch is bound once for all with the same key."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from operator import itemgetter, mul
from typing import Any

import torch
from torch import Tensor

# True of tensors under dispatch modes and functorch, of subclasses, sparse and meta tensors, in one call of 60 ns; modes and
# functorch have no public name (2.6 to 2.13). torch.jit.is_tracing is _is_tracing behind two calls of Python (2.6 to 2.13).
from torch._C import _dispatch_isTensorSubclassLike, _is_tracing
from torch.autograd import forward_ad  # _current_level takes 8 ns, the public unpack_dual 200 for each tensor (2.6 to 2.13)
from torch.nn import Parameter

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.detect import current_device, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.operators.checks import FACTORS, INTEGERS, with_size
from portable_softmax.planning.problem import MAX_COLS, MAX_ROWS, NONE, VECTOR_BYTES, Problem, Scores
from portable_softmax.runtime.bind import NAMES, bind, expanded, problem_of_tensors
from portable_softmax.runtime.compile import loaded, on_device
from portable_softmax.runtime.plans import choice_of

# True under functorch, where Function.apply is refused, even of plain tensors that a transformed function closes over; it has
# no public name (2.6 to 2.13).
transforms_are_active = torch._C._are_functorch_transforms_active
MASK_KINDS = {torch.bool: "bool", torch.int32: "bits"} | NAMES  # that kernels read
CONTIGUOUS = dict.fromkeys((*FACTORS, "statistics", "d_out", "d_lse", "d_entropy"), torch.float32)  # read without strides
CONTIGUOUS |= dict.fromkeys((*INTEGERS, "ids"), torch.int64)
TINY, HUGE = 2.0**-60, 2.0**60  # between them kernels multiply by numbers and their quotients; negative ones would turn -inf
MAX_CALLS = 8192  # a process makes few kinds of calls, or so many that planning anew does not matter
calls: dict[tuple[Any, ...], Any] = {}  # what a call does, by the key of `Operator.call_of`
_DEVICE_TYPES = {vendor.torch_device_type for vendor in BACKENDS.values()}


class NoKernel(Exception):
    """There is no kernel for what the message names; the reference computes the call."""


def key_of(arguments: Any) -> tuple[Any, ...] | None:
    """Returns the key of arguments: of tensors all but elements, of floats whether kernels take them. None if special."""
    if forward_ad._current_level >= 0 or _is_tracing():  # torch.jit.trace
        return None
    key: list[Any] = []
    for t in arguments:
        if t is None:
            key.append(None)
        elif (kind := type(t)) is Tensor or kind is Parameter:
            if _dispatch_isTensorSubclassLike(t) or t.is_nested or t.is_neg() or t.layout is not torch.strided:
                return None
            if not (start := t.data_ptr()):  # empty, or a zero tensor of autograd
                return None
            key += t.dtype, t.shape, t.stride(), start % VECTOR_BYTES == 0, t.get_device(), t.requires_grad
        elif kind is float:
            key += kind, TINY < t < HUGE
        elif kind is int:
            key.append(kind)
        else:  # a subclass, or a symbol of a compiler
            return None
    return tuple(key)


def is_recorded(arguments: Any) -> bool:
    """True if autograd records a call."""
    return torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in arguments)


def overlaps(t: Tensor) -> bool:
    """True if elements may share memory: a stride is within what the smaller ones span."""
    span = 0
    for stride, size in sorted(zip(t.stride(), t.shape, strict=True)):
        if size > 1 and stride <= span:
            return True
        span += (size - 1) * stride
    return False


def overwrites(out: Tensor, x: Tensor) -> bool:
    """True if out starts where x does, and has its dtype: a launch reads an element before it writes it."""
    return out.data_ptr() == x.data_ptr() and out.dtype is x.dtype


def is_read(out: Tensor, args: Any) -> bool:
    """True if out shares memory with an argument, other than the first one if it overwrites that."""
    others = args[1:] if overwrites(out, args[0]) else args
    return any(t.data_ptr() < _end(out) and out.data_ptr() < _end(t) for t in others if isinstance(t, Tensor))


def _end(t: Tensor) -> int:
    """Returns the address behind the last element."""
    n = 1 + sum(map(mul, t.shape, t.stride())) - sum(t.stride())
    return t.data_ptr() + n * t.element_size()


def device_of(x: Tensor) -> Device | None:
    """Returns the device of x, or None if no kernels run on it; raises DeviceError for one that Triton does not drive."""
    kind = x.device.type
    if kind not in _DEVICE_TYPES or (x.is_cpu and not interpreting()):
        return None
    device = current_device(x.get_device())
    return device if device.vendor.torch_device_type == kind else None


def scores_of(x: Tensor, dim: int, args: Any, softcap: float | None, dtype: Any = None, **fields: Any) -> Scores:
    """Returns what a kernel computes of rows of x along dim for results of a dtype; raises NoKernel if none does."""
    named, dtypes = {name: t for name, t in args._asdict().items() if t is not None}, [x.dtype, dtype or x.dtype]
    if not x.numel() or not x.dim():
        raise NoKernel("tensors without elements or dims")
    if not NAMES.keys() >= set(dtypes):
        raise NoKernel(" to ".join(str(kind) for kind in dict.fromkeys(dtypes)))
    if max(x.shape[dim], math.prod(x.shape[dim + 1 :])) > MAX_COLS or x.numel() > MAX_ROWS * x.shape[dim]:
        raise NoKernel(f"rows of more than {MAX_COLS} elements, or more than {MAX_ROWS} rows")
    if len(named) == 1 and softcap is None and not any(fields.values()):
        return NONE  # this object is compared in no time
    has_double = any(isinstance(t, Tensor) and t.dtype is torch.float64 for t in named.values())
    if has_double or not (softcap is None or TINY < softcap < HUGE):
        raise NoKernel("these options")
    if "mask" in named:
        if args.mask.dtype not in MASK_KINDS:
            raise NoKernel(f"a mask of {args.mask.dtype}")
        fields["mask"] = MASK_KINDS[args.mask.dtype]
    kinds = {name: kind_of(named.get(name)) for name in ("scale", "temperature")}
    return Scores(cap=softcap, sink="sink" in named, **kinds, **fields)


def kind_of(factor: Any) -> Any:
    """Returns how a kernel reads a factor or an integer: "number", "integer", "rows", or None for none."""
    if factor is None:
        return None
    if type(factor) is int:
        return "integer"
    return "number" if type(factor) is float and TINY < factor < HUGE else "rows"


def run_of(operator: Any, args: Any, options: Any, about: dict[str, Any], out: Tensor | None) -> Callable[..., Any]:
    """Returns run(args), or run(args, out) if there is one, which launches calls of the key of this one; raises NoKernel."""
    results, x, where = operator.results(args, options), args[0], args[0].device
    target = device_of(x)
    if target is None:
        raise NoKernel(f"tensors on {where.type}")
    if out is not None:
        is_alike = (out.shape, out.dtype, out.device) == (*results[0], where)
        is_moved = overwrites(out, x) and out.stride() != x.stride()
        if not is_alike or is_moved or overlaps(out) or is_recorded((out, *args)):
            raise NoKernel("the tensor for the result")
    problem = problem_of_call(operator, args, results, target, about, out)
    if problem is None:
        return _on_copies(operator, options, target, about)
    choice = choice_of(problem, target)
    plan = choice.resized(problem)
    kernels = loaded(choice.problem, plan.tiling, target)
    launch, (kernel, _) = bind(plan, kernels, where, operator.sizes(args, options)), kernels[0]
    ordered, fields = _selection(kernel.operands[len(results) :], args._fields), enumerate(args._fields)
    converted: list[Any] = [(at, name) for at, name in fields if name in CONTIGUOUS and kind_of(args[at]) == "rows"]
    if converted:
        shapes = dict.fromkeys(FACTORS, with_size(x, about["dim"], 1)) | dict.fromkeys(INTEGERS, x.shape[:-1])
        converted = [(at, shapes.get(name) or args[at].shape, CONTIGUOUS[name]) for at, name in converted]
    layouts = [(shape, _strides_of(shape), dtype) for shape, dtype in results]

    def run(args: Any, *out: Tensor) -> Any:
        made = out or [torch.empty_strided(*sizes, dtype=dtype, device=where) for *sizes, dtype in layouts]
        values = [*args, None]
        for at, shape, dtype in converted:
            values[at] = _contiguous(values[at], shape, dtype, where)
        launch(*made, *ordered(values))
        return returned(made)

    return on_device(run, target)


@functools.cache
def _selection(operands: tuple[str, ...], fields: tuple[str, ...]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Returns a function that selects a kernel's operands, in order, among arguments and None, which is behind them."""
    places = {f"{name}{suffix}": at for at, name in enumerate(fields) for suffix in ("", "_ptr")}
    return itemgetter(*(places.get(name, -1) for name in operands))


def problem_of_call(
    operator: Any, args: Any, results: Any, target: Device, about: dict[str, Any], out: Tensor | None = None
) -> Problem | None:
    """Returns the problem of a call with such results, or with out; None if kernels do not read its tensors in place."""
    whole = [t for t in args[: operator.whole] if t is not None]
    if operator.has_one_result:  # of the shape of x
        if out is None:
            ((shape, dtype),) = results
            out = torch.empty(shape, dtype=dtype, device="meta")
        whole = [out, *whole]
    return problem_of_tensors(whole, device=target, mask=getattr(args, "mask", None), **about)


def copies_of(operator: Any, args: Any, options: Any, target: Device, about: dict[str, Any]) -> tuple[Any, Any]:
    """Returns (arguments, options) of an equal call that kernels read in place: what has the shape of x is contiguous.

    Where they read contiguous rows alone, the call computes along the last dimension.
    """
    x, dim, moved = args[0], about["dim"], dict[str, Any]()
    last = dim
    if "log_probs" in about or about["batch_invariant"] or not target.vendor.scattered_rows:
        last = x.dim() - 1
    for name, t in args._asdict().items():
        if name in FACTORS and isinstance(t, Tensor):
            moved[name] = t.expand(with_size(x, dim, 1)).movedim(dim, last)
        elif t is not None and (name == "mask" or name in args._fields[: operator.whole]):
            t = expanded(t, x, dim).movedim(dim, last)
            if not t.is_contiguous() or t.data_ptr() % VECTOR_BYTES:
                t = t.clone(memory_format=torch.contiguous_format)
            moved[name] = t
    if last != dim:
        options = options._replace(dim=last)
    return args._replace(**moved), options


def _on_copies(operator: Any, options: Any, target: Device, about: dict[str, Any]) -> Callable[..., Any]:
    """Returns run(args), or run(args, out), which calls an operator on copies of arguments."""

    def run(args: Any, *out: Tensor) -> Any:
        copies, moved = copies_of(operator, operator.Args(*args), options, target, about)
        result = operator.compute(copies, moved, about["batch_invariant"])
        if operator.has_one_result:
            result = result.movedim(moved.dim, about["dim"])
            return out[0].copy_(result) if out else result.contiguous()
        return result

    return run


def _strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns strides of a contiguous tensor, for torch.empty_strided, which takes half the time of torch.empty."""
    return tuple(itertools.accumulate(shape[:0:-1], mul, initial=1))[::-1][: len(shape)]


def returned(results: Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Returns results as a call does: a tensor, or a tuple of several."""
    return results[0] if len(results) == 1 else tuple(results)


def _contiguous(value: Any, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns a number or a tensor as a contiguous tensor of this shape and dtype."""
    if not isinstance(value, Tensor):
        return torch.full(shape, value, dtype=dtype, device=device)
    if value.dtype is dtype and value.shape == shape and value.is_contiguous():
        return value
    return value.to(dtype).expand(shape).contiguous()
