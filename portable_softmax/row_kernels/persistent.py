"""Launches a kernel of anybody's that goes over rows: its block, warps, stages and number of programs are computed."""

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any

from torch import SymInt
from torch.compiler import disable, is_dynamo_compiling
from torch.library import wrap_triton

from portable_softmax.devices.detect import chosen
from portable_softmax.devices.device import Device
from portable_softmax.errors import PlanError
from portable_softmax.row_kernels.arguments import NAMES, Pointer
from portable_softmax.row_kernels.decorators import constexprs_of, decorated, jit_function
from portable_softmax.row_kernels.launched import by_position, read_arguments
from portable_softmax.row_kernels.resident import current_index
from portable_softmax.row_kernels.row_choice import Choice, RowPlan, interpreted
from portable_softmax.row_kernels.row_settings import Request
from portable_softmax.row_kernels.ttir import form_of, known_multiple

MOST_KEPT = 4096  # launches that are remembered, of all the sizes that were seen


def persistent(kernel: Any, *, rows: str, cols: str, block: str, **given: Any) -> "Persistent":
    """Makes a launcher of a kernel that goes over rows, for any vendor's device, with nothing to tune.

    ```python
    run = persistent(rms_norm_kernel, rows="n_rows", cols="n_cols", block="BLOCK")
    run(x, w, y, n_rows, n_cols, eps)
    print(run.plan(x, w, y, n_rows, n_cols, eps, device="amd/mi300x"))
    ```

    A program of the kernel walks over rows, as `for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0))`, or takes
    one row. Where it loops over the blocks of a row, as `for start in range(0, n_cols, BLOCK)`, a block may be shorter than a
    row; else it is the next power of two. A constexpr that a loop has as `num_stages` is computed too. Of an autotuner's
    configurations one is taken, and nothing is measured; heuristics give what they give, except for what is computed.

    The first call for a size, data types and alignments compiles a few configurations, and takes the one of the least expected
    time; the next one looks it up. Neither waits for the device, so that a CUDA graph may capture both. In an operator of
    `torch.library.triton_op`, torch.compile sees the kernel.

    Args:
        kernel: the @triton.jit function, with its decorators.
        rows, cols: the parameters that are the number of rows, and of elements of a row.
        block: the constexpr that is the number of elements of a block.
        given: what is not computed, by name: num_programs, num_warps and other options of Triton's backend, constexprs. A call
            may give them too. Where num_programs is given nothing depends on the number of rows, so that a row has the same
            bits in every batch.

    Raises:
        TypeError: there is no such parameter, or `block` is no constexpr.
    """
    return Persistent(kernel, rows, cols, block, given)


