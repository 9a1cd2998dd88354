"""The rule of all operators: which calls are launched, what autograd records, and what compilers see."""

from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import launch, reference
from portable_softmax.operators.checks import normalized
from portable_softmax.runtime import plans


class Call(NamedTuple):
    """What a call does, after checks; calls of one key share it."""

    operator: "Operator"
    run: Callable[..., Any] | None  # run(args), or run(args, out), launches; None: the reference computes, or a compiler's code
    options: Any
    is_recorded: bool = False  # autograd records the call
    invariant: bool = False  # the choice of batch_invariant, which a gradient follows
    grad_inplace: bool = False  # the gradient of x is written over x


class Operator:
    """An operator, which a subclass defines: its calls have `Args`, which a launch reads, and `Options`, which are in its key.

    Args are tensors, None, or numbers where the schema has an argument `name_number` beside `name`, as schemas of torch.library
    have no unions. Options are all other arguments.
    """

    schema: str
    check: Callable[..., Any]  # of (args, *options): returns the options, and is idempotent
    reference: Callable[..., Any]  # of (args, options): computes results by PyTorch's operators
    describe: Callable[..., dict[str, Any]]  # of (args, options, invariant): fields of Problem; raises NoKernel
    whole = 1  # arguments of the shape of x, which come first
    saved: Callable[..., tuple[Any, ...]]  # of (call, args, results): what `gradient` takes
    gradient: Callable[..., Tensor] | None = None  # of (call, saved, dresults): that of x; None without autograd

    def __init__(self) -> None:
        self.name, signature = self.schema.split("(", 1)
        fields, results = signature.split(") -> ")
        kinds = {name: kind for kind, name in (field.split(" ") for field in fields.split(", "))}
        tensors, named_tuple = [name for name in kinds if kinds[name].startswith("Tensor")], namedtuple
        others = [name for name in kinds if name not in tensors and not name.endswith("_number")]
        self.Args: Any = named_tuple("Args", tensors, defaults=[None for name in tensors if "?" in kinds[name]])
        self.Options: Any = named_tuple("Options", others)
        self.fields, self.has_one_result = list(kinds), results == "Tensor"
        register = torch.library.custom_op(f"portable_softmax::{self.name}", mutates_args=(), schema=f"({signature}")
        self.registered: Any = register(lambda *values: self.compute(*self.joined(values)))
        self.registered.register_fake(self._empty)
        if self.gradient:
            self.registered.register_autograd(_gradients, setup_context=self._save_of_operator)

    def sizes(self, args: Any, options: Any) -> dict[str, int]:
        """Returns integer parameters of the kernel that do not follow from the problem, by name."""
        return {}

    def results(self, args: Any, options: Any) -> tuple[tuple[Sequence[int], torch.dtype], ...]:
        """Returns the shapes and dtypes of results, which are contiguous: one of the shape of x."""
        return ((args[0].shape, getattr(options, "dtype", args[0].dtype)),)

    def _empty(self, *values: Any) -> Any:
        results = self.results(*self.joined(values))
        return launch.returned([torch.empty(shape, dtype=dtype, device=values[0].device) for shape, dtype in results])

    def call(self, args: Any, options: tuple[Any, ...], grad_inplace: bool = False) -> Any:
        """Computes results: by a launch for plain calls, as an operator of compilers, or by the reference."""
        if is_compiling():
            options = self.check(args, *options)
            compute = self.reference if launch.transforms_are_active() else self.call_registered
            return compute(args, options)
        call = self.call_of(args, options)
        if call.run is None or (call.is_recorded and launch.transforms_are_active()):
            return self.reference(args, call.options)
        if not call.is_recorded:
            return call.run(args)
        if grad_inplace:
            call = call._replace(grad_inplace=True)
        return _recorded(*args, call)

    def call_of(self, args: Any, options: tuple[Any, ...], invariant: bool | None = None, out: Tensor | None = None) -> Call:
        """Returns what a call does, which writes to `out` if there is one: kept by key, if its tensors are plain."""
        if invariant is None:
            invariant = is_batch_invariant()
        key_of_tensors, overwrites = launch.key_of((*args, out)), False
        if key_of_tensors is None:
            return Call(self, None, self.check(args, *options))
        if out is not None:
            overwrites = launch.overwrites(out, args[0])
        types = tuple(map(type, options))  # options of other types may be equal
        key = self.name, options, types, invariant, torch.is_grad_enabled(), overwrites, plans.n_measured, key_of_tensors
        try:
            call: Call | None = launch.calls.get(key)
        except TypeError:  # an option has no hash
            return Call(self, None, self.check(args, *options))
        if call is None:
            checked = self.check(args, *options)
            try:
                run = launch.run_of(self, args, checked, self.describe(args, checked, invariant), out)
            except launch.NoKernel:
                run = None
            call = Call(self, run, checked, self.gradient is not None and launch.is_recorded(args), invariant)
            if len(launch.calls) >= launch.MAX_CALLS:
                launch.calls.clear()
            launch.calls[key] = call
        return call

    def launch_into(self, out: Tensor, args: Any, options: tuple[Any, ...], invariant: bool | None = None) -> bool:
        """Launches a call that writes to out, and returns True; False for one that reads its memory, or is not launched."""
        if is_compiling() or (out.is_inference() and not torch.is_inference_mode_enabled()):
            return False
        run = self.call_of(args, options, invariant, out).run
        if run is None or launch.is_read(out, args):
            return False
        increment_version(out)
        run(args, out)
        return True

    def compute(self, args: Any, options: Any, invariant: bool | None = None) -> Any:
        """Computes results of a call that autograd does not record: by its launch, or by the reference if there is none."""
        call = self.call_of(args, options, invariant)
        return self.reference(args, call.options) if call.run is None else call.run(args)

    def compute_gradient(self, call: Call, args: Any, options: Any) -> Any:
        """Computes a gradient for a call: for compilers, by a launch, or by the reference, as in second derivatives."""
        if torch.is_grad_enabled():
            return self.reference(args, options)
        if call.run is None:  # the call was that of a compiler
            return self.call_registered(args, options)
        return self.compute(args, options, call.invariant)

    # The operator of compilers has the same rule, checks and gradients. It reads batch_invariant when a graph runs.

    def call_registered(self, args: Any, options: Any) -> Any:
        """Calls the registered operator."""
        values = {name if isinstance(t, Tensor) else f"{name}_number": t for name, t in args._asdict().items()}
        return self.registered(*map({**values, **options._asdict()}.get, self.fields))

    def joined(self, values: tuple[Any, ...]) -> tuple[Any, Any]:
        """Returns the arguments and options of a call of the registered operator, after checks."""
        named = dict(zip(self.fields, values, strict=True))
        for name in self.Args._fields:
            if (number := named.get(f"{name}_number")) is not None:
                if named[name] is not None:
                    raise ValueError(f"'{name}' and '{name}_number' exclude each other: pass a tensor or a number")
                named[name] = number
        args = normalized(self.name, self.Args(*map(named.get, self.Args._fields)))
        return args, self.check(args, *map(named.get, self.Options._fields))

    def _save_of_operator(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        args, options = self.joined(inputs)
        _save(ctx, Call(self, None, options), args, output)


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
    save(ctx, args if True in ctx.needs_input_grad[1:] else call.operator.saved(call, args, results))


def _gradients(ctx: Any, *dresults: Tensor | None) -> tuple[Any, ...]:
    """Computes the gradient of x by the operator's; if others are required, all of them by the reference."""
    call, needs, gradients = ctx.call, ctx.needs_input_grad, tuple[Any, ...]()
    operator, is_used = call.operator, any(dy is not None for dy in dresults)
    if is_used and True in needs[1:]:
        args = operator.Args(*saved(ctx))
        gradients = reference.differentiate(operator.reference, args, call.options, needs, dresults)
    elif is_used:
        gradients = (operator.gradient(call, saved(ctx), dresults),)
    return *gradients, *[None] * (len(needs) - len(gradients))


class Recorded(torch.autograd.Function):
    """A launch that autograd records."""

    @staticmethod
    def forward(ctx: Any, *args_and_call: Any) -> Any:  # noqa: D102
        *args, call = args_and_call
        results = call.run(args)
        _save(ctx, call, call.operator.Args(*args), results)
        return results

    backward = staticmethod(_gradients)


_recorded = super(torch.autograd.Function, Recorded).apply  # Function.apply itself first checks functorch's levels: none
