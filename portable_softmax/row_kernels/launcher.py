"""Launches any kernel that works on rows: its block, warps and stages are computed, and its grid where that is safe."""

import functools
import importlib
import math
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch._compile import _disable_dynamo  # torch.compiler.disable imports dynamo at once, which takes seconds
from torch.compiler import is_dynamo_compiling

from portable_softmax.devices.detect import chosen, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.planning.operands import representative
from portable_softmax.planning.planner import MANY
from portable_softmax.row_kernels.decorators import OF_CONFIG, constexprs_of, decorated, jit_function
from portable_softmax.row_kernels.facts import Form
from portable_softmax.row_kernels.measuring import select
from portable_softmax.row_kernels.row_choice import Choice
from portable_softmax.row_kernels.row_plan import RowPlan, interpreted_plan
from portable_softmax.row_kernels.row_settings import Grid, Request, current_index, device_of, identity_of, request_of
from portable_softmax.runtime.guard import guarded
from portable_softmax.runtime.interpreted import ONE_LAUNCH
from portable_softmax.runtime.timing import check_measure, is_capturing

IN_CAPTURE = "{}: nothing is measured while a stream captures; launch it once, or call its warm_up, before the capture"
MAX_KEPT = 4096  # launches, of all sizes, and choices


class Launcher:
    """Launcher of a row-wise kernel, which computes its launches on any vendor's device, without tuning.

    ```python
    launch = persistent(rms_norm_kernel, rows="n_rows", cols="n_cols", block="BLOCK")  # programs loop over rows
    launch(x, w, y, n_rows, n_cols, eps)
    print(launch.plan(x, w, y, n_rows, n_cols, eps, device="amd/mi300x"))

    launch = launcher(softmax_kernel, cols="n_cols", block="BLOCK", grid=lambda meta: (meta["x"].shape[0],))
    launch(x, y, n_cols)
    ```

    BLOCK, num_warps, and a constexpr that a loop uses as `num_stages` are computed. If the kernel loops over the blocks of a
    row, or the grid depends on BLOCK, a block may be shorter than a row; otherwise it is the next power of two. Of an
    autotuner's configurations one is selected without measuring; heuristics set the remaining constexprs.

    The grid is computed too if the kernel is correct for any number of programs: if its programs loop over rows from
    `tl.program_id(0)` in steps of `tl.num_programs(0)`, in any spelling, as Triton's IR shows. Any other kernel
    requires `grid`. In the interpreter, which runs one program after another, nothing is checked, and there is one program for
    each row.

    The first call for a size, dtypes and alignments compiles a few configurations, and selects the one with the least expected
    time; later calls look it up. Neither waits for the device, so a CUDA graph can capture both. torch.compile breaks its graph
    at a launch, except in an operator of `torch.library.custom_op`. Under `batch_invariant`, or with num_programs, BLOCK,
    num_warps and num_stages do not depend on the number of rows, so a row has the same bits in every batch.

    Args:
        kernel: the @triton.jit function, with its decorators.
        rows, cols: names of the parameters that are the number of rows, and of elements of a row. Without `grid`, rows is
            required.
        block: name of the constexpr that is the number of elements of a block.
        grid: as in `kernel[grid]`: a tuple, or a function of the arguments by name that returns one. A call may pass another
            one, and any argument that is not to be computed: constexprs, num_warps and options of Triton's backend, and
            num_programs if the grid is computed.
        measure: number of configurations, such as 4, that are timed at the first call for a range of rows; None for none. These
            are the first ones by expected time, of 10 us and more, each with a program for every row and with resident ones,
            on copies of the tensors that the kernel stores to. A launch that is at least 2% faster twice replaces the first one
            in this process; `plan` prints what was measured, as arguments that make it permanent. Where bits are promised
            (`batch_invariant`, num_programs=, deterministic algorithms of torch), BLOCK and num_warps stay those of the first
            one. Ranks, and later processes, may select other launches.

    Raises:
        TypeError: the kernel has no such parameter, or `block` is not a constexpr.
    """

    _lock = threading.RLock()  # of all launchers: Triton has one driver

    def __init__(
        self,
        kernel: Any,
        *,
        cols: str,
        block: str,
        rows: str | None = None,
        grid: Grid | None = None,
        measure: int | None = None,
    ) -> None:
        check_measure(measure)
        self._measure = measure
        self.kernel, self._jit, self._names, self._grid = kernel, jit_function(kernel), (rows, cols, block), grid
        self._constexprs, known = constexprs_of(self._jit), self._jit.arg_names
        for role, name in (("rows", rows), ("cols", cols), ("block", block)):
            if name not in known and (role != "rows" or name is not None):
                words = f"{role}={name!r}: {self._jit.__name__} has no such parameter; it has {', '.join(known)}"
                raise TypeError(words + "; without a number of rows, pass grid= in place of rows=" * (role == "rows"))
        if reserved := {"grid", "warmup", "self"}.intersection(known):
            raise TypeError(f"{self._jit.__name__}: Triton's launch has a {min(reserved)} of its own; rename the parameter")
        if block not in self._constexprs:
            raise TypeError(f"block={block!r} is not a constexpr of {self._jit.__name__}; declare {block}: tl.constexpr")
        self._exact = {*self._constexprs, *filter(None, (rows, cols))}  # of others a class is enough
        self._read: Callable[..., Any] = dict[Any, Any]().__getitem__  # raises KeyError
        self._kept: dict[Any, Any] = {}  # launches, and choices

    def __deepcopy__(self, memo: object = None) -> "Launcher":
        """Returns the launcher itself, as it is a function: modules that hold one are copied, kernels of any scope too."""
        return self

    __copy__ = __deepcopy__

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the kernel by name."""
        return _named, (self._jit.fn.__module__, self._jit.fn.__qualname__, *self._names, self._grid, self._measure)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Launches the kernel on its arguments; returns what `kernel[grid](...)` does, or None where there are no rows.

        It is launched on the device of its tensors, or on the current one if there are none. Of the first launch of a kind
        accesses are compared with the sizes of tensors.

        Warns:
            RuntimeWarning: offsets do not fit their 32 bits, a load reaches outside of a tensor, or a passed block is shorter
                than a row, the rest of which is not accessed.

        Raises:
            CompileError: it does not compile, in the compiler's own words.
            GridError: the grid is not one to three integers of at least 0, or the device launches none of so many programs.
            PlanError: the kernel requires `grid`, num_programs or masks, a store reaches outside of a tensor, or no
                configuration fits the device.
            RuntimeError: tensors are on several devices.
            TypeError: an argument is missing, unknown or of another type.
        """
        if is_dynamo_compiling():  # which would go into Triton's launch
            return _outside(self, args, kwargs)
        try:
            launch = self._kept[self._read(*args, **kwargs)]
        except (KeyError, AttributeError, TypeError):  # new ones, or of other kinds than the last ones
            launch = None
        return (launch or self._looked_up(args, kwargs))(*args, **kwargs)

    def plan(self, /, *args: Any, device: Device | str | None = None, **kwargs: Any) -> RowPlan:
        """Returns the launch of a call with these arguments, and its reasons; nothing is launched.

        Args:
            args, kwargs: as of a call. A tensor may be of torch's device "meta", or text: "bf16[4096,1024]", or "*fp32:16" if
                its size is unknown, as of a buffer with one row per program, `plan.num_programs` in all.
            device: a Device, or the name of one, which may be absent; None is that of a call.

        Raises:
            ProfileError: there is no profile of that name.
            CompileError, GridError, PlanError, RuntimeError, TypeError: as of a call.
        """
        request = self.request(*args, **kwargs)
        return self._plan(request, device_of(request.arguments) if device is None else chosen(device))

    def warm_up(self, /, *args: Any, **kwargs: Any) -> RowPlan:
        """Plans, compiles and, with `measure`, times the launch of a call with these arguments, so that the call does not.

        Nothing is written to the tensors. Returns the plan, and raises the errors of a call.
        """
        if not interpreting():
            self._looked_up(args, kwargs)
        return self.plan(*args, **kwargs)

    def _plan(self, request: Request, where: Device) -> RowPlan:
        if where.backend == "interpreter":
            return interpreted_plan(request, where)
        with self._lock:
            return self._choice(request, where).plan(request)

    def _choice(self, request: Request, where: Device) -> Choice:
        rows = MANY if request.fixed else representative(max(1, request.rows))
        choice: Choice | None = self._kept.get(self._key(request, where, rows))
        if choice is None:
            choice = Choice(request, where, rows)
            self._note(choice.form)
            self._keep(self._key(request, where, rows), choice)
        return choice

    def _key(self, request: Request, where: Device, rows: int) -> tuple[Any, ...]:
        """Returns the key of a choice: all that it depends on."""
        values = {name: value for name, value in request.arguments.items() if name != self._names[0]}
        computed = request.grid is None or callable(request.grid)
        grid = identity_of(request.grid) if computed else representative(math.prod(request.grid_of({})) or 1)
        return where, rows, request.fixed, request.num_programs, grid, *self._reader((), values)(**values)

    def request(self, /, *args: Any, **kwargs: Any) -> Request:
        """Returns the request that the choice of a launch depends on; raises the errors of a call."""
        return request_of(self.kernel, self._names, self._grid, args, kwargs)

    def _note(self, form: Form) -> None:
        """Lets launches differ in all that a kernel's form depends on: numbers, and sizes of tensors."""
        if not (names := form.decisive | form.parts) <= self._exact:
            self._exact |= names
            self._kept.clear()

    def _keep(self, key: Any, value: Any) -> Any:
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[key] = value
        return value

    def _looked_up(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        self.request(*args, **kwargs)  # raises the error
        if interpreting():  # which does not check what a kernel reads from elsewhere, so that nothing is kept
            with ONE_LAUNCH:
                self._prepared(args, kwargs)(*args, **{name: kwargs[name] for name in self._jit.arg_names if name in kwargs})
            return _nothing
        with self._lock:
            self._read = self._reader(args, kwargs, current_index())
            launch = self._kept.get(self._read(*args, **kwargs)) or self._prepared(args, kwargs)
            self._read = self._reader(args, kwargs, current_index())  # of what the plan's form depends on, too
            is_kept = launch is not _nothing and not (self._measure and is_capturing(chosen(None)))
            return self._keep(self._read(*args, **kwargs), launch) if is_kept else launch

    def _reader(self, args: Sequence[Any], named: Mapping[str, Any], index: Any = None) -> Callable[..., tuple[Any, ...]]:
        """Returns a function of such arguments that reads what launches differ in; Triton too makes one per kernel."""
        first = self._jit.arg_names[: len(args)]
        parts = ["index__()"] * bool(index) + ["invariant__()", *map(repr, named)]
        sized = self._names[0] is None  # so that the grid follows from shapes and other numbers
        for name, value in zip((*first, *named), (*args, *named.values()), strict=False):
            if name == "grid":
                parts.append("identity__(grid)")
            elif name in self._names[:2]:
                parts.append(f"{name} | 0")  # no float
            elif name in self._constexprs or name not in self._jit.arg_names:
                parts += f"type__({name})", f"{name} or repr__({name})"  # 1 is True, and 0.0 is -0.0
            elif type(value) is int:
                parts += [name] if name in self._exact else [f"{name} == 1", f"{name} & 15 == 0"]
                parts += [f"{name}.bit_length()"] * sized
            elif hasattr(value, "data_ptr"):
                parts += f"{name}.dtype", f"{name}.data_ptr() & 15"
                parts += [f"{name}.get_device()"] * (bool(index) and hasattr(value, "get_device"))
                parts += [f"{name}.numel()"] * (hasattr(value, "numel") and (sized or name in self._exact))
            else:
                parts += [f"type__({name})"] + [name] * (name in self._exact and isinstance(value, int | float))
        known = {"index__": index, "invariant__": is_batch_invariant, "identity__": identity_of, "type__": type, "repr__": repr}
        signature = ", ".join([*first, *(["/"] if args else []), *(["*"] if named else []), *named])
        read: Callable[..., tuple[Any, ...]] = eval(f"lambda {signature}: ({', '.join(parts)},)", known)
        return read

    def _prepared(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Returns a function that launches the kernel on such arguments."""
        request = self.request(*args, **kwargs)
        device = device_of(request.arguments)
        if self._measure and request.rows and not interpreting():
            self._measured(request, device, args, kwargs)
        plan = self._plan(request, device)
        if not plan.num_programs:
            return _nothing
        for text in plan.warnings:
            warnings.warn(f"{self._jit.__name__}: {text}", RuntimeWarning, stacklevel=4)
        return self._bound(plan, device, args, kwargs)

    def _measured(self, request: Request, where: Device, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Lets the choice of a request prefer the fastest of its first launches, once; not while a stream captures."""
        choice = self._choice(request, where)
        if choice.measured:
            return
        if is_capturing(where):
            warnings.warn(IN_CAPTURE.format(self._jit.__name__), RuntimeWarning, stacklevel=5)
            return
        first = self._jit.arg_names[: len(args)]

        def call_of(plan: RowPlan, copies: Mapping[str, Any]) -> Callable[[], Any]:
            values, named = [copies[name] for name in first], {name: copies.get(name, kwargs[name]) for name in kwargs}
            return functools.partial(self._bound(plan, where, args, kwargs), *values, **named)

        select(choice, request, self._measure or 1, call_of, where)

    def _bound(self, plan: RowPlan, device: Device, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Returns a function that launches a plan on such arguments."""
        first = self._jit.arg_names[: len(args)]
        grid = plan.grid if interpreting() else kwargs.get("grid") or self._grid or plan.grid
        fixed = {name: value for name, value in plan.meta.items() if name not in first} | {"grid": grid}
        run = guarded(decorated(self.kernel, plan.config, plan.meta, launches=True).run, device)
        launch = functools.partial(run, warmup=False, **fixed)
        if any(name in OF_CONFIG for name in first):  # which is an option of Triton's launch too, by name
            return lambda *args, **named: launch(**dict(zip(first, args, strict=False)), **named)
        if ("num_programs" not in kwargs or "num_programs" in self._jit.arg_names) and kwargs.get("grid", ()) is not None:
            return launch
        return lambda *args, num_programs=None, grid=None, **named: launch(*args, **named, grid=grid or fixed["grid"])


def _nothing(*_: Any, **__: Any) -> None:
    """Launches no program."""


@_disable_dynamo
def _outside(run: Launcher, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return run(*args, **kwargs)


def _named(module: str, name: str, rows: str | None, cols: str, block: str, grid: Grid | None, measure: int | None) -> Launcher:
    kernel = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    return Launcher(kernel, rows=rows, cols=cols, block=block, grid=grid, measure=measure)


launcher = persistent = Launcher  # the second for kernels whose programs loop over rows
