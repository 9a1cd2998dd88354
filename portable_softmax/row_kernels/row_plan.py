"""The request of a row kernel's launch, its settings, which are blocks, stages and warps, and the plan of the launch."""

import contextlib
import copy
import inspect
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, NamedTuple

from portable_softmax.devices.device import Device
from portable_softmax.errors import GridError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.planning.candidates import powers
from portable_softmax.planning.cost import Terms
from portable_softmax.planning.plan import Plan
from portable_softmax.planning.problem import next_power_of_2
from portable_softmax.row_kernels.arguments import axes_of, read_arguments
from portable_softmax.row_kernels.compiling import pruned
from portable_softmax.row_kernels.decorators import OF_CONFIG, constexprs_of, jit_function

BLOCKS = 1024, 16384  # elements of the shortest and the longest block, where a row has several
STAGES = 1, 3  # two hide nothing, four little more
DEFAULT_WARPS = 4  # Triton's
MAX_EACH = 64  # elements of a block per thread
TRITON_MULTIPLE = 16  # the multiple for which Triton checks numbers and addresses
Grid = tuple[int, ...] | Callable[[dict[str, Any]], tuple[int, ...]]


class Request(NamedTuple):
    """Request of a launch."""

    kernel: Any  # with its decorators
    names: tuple[str | None, str, str]  # of the parameters: the number of rows, elements of a row, and of a block
    arguments: dict[str, Any]  # and options of Triton's backend, by name
    meta: dict[str, Any]  # constexprs and options among them
    num_programs: int | None  # None if it is computed
    grid: Grid | None  # None if it is computed
    rows: int  # programs of the grid where no parameter is the number of rows
    cols: int
    multiple: int  # elements of which the start of a row is a multiple, as the compiler knows
    fixed: bool  # BLOCK, warps and stages do not depend on the number of rows: bits are promised, or num_programs is passed

    def grid_of(self, constants: Mapping[str, Any]) -> tuple[int, int, int]:
        """Returns the grid of the request, for values of constexprs; GridError if it is invalid, or does not cover all rows."""
        axes = axes_of(self.grid, {**self.arguments, **constants})
        if 0 in axes and self.names[0] and self.rows:
            raise GridError(f"the grid {axes} has no program for {self.names[0]}={self.rows}")
        return axes


class Setting(NamedTuple):
    """A configuration, with its block, warps, and stages of the pipelined loop."""

    config: Any
    block: int
    warps: int | None
    stages: int
    per_thread: float  # elements of a block; of all where programs have no warps

    def __str__(self) -> str:
        """Returns it as arguments."""
        return ", ".join(f"{name}={value!r}" for name, value in self.config.all_kwargs().items())