class Persistent:
    """A launcher; `persistent` makes it."""

    def __init__(self, kernel: Any, rows: str, cols: str, block: str, given: Mapping[str, Any]) -> None:
        self.kernel, self._jit, self._given = kernel, jit_function(kernel), dict(given)
        names, constexprs = self._jit.arg_names, constexprs_of(self._jit)
        for role, name in (("rows", rows), ("cols", cols), ("block", block)):
            if name not in names:
                raise TypeError(f"{role}={name!r}: {self._jit.__name__} has no such parameter; it has {', '.join(names)}")
        if block not in constexprs:
            raise TypeError(f"block={block!r} is no constexpr of {self._jit.__name__}; declare {block}: tl.constexpr")
        self._sizes, self._block, self._form = (rows, cols), block, form_of(self._jit, rows, block)
        self._exact = {name: name in constexprs or name in (rows, cols) for name in names}  # of others a class is enough
        self._known: dict[Any, Callable[..., Any]] = {}
        self._read: Callable[..., Any] = dict[Any, Any]().__getitem__  # knows nothing
        self._choices: dict[Any, Choice] = {}
        self._lock = threading.RLock()
        self._outside = disable(self.__call__)  # type: ignore[no-untyped-call]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Launches the kernel on its arguments; returns what `kernel[grid](...)` does, or None where there are no rows.

        Raises:
            CompileError: it does not compile, in the compiler's own words.
            GridError: a program takes one row, and the device launches no grid of so many.
            PlanError: no configuration fits the device.
            TypeError: an argument is missing or unknown.
        """
        if is_dynamo_compiling():  # which would go into Triton's launch
            return self._outside(*args, **kwargs)
        try:
            launch = self._known[self._read(*args, **kwargs)]
        except (KeyError, AttributeError, TypeError, RuntimeError):  # new ones, or of other kinds than the last ones
            launch = self._looked_up(args, kwargs)
        return launch(*args, **kwargs)

    def plan(self, *args: Any, device: Device | str | None = None, **kwargs: Any) -> RowPlan:
        """Returns the launch that such a call has, and the reasons for it; launches nothing.

        Args:
            args, kwargs: as of a call. A tensor may be of torch's device "meta", or text: "bf16[4096,1024]", or "*fp32:16" if
                its size is unknown, as of a buffer that has a row for each of `plan.num_programs`.
            device: the current one if None; `Device.from_profile`, or just the name, gives one that is not here.

        Raises:
            ProfileError: there is no profile of that name.
            CompileError, GridError, PlanError, TypeError: as of a call.
        """
        request = self.request(*args, **kwargs)
        if (where := chosen(device)).backend == "interpreter":
            return interpreted(request, where)
        kinds = [(name, *_kind(each, self._exact[name])) for name, each in request.arguments.items() if name != self._sizes[0]]
        key = where, request.num_programs, *kinds, *request.options.items()
        with self._lock:
            if key not in self._choices:
                self._choices[key] = Choice(request, where)
            return self._choices[key].plan(request.rows, request.arguments)

    def request(self, *args: Any, **kwargs: Any) -> Request:
        """Returns what a launch is chosen by; errors as of a call."""
        options = {**self._given, **kwargs}
        named = by_position(self.kernel, args) | {name: options.pop(name) for name in self._exact if name in options}
        named = {name: _stand_in(each) for name, each in named.items()}
        if hasattr(self._jit, "params"):  # the interpreter's kernels take no text
            named = {name: each.value for name, each in read_arguments(self._jit, named).items()}
        for name in self._sizes:
            if not isinstance(named.get(name), int) or named[name] < 0:
                raise TypeError(f"{name} of {self._jit.__name__} should be a number from 0 on, not {named.get(name)!r}")
        num_programs = options.pop("num_programs", None)
        fixed = {name: each for name, each in named.items() if name in self._given or self._exact[name]}
        meta = {name: each for name, each in fixed.items() if name not in self._sizes} | options
        rows, cols = (named[name] for name in self._sizes)
        if num_programs and not self._form.walks and num_programs != rows:
            one = f"{self._jit.__name__} takes a row a program, {rows} of them"
            raise PlanError(f"num_programs={num_programs} was given, and {one}; let its programs loop over rows")
        multiple = known_multiple(cols, self._sizes[1] in constexprs_of(self._jit))
        return Request(self.kernel, self._form, self._block, named, options, meta, num_programs, rows, cols, multiple)

    def _looked_up(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        args = tuple(int(each) if isinstance(each, SymInt) else each for each in args)
        with self._lock:
            self._read = self._reader(args, kwargs)
            if (key := self._read(*args, **kwargs)) not in self._known:
                if len(self._known) >= MOST_KEPT:
                    self._known.clear()
                self._known[key] = self._prepared(args, kwargs)
            return self._known[key]

    def _reader(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., tuple[Any, ...]]:
        """Returns a function of such arguments that reads what launches differ in; Triton too makes one for each kernel."""
        names = [*self._jit.arg_names[: len(args)], *kwargs]
        parts = ["index()", *map(repr, kwargs)]
        for name, value in zip(names, (*args, *kwargs.values()), strict=False):
            if self._exact.get(name, True):
                parts.append(name)
            elif type(value) is int:
                parts += f"{name} == 1", f"{name} & 15 == 0"
            elif hasattr(value, "data_ptr"):
                place = "storage_offset()" if _is_traced(value) else "data_ptr() & 15"
                parts += f"type({name})", f"{name}.dtype", f"{name}.{place}"
            else:
                parts.append(f"type({name})")
        read: Callable[..., tuple[Any, ...]] = eval(
            f"lambda {', '.join(names)}: ({', '.join(parts)},)", {"index": current_index()}
        )
        return read

    def _prepared(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Returns what launches the kernel on such arguments."""
        plan = self.plan(*args, **kwargs)
        if not plan.num_programs:
            return lambda *_, **__: None
        kernel, _ = decorated(self.kernel, None, plan.meta, (), [plan.config])
        traced = any(map(_is_traced, (*args, *kwargs.values())))
        launch = (
            wrap_triton(kernel)[(plan.num_programs,)]
            if traced
            else functools.partial(kernel.run, grid=(plan.num_programs,), warmup=False)
        )
        meta = {name: value for name, value in plan.meta.items() if name not in self._jit.arg_names[: len(args)]}
        names = [name for name in kwargs if name in self._exact and name not in meta]
        launch = functools.partial(launch, **meta)
        return (lambda *args, **kwargs: launch(*args, **{name: kwargs[name] for name in names})) if kwargs else launch


def _kind(value: Any, exact: bool) -> tuple[Any, ...]:
    """Returns what launches differ in, of an argument: a tensor's type and alignment, a number's class; itself if `exact`."""
    if exact:
        return (value,)
    if type(value) is int:
        return (2 if value == 1 else value & 15 == 0,)
    if not hasattr(value, "data_ptr"):
        return (type(value),)
    try:
        return type(value), value.dtype, value.data_ptr() & 15 == 0
    except RuntimeError:  # it has no memory
        return type(value), value.dtype, _is_aligned(value)


def _is_traced(value: Any) -> bool:
    """Tells whether an argument is a tensor of a compiler that traces: one without memory."""
    return type(value).__name__ in ("FakeTensor", "FunctionalTensor")


def _is_aligned(value: Any) -> bool:
    return bool(value.storage_offset() * value.element_size() % 16 == 0)


def _stand_in(value: Any) -> Any:
    """Returns what Triton compiles for in place of a tensor that has no memory."""
    if not _is_traced(value):
        return value
    return Pointer(NAMES[str(value.dtype).removeprefix("torch.")], _is_aligned(value), tuple(map(int, value.shape)))
