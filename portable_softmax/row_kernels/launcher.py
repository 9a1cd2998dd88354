"""Launches any kernel that works on rows: its block, warps and stages are computed, and its grid where that is safe."""

import functools
import itertools
import math
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import CellType
from typing import Any

import torch
from torch._compile import _disable_dynamo  # torch.compiler.disable imports dynamo at once, which takes seconds
from torch.compiler import is_dynamo_compiling

from portable_softmax.devices.detect import chosen, current_device, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.planning.operands import MANY, numbers_of, representative
from portable_softmax.row_kernels.buckets import Kept, plan_by_bucket
from portable_softmax.row_kernels.decorators import OF_CONFIG, arguments_of, constexprs_of, heuristics_of, jit_function
from portable_softmax.row_kernels.row_choice import Choice
from portable_softmax.row_kernels.row_plan import Grid, Request, RowPlan, request_of, settings_of
from portable_softmax.runtime.compile import ONE_LAUNCH, on_device
from portable_softmax.runtime.measuring import check_measure, is_capturing

IN_CAPTURE = "nothing is measured while a stream captures; launch it once, or call its warm_up, before the capture"


class Launcher:
    """Launcher of a row-wise kernel, which computes its launches on any vendor's device, without tuning.

    ```python
    launch = persistent(rms_norm_kernel, rows="n_rows", cols="n_cols", block="BLOCK")  # programs loop over rows
    launch(x, w, y, n_rows, n_cols, eps)
    print(launch.plan(x, w, y, n_rows, n_cols, eps, device="amd/mi300x"))
    launch = launcher(softmax_kernel, cols="n_cols", block="BLOCK", grid=lambda meta: (meta["x"].shape[0],))
    ```

    BLOCK, num_warps, and a constexpr that a loop uses as `num_stages` are computed, and the grid if the kernel is correct for
    any number of programs (docs/row_kernels.md): one for every row, or fewer, by either name. The first call for a bucket of
    rows, dtypes, alignments and columns compiles some settings, and selects the one with the least expected time; later calls
    look it up, unchecked. Neither waits for the device: a CUDA graph can capture both; torch.compile breaks its graph there.

    Args:
        kernel: the @triton.jit function, with its decorators.
        rows, cols: names of the parameters that are the number of rows, required without `grid`, and of elements of a row.
        block: name of the constexpr that is a block's number of elements.
        grid: as in `kernel[grid]`: a tuple, or a function of the arguments by name that returns one. A call may pass another
            one, and any argument that is not to be computed: constexprs, options such as num_warps, and num_programs.
        measure: number of settings, such as 4, that are timed at the first call for a bucket of rows, on copies of its
            tensors; one that is 2% faster than the first is launched in this process. None for none.

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
        self.kernel, self._jit, self._names = kernel, jit_function(kernel), (rows, cols, block)
        self._grid, self._measure = grid, measure
        self._constexprs, known = constexprs_of(self._jit), self._jit.arg_names
        if unknown := {rows or cols, cols, block}.difference(known):
            text = f"{self._jit.__name__} has no parameter {', '.join(map(repr, unknown))}; it has {', '.join(known)}"
            raise TypeError(f"{text}; without a number of rows, pass grid= in place of rows=")
        if reserved := {"grid", "warmup", "self"}.intersection(known):
            raise TypeError(f"{self._jit.__name__}: Triton's launch has a {min(reserved)} of its own; rename the parameter")
        if block not in self._constexprs:
            raise TypeError(f"block={block!r} is not a constexpr of {self._jit.__name__}; declare {block}: tl.constexpr")
        self._by_value = {*self._constexprs, *filter(None, (rows, cols))}  # names of what `_key` has by value; choices add some
        self._choices: dict[Any, Choice] = Kept()
        self._bucket_plans: dict[Any, RowPlan | None] = Kept()
        self._calls: dict[Any, Callable[..., Any]] = Kept()

    def __deepcopy__(self, memo: object = None) -> "Launcher":
        """Returns the launcher itself, as it is a function: modules that hold one are copied, kernels of any scope too."""
        return self

    __copy__ = __deepcopy__

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Launches the kernel on the device of its tensors, or, if there are none, on the current one.

        Returns what `kernel[grid](...)` does, or None without rows. Warns if offsets do not fit their 32 bits, a load
        reaches outside of a tensor, or a passed block is shorter than a row, the rest of which is not accessed.

        Raises:
            CompileError: it does not compile, in the compiler's own words.
            GridError: the grid is not one to three integers of at least 0, or the device launches none of so many programs.
            PlanError: the kernel requires `grid`, num_programs or masks, a store is outside of its tensor, or nothing fits.
            RuntimeError: tensors are on several devices.
            TypeError: an argument is missing, unknown or of another type.
        """
        if is_dynamo_compiling():  # which would go into Triton's launch
            return _run_uncompiled(self, args, kwargs)
        try:
            launch = self._calls.get(self._key(args, kwargs))
        except TypeError:  # a constexpr without a hash, which the request names
            launch = None
        return (launch or self._looked_up(args, kwargs))(*args, **kwargs)

    def plan(self, /, *args: Any, device: Device | str | None = None, **kwargs: Any) -> RowPlan:
        """Returns the launch of a call with these arguments, and its reasons; nothing is launched. Raises the errors of a call.

        A tensor may be of torch's device "meta", or text: "bf16[4096,1024]", or "*fp32:16" if its size is unknown, as of a
        buffer with one row per program, `plan.num_programs` in all. `device` is a Device, or the name of one, which may be
        absent; None is that of a call. ProfileError if no profile has that name.
        """
        request = self.request(*args, **kwargs)
        planned = device_of(request.arguments) if device is None else chosen(device)
        if planned.backend == "interpreter":
            return interpreted_plan(request, planned)
        with self._lock:
            return self._choice(request, planned).plan(request)

    def warm_up(self, /, *args: Any, **kwargs: Any) -> RowPlan:
        """Plans, compiles and, with `measure`, times the launch of a call, so that the call does not; writes to no tensor.

        Returns the plan, and raises the errors of a call.
        """
        if not interpreting():
            self._looked_up(args, kwargs)
        return self.plan(*args, **kwargs)

    def request(self, /, *args: Any, **kwargs: Any) -> Request:
        """Returns the request that the choice of a launch depends on; raises the errors of a call."""
        return request_of(self.kernel, self._names, self._grid, args, kwargs)

    def _choice(self, request: Request, device: Device) -> Choice:
        """Returns the choice of a request's launch, which depends on a range of numbers of rows."""
        bucket = (MANY,) if request.fixed else numbers_of(max(1, request.rows))
        grid = identity_of(request.grid)
        if request.grid is not None and not callable(request.grid):
            grid = representative(math.prod(request.grid_of({})) or 1)
        bucketed = {self._names[0]} - self._constexprs
        values = {name: value for name, value in request.arguments.items() if name not in bucketed}

        def key() -> tuple[Any, ...]:
            return device, bucket, request.fixed, request.num_programs, grid, self._key((), values)

        if (choice := self._choices.get(key())) is None:
            choice = Choice(request, device, bucket)
            # Keys made from now on hold these values, too, as launches differ in them; entries made before are not found again.
            self._by_value |= choice.form.decisive | choice.form.parts
            self._choices[key()] = choice
        return choice

    def _key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Returns what launches of such arguments differ in.

        * the number of positional arguments, the names of keywords, `batch_invariant`, and what a passed grid follows from;
        * the values of what `_by_value` names: rows, cols, constexprs, and what choices add, and of all options;
        * of tensors dtype, address modulo 16, and device; also the size if `_by_value` names them, and without `rows`;
        * of other integers whether they are 1, and multiples of 16; without `rows`, also the number of bits;
        * of all other parameters the type.
        """
        is_sized = self._names[0] is None  # so that the grid follows from shapes and other numbers
        known, constexprs = self._jit.arg_names, self._constexprs
        key: list[Any] = [len(args), *kwargs, is_batch_invariant()]
        for name, value in itertools.chain(zip(known, args, strict=False), kwargs.items()):
            is_by_value = name in self._by_value or name not in known  # as options are
            if type(value) is int and name not in constexprs:
                key += (value,) if is_by_value else (value == 1, value & 15 == 0)
                if is_sized:
                    key.append(value.bit_length())
            elif hasattr(value, "data_ptr"):
                key += value.dtype, value.data_ptr() & 15, getattr(value, "get_device", int)()
                if (is_sized or is_by_value) and hasattr(value, "numel"):
                    key.append(value.numel())
            elif name == "grid":
                key.append(identity_of(value))
            elif is_by_value:
                key += type(value), value or repr(value)  # 1 is True, and 0.0 is -0.0
            else:
                key.append(type(value))
        return tuple(key)

    def _looked_up(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Returns a function that launches the kernel on such arguments; _nothing in the interpreter, which runs it at once."""
        request = self.request(*args, **kwargs)  # raises the error
        device = device_of(request.arguments)
        if interpreting():  # which does not check what a kernel reads from elsewhere, so that nothing is kept
            with ONE_LAUNCH:
                run = self._bind(interpreted_plan(request, device), device, args, kwargs)
                run(*args, **{name: kwargs[name] for name in kwargs if name != "grid"})
            return _nothing

        def call_of(plan: RowPlan, copies: Mapping[str, Any]) -> Callable[[], Any]:
            values = [copies[name] for name in self._jit.arg_names[: len(args)]]
            named = {name: copies.get(name, kwargs[name]) for name in kwargs}
            return functools.partial(self._bind(plan, device, args, kwargs), *values, **named)

        with self._lock:
            if launch := self._calls.get(self._key(args, kwargs)):  # of another thread
                return launch
            choice, texts = self._choice(request, device), list[str]()
            captures = self._measure is not None and is_capturing(device)
            if self._measure and request.rows and not choice.measurement:
                if captures:
                    texts.append(IN_CAPTURE)
                else:
                    on_device(choice.measure, device)(request, self._measure, call_of)
            plan = plan_by_bucket(self._bucket_plans, request, choice)
            for text in (*texts, *plan.warnings):
                warnings.warn(f"{self._jit.__name__}: {text}", RuntimeWarning, stacklevel=3)
            launch = self._bind(plan, device, args, kwargs)
            # Without tensors, the current device decides, which the key does not have.
            has_tensors = any(isinstance(value, torch.Tensor) for value in request.arguments.values())
            if plan.num_programs and has_tensors and not captures:
                self._calls[self._key(args, kwargs)] = launch
            return launch

    def _bind(self, plan: RowPlan, device: Device, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Returns a function that launches a plan on such arguments."""
        if not plan.num_programs:
            return _nothing
        names = self._jit.arg_names
        first = names[: len(args)]
        default = plan.grid if interpreting() or self._grid is None else self._grid
        meta = {name: value for name, value in plan.meta.items() if name not in first and name not in kwargs}
        run = on_device(self._jit.run, device)
        has_more = plan.setting.config.pre_hook or heuristics_of(self.kernel)
        by_name = has_more or any(name in OF_CONFIG for name in first)  # which is an option of Triton's launch too, by name
        is_parameter = "num_programs" in names

        def launch(*args: Any, grid: Any = None, **named: Any) -> Any:
            named = meta | named
            if not is_parameter:
                named.pop("num_programs", None)
            if by_name:
                named, args = {**dict(zip(first, args, strict=False)), **named}, ()
            if has_more:
                named = arguments_of(self.kernel, plan.setting.config, named, launches=True)
            return run(*args, **named, grid=grid or default, warmup=False)

        return launch


def interpreted_plan(request: Request, device: Device) -> RowPlan:
    """Returns the launch in Triton's interpreter: by its grid, as `kernel[grid]`, else by one program for each row."""
    setting, name = settings_of(request, None)[0], jit_function(request.kernel).__name__
    meta = request.meta | setting.config.all_kwargs()
    grid: tuple[int, ...] = (request.num_programs or request.rows,)
    if request.grid is not None:
        grid = request.grid_of(arguments_of(request.kernel, setting.config, request.arguments | meta))
    programs = math.prod(grid) if request.rows else 0
    return RowPlan(name, (request.rows, request.cols), device.name, setting, meta, grid, num_programs=programs)


def identity_of(grid: Any) -> Any:
    """Returns what a grid follows from beside arguments: a lambda in a call is another function in every call."""
    if not hasattr(grid, "__code__"):
        return _value(grid)
    cells = [CellType if cell == CellType() else cell.cell_contents for cell in grid.__closure__ or ()]  # an empty one has none
    return grid.__code__, *map(_value, (getattr(grid, "__self__", None), *(grid.__defaults__ or ()), *cells))


def _value(bound: Any) -> Any:
    """Returns a hashable key of a value: the shape of a tensor, the text of a dictionary."""
    if isinstance(bound, tuple | list):
        return tuple(map(_value, bound))
    return getattr(bound, "shape", bound if bound.__hash__ else repr(bound))


def device_of(arguments: Mapping[str, Any]) -> Device:
    """Returns the device of tensors, or the current one if there are none; RuntimeError if there are several."""
    tensors = [(value.device, name) for name, value in arguments.items() if isinstance(value, torch.Tensor)]
    places = {device: name for device, name in tensors if device.type not in ("cpu", "meta")}
    if len(places) > 1:
        text = " and ".join(f"{name} is on {place}" for place, name in places.items())
        raise RuntimeError(f"Expected all tensors to be on the same device, but {text}")
    return current_device(*[place.index for place in places])


def _nothing(*_: Any, **__: Any) -> None:
    """Launches no program."""


@_disable_dynamo
def _run_uncompiled(run: Launcher, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return run(*args, **kwargs)


launcher = persistent = Launcher  # the second for kernels with a loop over rows; a program for every row may be faster
