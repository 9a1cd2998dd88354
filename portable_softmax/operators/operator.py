"""The rule of all operators: which calls are launched, what autograd records, and what compilers see."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, get_type_hints

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import launch, memory
from portable_softmax.operators.arguments import (
    DTYPES,
    Factor,
    Integers,
    SpecialCallError,
    facts,
    needs_of,
    transforms_are_active,
)
from portable_softmax.operators.checks import normalized

# What a field is in a schema, which has no unions: as a tensor, and as a number.
TENSORS = {Tensor: "Tensor", Tensor | None: "Tensor?", Factor: "Tensor?", Integers: "Tensor?"}
NUMBERS = {Factor: "float?", Integers: "SymInt?"}
OPTIONS = {float | None: "float?", bool: "bool", int: "SymInt", torch.dtype: "ScalarType", str: "str"}


class Call(NamedTuple):
    """Cached form of a call.

    Args:
        run: run(args, out) launches calls like it, where out may be None; None for one that the reference computes.
        options: what is computed, after checks.
        needs: which arguments require a gradient; () if autograd does not record the call.
        gradient: options of the gradient.
        invariant: the choice of batch_invariant, which a gradient follows.
        over: with out=, it is the first argument.
        reach: with out=, bytes between its address and those of tensors that it has no memory in common with.
    """

    run: Callable[..., Any] | None
    options: Any
    needs: tuple[bool, ...]
    gradient: Any
    invariant: bool = False
    over: bool = False
    reach: int = 0


@dataclass(eq=False)
class Operator:
    """An operator. Calling it computes results: by a launch for plain calls, as an operator of compilers, or by the reference.

    Args:
        name: of the registered operator, portable_softmax::name.
        arguments, options: NamedTuples, of which a schema is made.
        check: check(args, *options) returns the options after checks of all arguments; those that it returns are accepted too.
        reference: reference(args, options) computes the results by PyTorch's operators.
        problem: problem(args, options, invariant) returns what no kernel supports, or "", and what Problem describes.
        bind: bind(args, options, about, out) returns run(args, out), which launches plain calls like this one.
        empty: empty(args, options) returns results of the registered operator, contiguous, without contents.
        results: their types in the schema.
        finished: finished(options, results) returns the results of a call, of those of a launch or the registered operator.
        stored: stored(args, options) computes those of the registered operator by the reference.
        dresults: dresults(options, *gradients) returns the gradients of results, of those of the registered operator's.
        saved: saved(call, args, results) returns what gradients need.
        gradients: gradients(call, in_place, saved, dresults) returns those of the arguments; None without autograd.
        of_gradient: of_gradient(args, options) returns the options of the gradient's operator.
    """

    name: str
    arguments: Any
    options: Any
    check: Callable[..., Any]
    reference: Callable[..., Any]
    problem: Callable[..., tuple[str, dict[str, Any]]]
    bind: Callable[..., launch.Run]
    empty: Callable[..., Any]
    results: str = "Tensor"
    finished: Callable[..., Any] = lambda options, results: results
    stored: Callable[..., Any] | None = None
    dresults: Callable[..., tuple[Any, ...]] = lambda options, *gradients: gradients
    saved: Callable[..., tuple[Any, ...]] = lambda *inputs: ()
    gradients: Callable[..., Any] | None = None
    of_gradient: Callable[..., Any] = lambda args, options: options

    def __post_init__(self) -> None:
        kinds = get_type_hints(self.arguments)
        self.numbers = [name for name, kind in kinds.items() if kind in NUMBERS]
        fields = [f"{TENSORS[kind]} {name}" for name, kind in kinds.items()]
        fields += [f"{NUMBERS[kinds[name]]} {name}_number" for name in self.numbers]
        fields += [f"{OPTIONS[kind]} {name}" for name, kind in get_type_hints(self.options).items()]
        schema = f"({', '.join(fields)}) -> {self.results}"
        qualified = f"portable_softmax::{self.name}"
        self.registered = torch.library.custom_op(qualified, self._computed, mutates_args=(), schema=schema)
        self.registered.register_fake(lambda *values: self.empty(*self.joined(values)))
        if self.gradients:
            self.registered.register_autograd(self._gradients_of_operator, setup_context=self._save_of_operator)

    def __call__(self, args: Any, options: tuple[Any, ...], types: tuple[Any, ...] = (), in_place: bool = False) -> Any:
        """Computes results.

        Args:
            args: with numbers as floats.
            options: as the caller passed them.
            types: of those options that may be equal though they are of other types.
            in_place: the gradient of x is written over x.
        """
        if is_compiling():
            options = self.check(args, *options)
            if {args[0].dtype, self.dtype_of(args, options)} <= DTYPES and not transforms_are_active():
                return self.finished(options, self.call_registered(args, options))
            return self.reference(args, options)
        call = self.call_of(args, options, types)
        if call is None:
            return self.reference(args, self.check(args, *options))
        if call.run is None or (call.needs and transforms_are_active()):
            return self.reference(args, call.options)
        if call.needs:
            return _recorded(self, call, in_place, *args)
        return self.finished(call.options, call.run(args))

    def call_of(
        self, args: Any, options: tuple[Any, ...], types: tuple[Any, ...] = (), invariant: bool | None = None, out: Any = None
    ) -> Call | None:
        """Returns the cached form of a call with plain tensors, else None; arguments are checked once per key.

        Args:
            args, options, types: see __call__.
            invariant: the choice of batch_invariant; None for the active one.
            out: what results are written to, or None for new memory.
        """
        if invariant is None:
            invariant = is_batch_invariant()
        over = False
        try:
            tensors = facts(args) if out is None else facts((*args, out))
            if out is not None:  # elements of another type lie elsewhere
                over = out.data_ptr() == args[0].data_ptr() and out.dtype is args[0].dtype
            key = self.name, options, types, invariant, torch.is_grad_enabled(), over, tensors
            call: Call | None = launch.calls.get(key)
        except (SpecialCallError, TypeError):  # of an option without a hash, which `check` refuses
            return None
        if call is None:
            checked, run, reach = self.check(args, *options), None, 0
            if out is not None:
                reach = max(memory.extent(t) for t in (out, *args) if isinstance(t, Tensor))
            if out is None or memory.fits(out, args, self.dtype_of(args, checked), over):
                reason, about = self.problem(args, checked, invariant)
                if not reason and launch.has_kernels(args[0]):
                    run = self.bind(args, checked, about, out)
            needs = needs_of(args) if self.gradients else ()
            call = Call(run, checked, needs, self.of_gradient(args, checked), invariant, over, reach)
            call = launch.keep(key, call)
        return call

    def dtype_of(self, args: Any, options: Any) -> Any:
        """Returns the type of results of the shape of x."""
        return getattr(options, "dtype", args[0].dtype)

    def into(
        self, out: Tensor, args: Any, options: tuple[Any, ...], types: tuple[Any, ...] = (), invariant: bool | None = None
    ) -> bool:
        """Launches a call that writes to out, and returns True; False for one that reads its memory, or is not launched."""
        call = None if is_compiling() else self.call_of(args, options, types, invariant, out)
        if call is None or call.run is None or (out.is_inference() and not torch.is_inference_mode_enabled()):
            return False
        start = out.data_ptr()
        for t in args[1:] if call.over else args:
            if isinstance(t, Tensor) and abs(t.data_ptr() - start) < call.reach:
                return False
        increment_version(out)
        call.run(args, out)
        return True

    def launched(self, args: Any, options: Any, invariant: bool | None = None) -> Any:
        """Computes results of a call that autograd does not record: by a launch, or by the reference."""
        call = self.call_of(args, options, (), invariant)
        if call is None or call.run is None:
            return self.reference(args, options)
        return call.run(args)

    def of_call(self, call: Call, args: Any, options: Any) -> Any:
        """Computes a gradient for a call: for compilers, by a launch, or by the reference, as in second derivatives."""
        if torch.is_grad_enabled():
            return self.reference(args, options)
        if call.run is None or is_compiling():
            return self.call_registered(args, options)
        return self.launched(args, options, call.invariant)

    # The operator of compilers, by the same rule, with the same checks and gradients. It reads batch_invariant when a graph
    # runs. Its arguments are tensors or None, then numbers or None, then options.

    def call_registered(self, args: Any, options: Any) -> Any:
        """Calls the registered operator."""
        tensors = [t if isinstance(t, Tensor) else None for t in args]
        numbers = (getattr(args, name) for name in self.numbers)
        return self.registered(*tensors, *(None if isinstance(t, Tensor) else t for t in numbers), *options)

    def joined(self, values: tuple[Any, ...]) -> tuple[Any, Any]:
        """Returns the arguments and options of a call of the registered operator, after checks.

        Raises:
            ValueError: an argument is both a tensor and a number.
        """
        args, n_tensors = self.arguments(*values[: len(self.arguments._fields)]), len(self.arguments._fields)
        n_values = n_tensors + len(self.numbers)
        passed = zip(self.numbers, values[n_tensors:n_values], strict=True)
        numbers = {name: number for name, number in passed if number is not None}
        for name in numbers:
            if getattr(args, name) is not None:
                raise ValueError(f"'{name}' and '{name}_number' exclude each other: pass a tensor or a number")
        args = normalized(self.name, args._replace(**numbers))
        return args, self.check(args, *values[n_values:])

    def _computed(self, *values: Any) -> Any:
        args, options = self.joined(values)
        call = self.call_of(args, options)
        if call is not None and call.run is not None:
            return call.run(args)
        if self.stored:
            return self.stored(args, options)
        results = self.reference(args, options)
        return results.contiguous() if isinstance(results, Tensor) else results

    def _save_of_operator(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        args, options = self.joined(inputs)
        call = Call(None, options, ctx.needs_input_grad[: len(args)], self.of_gradient(args, options))
        _save(ctx, self, call, False, args, output)

    def _gradients_of_operator(self, ctx: Any, *dresults: Tensor | None) -> tuple[Any, ...]:
        options = ctx.call.options
        return *_gradients(ctx, self.dresults(options, *dresults)), *(None,) * (len(self.numbers) + len(options))


class Recorded(torch.autograd.Function):
    """A launch that autograd records."""

    @staticmethod
    def forward(ctx: Any, operator: Operator, call: Call, in_place: bool, *args: Any) -> Any:  # noqa: D102
        results = call.run(args)  # type: ignore[misc]
        _save(ctx, operator, call, in_place, args, results)
        return operator.finished(call.options, results)

    @staticmethod
    def backward(ctx: Any, *dresults: Tensor | None) -> tuple[Any, ...]:  # noqa: D102
        return None, None, None, *_gradients(ctx, dresults)


_recorded = super(torch.autograd.Function, Recorded).apply  # Function.apply itself first checks functorch's levels: none


def save(ctx: Any, values: tuple[Any, ...]) -> None:
    """Saves tensors and numbers for a backward."""
    ctx.numbers = [None if isinstance(value, Tensor) else value for value in values]
    ctx.save_for_backward(*[value if isinstance(value, Tensor) else None for value in values])


def saved(ctx: Any) -> list[Any]:
    """Returns what was saved, in its order."""
    return [number if t is None else t for t, number in zip(ctx.saved_tensors, ctx.numbers, strict=True)]


def _save(ctx: Any, operator: Any, call: Call, in_place: bool, args: Any, results: Any) -> None:
    """Saves what gradients need; gradients of results that are not used are None."""
    ctx.set_materialize_grads(False)
    ctx.operator, ctx.call, ctx.in_place = operator, call, in_place
    save(ctx, operator.saved(call, args, results))


def _gradients(ctx: Any, dresults: tuple[Tensor | None, ...]) -> Any:
    """Returns the gradients of the arguments."""
    if all(dy is None for dy in dresults):
        return (None,) * len(ctx.operator.arguments._fields)
    return ctx.operator.gradients(ctx.call, ctx.in_place, saved(ctx), dresults)
