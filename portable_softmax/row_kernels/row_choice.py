"""Chooses the launch of a row kernel for a range of numbers of rows: a few settings are compiled, the fastest is selected."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.backends.machine_code import Loop
from portable_softmax.devices.device import Device
from portable_softmax.errors import GridError, PlanError
from portable_softmax.planning.candidates import FEW, REGISTERS, available
from portable_softmax.planning.cost import Terms, cost
from portable_softmax.planning.facts import RowLaunch, row_facts, row_work
from portable_softmax.planning.plan import printed
from portable_softmax.planning.planner import MANY, MAX_COMPILED, compile_best, measured, runner_up
from portable_softmax.planning.problem import VECTOR_BYTES, next_power_of_2
from portable_softmax.row_kernels import addresses, facts
from portable_softmax.row_kernels.compiling import compiled_for, failure
from portable_softmax.row_kernels.decorators import configurations, constants_in, constants_of, jit_function
from portable_softmax.row_kernels.row_settings import KNOWN, Request, Setting, settings_of
from portable_softmax.row_kernels.ttir import Function, parsed_of, stored
from portable_softmax.runtime.measuring import on_copies, timed

RANKED = 3  # settings that are compared for the very number of rows of a launch
SEVERAL = KNOWN + 1  # rows, in place of one, which Triton makes a constant, or none


@dataclass(frozen=True)
class RowPlan:
    """A launch of a row kernel, and the reasons for it.

    Args:
        kernel: its name.
        size: rows and elements of a row.
        device: name of the device.
        num_programs: of the grid; 0 where there are no rows, and nothing is launched.
        meta: constexprs and options, passed or computed: the launch is `kernel[grid](*arguments, **meta)`.
        grid: its programs along each axis.
        resources, occupancy: of a program, and how many fit; None in the interpreter.
        terms: expected microseconds, by cause; None in the interpreter, or if no bandwidth is known.
        reasons: sentences.
        warnings: sentences about what is wrong with the kernel at this size.
        config: Triton's Config that was selected.
        form: in which the kernel goes over rows.
    """

    kernel: str
    size: tuple[int, int]
    device: str
    num_programs: int
    meta: dict[str, Any]
    grid: tuple[int, ...] = ()
    resources: KernelResources | None = None
    occupancy: Occupancy | None = None
    terms: Terms | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    config: Any = field(default=None, repr=False)
    form: facts.Form = field(default=facts.Form(True), repr=False)

    def __str__(self) -> str:
        grid = {"grid": self.grid} if len(self.grid) > 1 else {"num_programs": self.num_programs}
        launch = ", ".join(f"{name} {value}" for name, value in {**grid, **self.meta}.items())
        launch = f"{self.kernel} of {' x '.join(map(str, self.size))} on {self.device}: {launch}"
        return printed(launch, self, (*self.reasons, *self.warnings))


def interpreted_plan(request: Request, device: Device) -> RowPlan:
    """Returns the launch in Triton's interpreter: by its grid, as `kernel[grid]`, else by one program for each row."""
    config, name = settings_of(request, None)[0].config, jit_function(request.kernel).__name__
    constants = request.meta | config.all_kwargs()
    grid: tuple[int, ...] = (request.num_programs or request.rows,)
    if request.grid is not None:
        grid = request.grid_of(constants_in(request.kernel, config, request.arguments | constants))
    programs = math.prod(grid) if request.rows else 0
    return RowPlan(name, (request.rows, request.cols), device.name, programs, constants, grid, config=config)


class Used(NamedTuple):
    """What a program of a setting uses, or is expected to, the values of its constexprs, and its code."""

    setting: Setting
    resources: KernelResources
    occupancy: Occupancy
    constants: dict[str, Any]
    loops: Sequence[Loop]
    function: Function


class Candidate(NamedTuple):
    """A launch for a range of numbers of rows: with a program for every row, or as many as are resident."""

    used: Used
    is_whole: bool
    terms: Terms | None
    us: float  # the number of a row's blocks where the memory's bandwidth is unknown

    @property
    def words(self) -> str:
        """Returns what differs from other candidates, as arguments."""
        programs = "a program for every row" if self.is_whole else "resident programs"
        return f"{self.used.setting}, {programs}"


