"""The rule of all operators: which calls are launched, what autograd records, and what compilers see."""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import arguments, launch
from portable_softmax.operators.checks import normalized


def empty_like_x(args: Any, options: Any) -> Tensor:
    """Returns one result of the shape of x, without contents."""
    return torch.empty(args[0].shape, dtype=getattr(options, "dtype", args[0].dtype), device=args[0].device)


class Call(NamedTuple):
    """Cached form of a call."""

    operator: "Operator"
    run: Callable[..., Any] | None  # run(args, out) launches calls like it; out may be None. None: the reference computes them
    options: Any
    needs: tuple[bool, ...]  # which arguments require a gradient; () if autograd does not record the call
    invariant: bool = False  # the choice of batch_invariant, which a gradient follows
    out_is_first: bool = False  # out is the first argument
    extents: tuple[int, ...] = ()  # bytes that out and the arguments span
    in_place: bool = False  # the gradient of x is written over x


@dataclass(eq=False)
class Operator:
    """An operator: `Args` are passed to a launch, and `Options` are what it is compiled for.

    `schema` is one of torch.library, but "float?|Tensor?" is a tensor or a number; what has no tensor is an option. `check` and
    `reference` are called with (args, *options) and (args, options); checks are idempotent.
    """

    schema: str
    check: Callable[..., Any]  # returns the options
    reference: Callable[..., Any]  # computes results by PyTorch's operators
    describe: Callable[..., Any]  # of (args, options, invariant): what no kernel supports, or "", and fields of Problem
    empty: Callable[..., Any] = empty_like_x  # of (args, options): results without contents
    whole: int = 1  # arguments of the shape of x, which come first
    converted: Callable[..., Any] | None = None  # of args: the tensors that kernels read, named by `operands`
    operands: tuple[str, ...] = ()  # the names of Args by default
    saved: Callable[..., tuple[Any, ...]] = lambda *inputs: ()  # of (call, args, results): what `gradients` takes
    gradients: Callable[..., Any] | None = None  # of (call, saved, dresults); None without autograd

    def __post_init__(self) -> None:
        signature, results = self.schema.split(" -> ")
        self.name, fields = signature.removesuffix(")").split("(")
        kinds = {name: kind for kind, name in (field.split(" ") for field in fields.split(", "))}
        tensors, options = ([name for name in kinds if ("Tensor" in kinds[name]) is wanted] for wanted in (True, False))
        self.numbers = [name for name in tensors if "|" in kinds[name]]
        named_tuple: Any = namedtuple
        self.Args = named_tuple("Args", tensors, defaults=[None for name in tensors if "?" in kinds[name]])
        self.Options = named_tuple("Options", options)
        self.operands = self.operands or self.Args._fields
        self.n_tensors, self.n_options = len(tensors), len(options)
        flat = [f"{kinds[name].rsplit('|')[-1]} {name}" for name in tensors]
        flat += [f"{kinds[name].split('|')[0]} {name}_number" for name in self.numbers]
        flat += [f"{kinds[name]} {name}" for name in options]
        name, schema = f"portable_softmax::{self.name}", f"({', '.join(flat)}) -> {results}"
        self.registered = torch.library.custom_op(name, self._computed, mutates_args=(), schema=schema)
        self.registered.register_fake(lambda *values: self.empty(*self.joined(values)))
        if self.gradients:
            self.registered.register_autograd(self._gradients_of_operator, setup_context=self._save_of_operator)

    def call(self, args: Any, options: tuple[Any, ...], in_place: bool = False) -> Any:
        """Computes results: by a launch for plain calls, as an operator of compilers, or by the reference.

        Numbers in args are floats. With `in_place`, the gradient of x is written over x.
        """
        if is_compiling():
            options = self.check(args, *options)
            compute = self.reference if arguments.transforms_are_active() else self.call_registered
            return compute(args, options)
        call = self.call_of(args, options)
        if call.run is None or (call.needs and arguments.transforms_are_active()):
            return self.reference(args, call.options)
        if call.needs:
            return _recorded(call._replace(in_place=True) if in_place else call, *args)
        return call.run(args)

    def call_of(self, args: Any, options: tuple[Any, ...], invariant: bool | None = None, out: Tensor | None = None) -> Call:
        """Returns the cached form of a call with plain tensors, which writes to `out` if there is one; a new one of others.

        invariant=None is the active choice of batch_invariant.
        """
        if invariant is None:
            invariant = is_batch_invariant()
        key_of_args, out_is_first = arguments.key_of(args if out is None else (*args, out)), False
        if key_of_args is None:
            return Call(self, None, self.check(args, *options), ())
        if out is not None:  # elements of another type lie elsewhere
            out_is_first = out.data_ptr() == args[0].data_ptr() and out.dtype is args[0].dtype
        types = tuple(map(type, options))  # options of other types may be equal
        key = self.name, options, types, invariant, torch.is_grad_enabled(), out_is_first, key_of_args
        try:
            call: Call | None = launch.calls.get(key)
        except TypeError:  # an option has no hash
            self.check(args, *options)
            raise
        if call is None:
            checked, run, extents = self.check(args, *options), None, tuple[int, ...]()
            if out is not None:
                extents = tuple(arguments.extent(t) if isinstance(t, Tensor) else 0 for t in (out, *args))
            if out is None or arguments.fits(out, args, self.empty(args, checked).dtype, out_is_first):
                reason, about = self.describe(args, checked, invariant)
                if not reason and launch.has_kernels(args[0]):
                    run = launch.bound(self, args, checked, about, out)
            needs = arguments.needs_of(args) if self.gradients else ()
            call = Call(self, run, checked, needs, invariant, out_is_first, extents)
            if len(launch.calls) >= launch.MAX_CALLS:
                launch.calls.clear()
            launch.calls[key] = call
        return call

    def launch_into(self, out: Tensor, args: Any, options: tuple[Any, ...], invariant: bool | None = None) -> bool:
        """Launches a call that writes to out, and returns True; False for one that reads its memory, or is not launched."""
        if is_compiling() or (out.is_inference() and not torch.is_inference_mode_enabled()):
            return False
        call = self.call_of(args, options, invariant, out)
        if call.run is None:
            return False
        start, first = out.data_ptr(), 1 if call.out_is_first else 0
        for t, extent in zip(args[first:], call.extents[first + 1 :], strict=True):
            if isinstance(t, Tensor) and -extent < t.data_ptr() - start < call.extents[0]:
                return False
        increment_version(out)
        call.run(args, out)
        return True

    def launched(self, args: Any, options: Any, invariant: bool | None = None) -> Any:
        """Computes results of a launch of a call that autograd does not record, by the reference if there is none."""
        call = self.call_of(args, options, invariant)
        return self.reference(args, call.options) if call.run is None else call.run(args)

    def compute_gradient(self, call: Call, args: Any, options: Any) -> Any:
        """Computes a gradient for a call: for compilers, by a launch, or by the reference, as in second derivatives."""
        if torch.is_grad_enabled():
            return self.reference(args, options)
        if call.run is None or is_compiling():
            return self.call_registered(args, options)
        return self.launched(args, options, call.invariant)

    # The operator of compilers, by the same rule, with the same checks and gradients. It reads batch_invariant when a graph
    # runs. Its arguments are tensors or None, then numbers or None, as schemas have no unions, then options.

    def call_registered(self, args: Any, options: Any) -> Any:
        """Calls the registered operator."""
        numbers = [getattr(args, name) for name in self.numbers]
        tensors = [t if isinstance(t, Tensor) else None for t in args]
        return self.registered(*tensors, *[None if isinstance(t, Tensor) else t for t in numbers], *options)

    def joined(self, values: tuple[Any, ...]) -> tuple[Any, Any]:
        """Returns the arguments and options of a call of the registered operator, after checks."""
        args, n_values = self.Args(*values[: self.n_tensors]), self.n_tensors + len(self.numbers)
        for name, number in zip(self.numbers, values[self.n_tensors : n_values], strict=True):
            if number is not None and getattr(args, name) is not None:
                raise ValueError(f"'{name}' and '{name}_number' exclude each other: pass a tensor or a number")
            args = args if number is None else args._replace(**{name: number})
        args = normalized(self.name, args)
        return args, self.check(args, *values[n_values:])

    def _computed(self, *values: Any) -> Any:
        results = self.launched(*self.joined(values))
        return results.contiguous() if isinstance(results, Tensor) else results

    def _save_of_operator(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        args, options = self.joined(inputs)
        _save(ctx, Call(self, None, options, ctx.needs_input_grad[: self.n_tensors]), args, output)

    def _gradients_of_operator(self, ctx: Any, *dresults: Tensor | None) -> tuple[Any, ...]:
        return *_gradients(ctx, dresults), *(None,) * (len(self.numbers) + self.n_options)


class Recorded(torch.autograd.Function):
    """A launch that autograd records."""

    @staticmethod
    def forward(ctx: Any, call: Call, *args: Any) -> Any:  # noqa: D102
        results = call.run(args)  # type: ignore[misc]
        _save(ctx, call, call.operator.Args(*args), results)
        return results

    @staticmethod
    def backward(ctx: Any, *dresults: Tensor | None) -> tuple[Any, ...]:  # noqa: D102
        return None, *_gradients(ctx, dresults)


_recorded = super(torch.autograd.Function, Recorded).apply  # Function.apply itself first checks functorch's levels: none


def save(ctx: Any, values: tuple[Any, ...]) -> None:
    """Saves tensors and other values for a backward."""
    ctx.save_for_backward(*(value if isinstance(value, Tensor) else None for value in values))
    ctx.numbers = [None if isinstance(value, Tensor) else value for value in values]


def saved(ctx: Any) -> list[Any]:
    """Returns what was saved, in its order."""
    return [number if t is None else t for t, number in zip(ctx.saved_tensors, ctx.numbers, strict=True)]


def _save(ctx: Any, call: Call, args: Any, results: Any) -> None:
    ctx.call = call
    ctx.set_materialize_grads(False)  # gradients of results that are not used are None
    save(ctx, call.operator.saved(call, args, results))


def _gradients(ctx: Any, dresults: tuple[Tensor | None, ...]) -> Any:
    operator = ctx.call.operator
    if all(dy is None for dy in dresults):
        return (None,) * operator.n_tensors
    return operator.gradients(ctx.call, saved(ctx), dresults)