def settings_of(request: Request, device: Device | None, in_blocks: bool = False) -> list[Setting]:
    """Returns the autotuner's configurations, or all numbers of warps, with all blocks and stages that are not passed.

    Blocks are powers of two; with `in_blocks` they may be shorter than a row. Those settings remain that come closest to one to
    MAX_EACH elements of a block per thread. Without a device, the first setting is the simplest.
    """
    import triton

    jit, passed, block = jit_function(request.kernel), request.arguments, request.names[2]
    whole, warp = next_power_of_2(request.cols), device and device.hardware.warp_size
    names = re.findall(r"\bnum_stages\s*=\s*(\w+)", inspect.getsource(jit.fn))  # of a loop
    stages = min(constexprs_of(jit).intersection(names), default="")
    blocks = powers(min(whole, BLOCKS[0]), min(whole, BLOCKS[1])) if in_blocks else [whole]
    several: dict[str, Sequence[int]] = {block: blocks, stages: STAGES}
    if request.multiple == 1:  # elements of 16 bits are not copied ahead, and copies of 32 bits take up to 2.4 times as long
        several[stages] = STAGES[:1]
    parameter = inspect.signature(jit.fn).parameters.get("num_warps")  # which Triton's launch passes to the kernel too
    if device and warp:
        several["num_warps"] = powers(1, (device.hardware.max_threads_per_program or warp) // warp)
    elif parameter and parameter.default is parameter.empty:
        several["num_warps"] = [DEFAULT_WARPS]
    settings = list[Setting]()
    for base in pruned(request.kernel, passed, device) or [triton.Config({}, None, num_stages=None, num_ctas=None)]:
        computed = {name: values for name, values in several.items() if name and name not in passed | base.all_kwargs()}
        for values in itertools.product(*computed.values()):
            config, kwargs = copy.copy(base), base.kwargs | dict(zip(computed, values, strict=True))
            config.kwargs = {name: value for name, value in kwargs.items() if name not in passed}
            meta = config.all_kwargs() | passed
            per_thread = meta[block] / ((warp or 1) * (meta.get("num_warps") or 1))
            settings.append(Setting(config, meta[block], meta.get("num_warps"), meta.get(stages, 1), per_thread))
    settings = [setting for setting in settings if in_blocks or setting.block >= request.cols] or settings
    misfits = [max(MAX_EACH, one.per_thread, MAX_EACH / one.per_thread) for one in settings]
    return [one for one, misfit in zip(settings, misfits, strict=True) if not warp or misfit == min(misfits)]


def request_of(
    kernel: Any, names: tuple[str | None, str, str], default: Grid | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Request:
    """Returns the request of a call, with a default of its grid; raises the errors of a call."""
    jit, (n_rows, n_cols, block) = jit_function(kernel), names
    named = dict(inspect.signature(jit.fn).bind_partial(*args).arguments)
    if twice := named.keys() & kwargs.keys():
        raise TypeError(f"{jit.__name__} got multiple values for argument {min(twice)!r}")
    named |= kwargs
    grid = default if (passed_grid := named.pop("grid", None)) is None else passed_grid
    num_programs = None if "num_programs" in jit.arg_names else named.pop("num_programs", None)
    options = {name: named.pop(name) for name in [*named] if name not in jit.arg_names}
    arguments, _ = read_arguments(kernel, named)
    required, passed = [name for name in (n_rows, n_cols) if name], arguments | options | {"num_programs": num_programs}
    for name in (*required, "num_programs", *OF_CONFIG[:2], block):
        value, least = passed.get(name), {n_rows: 0}.get(name, 1)
        if (value is not None or name in required) and (type(value) is not int or value < least):
            remedy = f"; pass int({name})" if isinstance(value, Integral) and int(value) >= least else ""  # of numpy
            raise TypeError(f"{name} of {jit.__name__} should be an integer of at least {least}, not {value!r}{remedy}")
    if grid is not None and num_programs is not None:
        raise TypeError(f"{jit.__name__}: num_programs={num_programs} is for a computed grid, and grid= was passed")
    if grid is None and n_rows is None:
        raise TypeError(f"{jit.__name__}: pass grid= as in kernel[grid], or rows= if programs loop by tl.num_programs(0)")
    constexprs = constexprs_of(jit)
    meta = {name: value for name, value in arguments.items() if name in constexprs - {n_rows, n_cols}} | options
    cols, rows, is_fixed = arguments[n_cols], arguments.get(n_rows or "", 1), num_programs is not None or is_batch_invariant()
    multiple = math.gcd(cols, TRITON_MULTIPLE)
    known = multiple if multiple == TRITON_MULTIPLE or n_cols in constexprs else 1  # Triton knows this alone of other numbers
    request = Request(kernel, names, arguments | options, meta, num_programs, grid, rows, cols, known, is_fixed)
    if n_rows is None:
        with contextlib.suppress(TypeError):  # a grid that follows from a heuristic is known after compiling
            request = request._replace(rows=math.prod(request.grid_of(settings_of(request, None)[0].config.all_kwargs())))
    return request


@dataclass(frozen=True)
class RowPlan(Plan):
    """Launch of a row kernel, `kernel[grid](*arguments, **meta)`, and the reasons for it."""

    kernel: str
    size: tuple[int, int]  # rows and elements of a row
    device: str
    setting: Setting = field(repr=False)
    meta: dict[str, Any]  # constexprs and options, passed or computed
    grid: tuple[int, ...]
    terms: Terms | None = None  # expected microseconds by cause; None if the profile has no cost
    reasons: tuple[str, ...] = ()  # the decisions in order, in sentences

    @property
    def label(self) -> str:
        """Returns what differs from other launches, as arguments."""
        return ", ".join([str(self.setting), *(f"num_programs={programs}" for programs in self.grid if len(self.grid) < 2)])

    def __str__(self) -> str:
        grid = {"grid": self.grid} if len(self.grid) > 1 else {"num_programs": self.num_programs}
        launch = ", ".join(f"{name} {value}" for name, value in {**grid, **self.meta}.items())
        text = f"{self.kernel} of {' x '.join(map(str, self.size))} on {self.device}: {launch}"
        return self.printed(text, self.terms, self.reasons)