class Choice:
    """The settings of a request that are compiled for a device, the one to use first: a function of the two alone.

    Args:
        request: its tensors are not kept.
        device: the target.
        rows: number of rows that settings are compared for.

    Raises:
        PlanError: no setting fits, or only some number of programs is right, and none was passed.
        CompileError, TypeError: as of `Launcher.plan`.
    """

    def __init__(self, request: Request, device: Device, rows: int) -> None:
        self._device, self._jit, self._rows = device, jit_function(request.kernel), rows
        self._compiled: dict[Setting, Used] = {}
        self.measured = ""  # what was timed, in a sentence
        arguments = request.arguments
        if request.names[0] and (request.fixed or request.rows < 2):
            arguments = {**arguments, request.names[0]: SEVERAL}
        settings = settings_of(request, device, True)
        probe = min(settings, key=lambda setting: (setting.block, self._unlike(setting), setting.stages))
        first = self._use(request._replace(arguments=arguments), [probe])[0]
        if isinstance(first, Exception):
            raise failure(first, self._jit, device) from first
        self._splits = self._learn(request, arguments, first)
        self._left = settings_of(request, device, self.form.in_blocks or self._splits)
        if request.fixed:
            request = request._replace(arguments=arguments)
        if probe not in self._left or arguments is not request.arguments:
            self._compiled.clear()
        self._request, self._count = request, len(self._left)
        self.candidates: list[Candidate] = []
        self.candidates, self._rejected = compile_best(self._expected, self._compile, MAX_COMPILED + 4, MAX_COMPILED)
        if not self.candidates:
            words = f"no program of {self._jit.__name__} fits {device.name}: {self._rejected[0]}"
            raise PlanError(f"{words}; use a smaller {request.names[2]}")

    def _learn(self, request: Request, arguments: Mapping[str, Any], first: Used) -> bool:
        """Reads the form of the kernel; returns True if programs may take blocks of a row."""
        function, block, walks = first.function, first.setting.block, request.grid is None
        self.form = facts.form_of(function, arguments, *request.names[:2], block, walks)
        if not self.form.walks:
            facts.check_form(self.form, request)
        splits, longest = False, {request.names[2]: next_power_of_2(request.cols)}
        if callable(request.grid) and request.names[2] not in request.meta:
            splits = request.grid_of(first.constants) != request.grid_of(first.constants | longest)
        if splits or configurations(request.kernel):  # blocks of rows, and pruning, may depend on any number
            self.form = self.form._replace(decisive=frozenset(request.arguments))
        return splits

    def plan(self, request: Request) -> RowPlan:
        """Returns the launch of a request that differs from the choice's in the number of rows and in sizes at most."""
        facts.check_form(self.form, request)
        if request.fixed or self.measured.startswith("measured: "):
            return self._plan(request, self.candidates)
        few = [one for first in self.candidates[:RANKED] for one in self._candidates(first.used, max(1, request.rows))]
        return self._plan(request, [*sorted(few, key=lambda one: one.us), *self.candidates[RANKED:]])

    def measure(self, request: Request, count: int, call_of: Callable[..., Callable[[], Any]]) -> None:
        """Times the first settings by cost that do not spill, with both numbers of programs; the fastest is first from now on.

        BLOCK and warps stay those of the first one where bits are promised.

        Args:
            request: of tensors on the device, the current one.
            count: most settings.
            call_of: returns a call of a launch, a RowPlan, with arguments by name.
        """
        tensors = {name: value for name, value in request.arguments.items() if isinstance(value, torch.Tensor)}
        if any(tensor.device.type != self._device.vendor.torch_device_type for tensor in tensors.values()):
            return  # a plan for types, or for tensors without memory
        best, launches = self.candidates[0].used.setting, list[tuple[Candidate, RowPlan]]()
        some = [one.used for one in self.candidates if not one.used.resources.spilled_bytes_per_thread]
        if request.fixed or torch.are_deterministic_algorithms_enabled():
            some = [used for used in some if (used.setting.block, used.setting.warps) == (best.block, best.warps)]
        for one in (one for used in some[:count] for one in self._candidates(used, self._rows)):
            with contextlib.suppress(PlanError):  # its accesses are wrong at this size
                launches.append((one, self._plan(request, [one])))

        def time() -> list[list[float]] | str:
            names = set[str]()
            for used in some[:count]:
                if (stores := stored(used.function)) is None:
                    return "Triton's IR does not say which tensors the kernel stores to"
                names |= stores & tensors.keys()
            try:
                copies, restore = on_copies(request.arguments, names)
                return timed([call_of(plan, copies) for _, plan in launches], self._device, restore)
            except torch.OutOfMemoryError:
                return f"there is no memory for copies of {', '.join(sorted(names))}"

        programs = "" if request.grid is not None else ", num_programs={}"
        words = [f"{one.used.setting}{programs.format(plan.num_programs)}" for one, plan in launches]
        at, self.measured = measured([plan for _, plan in launches], words, time)
        self.candidates = [*(one for one, _ in launches[at : at + 1]), *self.candidates]

    def _plan(self, request: Request, candidates: Sequence[Candidate]) -> RowPlan:
        """Returns the first launch whose accesses are right; the error of the first one if none is."""
        error: Exception | None = None
        blocks = dict.fromkeys(one.used.setting.block for one in candidates)
        for one in (next(one for one in candidates if one.used.setting.block == block) for block in blocks):
            grid, used = self._grid(request, one), one.used
            if refused := self._device.refused_grid(grid, used.resources.num_warps):
                raise GridError(f"{self._jit.__name__}: {refused}")
            errors, warned = addresses.check(request, used.function, grid, used.setting.block)
            if errors:
                error = error or PlanError(f"{self._jit.__name__}: {errors[0]}")
                continue
            if self._is_computed(request):
                facts.check_rows(self.form, request, used.function, grid[0])
            meta = request.meta | used.setting.config.all_kwargs()
            axes = grid[:1] if request.grid is None else grid
            terms = self._terms(request, used, max(1, request.rows), grid[0] if request.grid is None else math.prod(grid))
            reasons = tuple(self._reasons(request, one))
            return RowPlan(
                self._jit.__name__, (request.rows, request.cols), self._device.name, math.prod(grid) if request.rows else 0,
                meta, axes, used.resources, used.occupancy, terms, reasons, tuple(warned), used.setting.config, self.form,
            )  # fmt: skip
        raise error or AssertionError

    def _grid(self, request: Request, one: Candidate) -> tuple[int, int, int]:
        """Returns the grid of a request: of as many programs as have rows, or as many of these as are resident."""
        if request.grid is not None:
            return request.grid_of(one.used.constants)
        if request.num_programs:
            return request.num_programs, 1, 1
        rows = max(1, request.rows)
        if self._is_computed(request):
            rows = facts.turns_of_rows(one.used.function, request.arguments, self.form.parts, 0, 1)
        return rows if one.is_whole else min(rows, self._device.resident(one.used.occupancy)), 1, 1

    def _is_computed(self, request: Request) -> bool:
        """True if the grid is computed from a number of rows that the kernel reads."""
        return request.grid is None and request.rows > 0 and request.names[0] in self._first.function.parameters.values()

    def _expected(self) -> list[Candidate]:
        """Returns candidates of settings that are left, those with more stages once the same without is compiled."""
        least = min((setting.stages for setting in self._left), default=1)
        if not self._compiled:
            first = min(self._left, key=lambda setting: (self._unlike(setting), setting.stages))
            return self._candidates(self._estimated(first), self._rows)[:1]
        compiled = {(setting.block, setting.warps) for setting in self._compiled}
        some = [one for one in self._left if one.stages == least or (one.block, one.warps) in compiled]
        expected = [one for setting in some for one in self._candidates(self._estimated(setting), self._rows)[:1]]
        return sorted(expected, key=lambda one: (one.us, one.used.setting.stages))

    def _compile(self, candidates: Sequence[Candidate]) -> Iterator[Candidate | str]:
        """Compiles candidates; yields the better number of programs of each setting, or why it cannot run."""
        settings = [one.used.setting for one in candidates]
        self._left = [setting for setting in self._left if setting not in settings]
        for setting, used in zip(settings, self._use(self._request, settings), strict=True):
            if isinstance(used, Exception):
                if not self._compiled:
                    raise failure(used, self._jit, self._device) from used
                yield f"{setting}: does not compile: {used}"
            elif fitting := self._candidates(used, self._rows):
                yield fitting[0]
            else:
                yield f"{setting} uses {used.resources}"

    def _use(self, request: Request, settings: Sequence[Setting]) -> list[Used | Exception]:
        """Compiles settings, but for those that are, and returns what their programs use, or errors of some settings."""
        new, device = [setting for setting in settings if setting not in self._compiled], self._device
        results = compiled_for(request.kernel, [setting.config for setting in new], request.arguments, device)
        failed = dict[Setting, Exception]()
        for setting, compiled in zip(new, results, strict=True):
            if isinstance(compiled, OSError):
                raise failure(compiled, self._jit, device) from compiled
            if isinstance(compiled, Exception):
                failed[setting] = compiled
                continue
            resources, constants = device.vendor.resources(compiled), constants_of(compiled, self._jit)
            occupancy, loops = device.vendor.occupancy(resources, device.hardware), device.vendor.loops(compiled)
            used = Used(setting, resources, occupancy, constants, loops, parsed_of(compiled, self._jit))
            if not self._compiled:
                self._first = used
                rows = request.rows or 1
                if request.grid is not None:
                    rows = math.prod(request.grid_of(constants))
                self._traffic = facts.traffic_of(
                    used.function,
                    request.arguments,
                    request.grid is None,
                    None if request.fixed or not request.rows else rows,
                    request.cols,
                    setting.block,
                )
            self._compiled[setting] = used
        return [failed.get(setting) or self._compiled[setting] for setting in settings]

    def _threads(self, setting: Setting) -> int:
        return (setting.warps or 1) * (self._device.hardware.warp_size or 1)

    def _unlike(self, setting: Setting) -> float:
        return abs(math.log2(setting.block / self._threads(setting) / (2 * FEW)))

    def _estimated(self, setting: Setting) -> Used:
        """Returns the expected resources of a program, by elements of a thread as of the most similar compiled one.

        Stages load ahead, so that no loads wait for one another.
        """
        if setting in self._compiled:
            return self._compiled[setting]
        size = setting.block, setting.warps
        like = max(
            self._compiled.values() or [self._first],
            key=lambda one: ((one.setting.block, one.setting.warps) == size, -one.setting.stages),
        )
        used, longer, threads = like.resources, setting.block / like.setting.block, self._threads(setting)
        more = longer * self._threads(like.setting) / threads
        registers, shared = used.registers_per_thread, 0
        if registers is not None:
            elements = max(0, math.ceil((registers - REGISTERS) * more))
            registers = available(REGISTERS + elements, threads, self._device)
        if not used.compiler:  # a plan is no need
            staged = (setting.stages - 1) * int(self._traffic.loaded * setting.block / self._request.cols)
            shared = int(used.shared_memory_bytes * longer) + staged
        resources = replace(
            used,
            num_warps=setting.warps,
            registers_per_thread=registers,
            spilled_bytes_per_thread=0,
            shared_memory_bytes=shared,
        )
        occupancy = self._device.vendor.occupancy(resources, self._device.hardware)
        waits = 0 if setting.stages > like.setting.stages else more
        loops = [Loop(one.depth, more * one.clocks, more * one.loads, waits * one.chained) for one in like.loops]
        return Used(setting, resources, occupancy, like.constants | setting.config.kwargs, loops, like.function)

    def _candidates(self, used: Used, rows: int) -> list[Candidate]:
        """Returns launches of a setting for so many rows, the faster one first; nothing if no program fits."""
        request, resident = self._request, self._device.resident(used.occupancy)
        if not resident:
            return []
        if request.grid is not None:
            programs = rows if request.fixed and rows == MANY else max(1, math.prod(request.grid_of(used.constants)))
            numbers, rows = {True: programs}, programs
        elif request.num_programs:
            numbers = {False: request.num_programs}
        else:
            numbers = {True: rows, False: min(rows, resident)}
            if self._device.refused_grid((rows, 1, 1), used.resources.num_warps):
                del numbers[True]
            elif rows <= resident:
                del numbers[False]
        launches = []
        for is_whole, number in numbers.items():
            terms = self._terms(request, used, rows, number)
            us = terms.total if terms else float(-(-request.cols // used.setting.block))
            launches.append(Candidate(used, is_whole, terms, us))
        return sorted(launches, key=lambda one: one.us)

    def _terms(self, request: Request, used: Used, rows: int, num_programs: int) -> Terms | None:
        """Returns the expected time of a launch; None if no bandwidth is known."""
        device, setting = self._device, used.setting
        if not device.hardware.memory_bandwidth_gb_per_s or not device.profile.launch.cost or not num_programs:
            return None
        cols, in_blocks = request.cols, self.form.in_blocks
        if request.grid is not None and not in_blocks:
            cols = min(cols, setting.block)
        at_once = min(VECTOR_BYTES / self._traffic.element, request.multiple)
        of_block = self._traffic.loads * max(1, setting.block / self._threads(setting) / at_once)
        blocks = -(-request.cols // setting.block) if in_blocks else 0
        launch = RowLaunch(
            rows if request.grid is None else num_programs,
            cols,
            request.multiple,
            num_programs,
            used.occupancy.programs_per_multiprocessor,
            setting.warps,
            setting.block,
            setting.stages,
            in_blocks,
            used.resources.spilled_bytes_per_thread,
            *row_work(used.loops, self.form.walks and request.grid is None, blocks * of_block, of_block),
        )
        return cost(row_facts(self._traffic, launch, device), device.profile.launch.cost)

    def _reasons(self, request: Request, one: Candidate) -> Iterator[str]:
        if self.measured:
            yield self.measured
        walks, blocks = request.grid is None, -(-request.cols // one.used.setting.block)
        moves = f"a {'row' if walks else 'program'} moves {self._traffic.row:,.0f} bytes of memory"
        yield moves + f"; a program beside them {self._traffic.program:,.0f}" * walks
        if blocks > 1 and self.form.in_blocks:
            yield f"a row is {blocks} blocks, which the kernel loops over"
        elif blocks > 1 and self._splits:
            yield f"a row is {blocks} blocks, one per program"
        if request.multiple < math.gcd(request.cols, KNOWN):
            yield f"rows of {request.cols} are read an element at a time; more at once, if their length were a tl.constexpr"
        if not request.fixed:
            others = [other for other in self.candidates if other.used.setting != one.used.setting]
            yield from runner_up([one, *others], self._expected(), self._count)
        yield from (f"rejected {reason}" for reason in self._rejected)
