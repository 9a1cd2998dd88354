"""Chooses the launch of a row kernel for a bucket of rows: settings are compiled for its first request, and ranked for all."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

import torch

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.backends.machine_code import Loop
from portable_softmax.devices.device import Device
from portable_softmax.errors import GridError, PlanError
from portable_softmax.planning.candidates import FEW, REGISTERS, available
from portable_softmax.planning.cost import Terms, Work, cost, limits_of, row_work
from portable_softmax.planning.planner import compile_best, measured, runner_up
from portable_softmax.planning.problem import VECTOR_BYTES
from portable_softmax.row_kernels import addresses, forms
from portable_softmax.row_kernels.compiling import compiled_for
from portable_softmax.row_kernels.decorators import configurations, constants_of, constexprs_of, jit_function
from portable_softmax.row_kernels.row_plan import TRITON_MULTIPLE, Request, RowPlan, Setting, settings_of
from portable_softmax.row_kernels.ttir import Function, parsed_of, stores_elsewhere
from portable_softmax.runtime.measuring import on_copies, timed

MAX_COMPILED = 8  # settings, side by side: one less misses one that is 25% faster
SEVERAL = TRITON_MULTIPLE + 1  # rows: of 1 Triton makes a constant, of a multiple it knows so, and of 0 nothing is traced


class Candidate(NamedTuple):
    """A setting, what a program of it uses, as compiled or as estimated, and how many programs are launched."""

    setting: Setting
    constants: dict[str, Any]  # that are compiled into it
    function: Function  # Triton's IR of the compiled program, or of the one from which it is estimated
    loops: Sequence[Loop]  # likewise of machine code
    resources: KernelResources
    occupancy: Occupancy
    max_programs: int | None = None  # of a computed grid: those passed, or resident; None for a program for every row
    terms: Terms | None = None  # means for a range of rows; None if the profile has no cost

    @property
    def us(self) -> float:
        """Returns the expected microseconds; without a cost, minus the length of the block, as the longest is the fastest."""
        return self.terms.total if self.terms else -self.setting.block

    @property
    def label(self) -> str:
        """Returns what differs from other candidates."""
        return ", ".join([str(self.setting), *(f"at most {most} programs" for most in (self.max_programs,) if most)])


class Choice:
    """Candidates, compiled for a bucket's first request, by mean time over its least, middle and largest numbers of rows."""

    def __init__(self, request: Request, device: Device, bucket: Sequence[int]) -> None:
        self._request, self._device, self._bucket = request, device, bucket
        self.measurement = ""  # in a sentence: what was timed, or why nothing was; "" before that
        self._jit, (rows, _, block) = jit_function(request.kernel), request.names
        is_constant = rows in constexprs_of(self._jit)
        several = {rows: SEVERAL} if rows and (request.rows < 2 or request.fixed or is_constant) else {}
        self._values: dict[str, Any] = {**request.arguments, **several}  # that settings are compiled and traced for
        # 1. A typical setting, compiled as a probe, shows the form of the kernel, on which the settings depend.
        probe = self._typical(settings_of(request, device, True))
        self.form = forms.form_of(probe.function, request._replace(arguments=self._values), probe.setting.block)
        forms.check_form(self.form, request)
        sizes = (1, request.cols) if callable(request.grid) and block not in request.meta else ()
        grids = {request.grid_of(probe.constants | {block: size}) for size in sizes}
        splits = len(grids) > 1  # the grid that was passed has programs for blocks of a row
        if splits or configurations(request.kernel):  # blocks of rows, and pruning, may depend on any number
            self.form = self.form._replace(decisive=frozenset(request.arguments))
        if is_constant:
            self._values = request.arguments
        settings = settings_of(request, device, self.form.in_blocks or splits)
        first = self._typical(settings)
        # 2. It shows what a row moves, and what others should use: estimates. 3. The fastest of these are compiled.
        self._work, self._count = self._work_of(first), len(settings)
        estimated = [self._estimated(setting, first) for setting in settings]
        self._left = sorted((way for one in estimated for way in self._candidates_of(one)[:1]), key=lambda one: one.us)
        self.candidates, self._rejected = compile_best(self._left, self._fitting, MAX_COMPILED, MAX_COMPILED)
        self.candidates.sort(key=lambda one: one.resources.spilled_bytes_per_thread > 0)  # up to twice as slow as expected
        if not self.candidates:
            why = f"no program of {self._jit.__name__} fits {device.name}: {first.setting}: it uses {first.resources}"
            raise PlanError(f"{why}; use a smaller {block}")

    def _typical(self, settings: Sequence[Setting]) -> Candidate:
        """Compiles a setting of the shortest block, as a row has several then, usual threads and no stages; or raises."""
        usual = [(one.block, abs(math.log2(one.per_thread / (2 * FEW))), one.stages) for one in settings]
        one = next(self._compile([settings[usual.index(min(usual))]]))
        if isinstance(one, Exception):
            raise one
        return one

    def _work_of(self, one: Candidate) -> Work:
        """Returns what a program of a setting does in a turn, and beside its turns; bytes of memory per element of a turn."""
        request, (_, cols) = self._request, self._turn(one.setting)
        programs = request.rows if request.grid is None else math.prod(request.grid_of(one.constants))
        shared = programs if request.rows and not request.fixed else None
        work = forms.traffic_of(
            one.function, self._values, request.grid is None, shared, cols, one.setting.block, request.multiple
        )
        return work._replace(row=work.row / cols, again=work.again / cols, loaded=work.loaded / cols)

    def _turn(self, setting: Setting) -> tuple[int, int]:
        """Returns the blocks that a program loops over for a row, one if it does not, and their elements of the row."""
        cols, blocks = self._request.cols, -(-self._request.cols // setting.block)
        return (blocks, cols) if self.form.in_blocks else (1, cols // blocks)

    def plan(self, request: Request) -> RowPlan:
        """Returns the first launch with right accesses; the request differs from the choice's in rows and sizes at most."""
        errors = list[PlanError]()
        for one in self.candidates:
            try:
                return self._planned(request, one)
            except PlanError as error:
                errors.append(error)
        raise errors[0]

    def _planned(self, request: Request, one: Candidate) -> RowPlan:
        """Returns the launch of a request by a compiled program; PlanError if its accesses are wrong."""
        forms.check_form(self.form, request)
        name, setting, used = self._jit.__name__, one.setting, one.resources
        if request.grid is None:
            most = max(1, min(request.rows, one.max_programs or request.rows))
            grid = forms.programs_of_rows(self.form, request, one.function, most), 1, 1
        else:
            grid = request.grid_of(one.constants)
        if refused := self._device.refused_grid(grid, used.num_warps):
            raise GridError(f"{name}: {refused}")
        wrong, warnings = addresses.check(request, one.function, grid, setting.block)
        if wrong:
            raise PlanError(f"{name}: {wrong[0]}")
        programs = math.prod(grid)
        return RowPlan(
            name,
            (request.rows, request.cols),
            self._device.name,
            setting,
            request.meta | setting.config.all_kwargs(),
            grid[: 1 if request.grid is None else 3],
            self._terms(one, max(1, request.rows), max(1, programs)),
            tuple(self._reasons(request, one)),
            num_programs=min(programs, programs * request.rows),
            resources=used,
            occupancy=one.occupancy,
            warnings=tuple(warnings),
        )

    def measure(self, request: Request, count: int, call_of: Callable[..., Callable[[], Any]]) -> None:
        """Times the first `count` settings, with both numbers of programs; the fastest is used from now on.

        BLOCK and warps stay those of the first one where bits are promised. The device is the current one; `call_of` returns a
        call of a RowPlan with arguments by name.
        """
        places = {value.device.type for value in request.arguments.values() if isinstance(value, torch.Tensor)}
        if places - {self._device.vendor.torch_device_type}:
            return  # a plan for types, or for tensors without memory
        promised, size = request.fixed or torch.are_deterministic_algorithms_enabled(), self.candidates[0].setting[1:3]
        some = [one for one in self.candidates if not promised or one.setting[1:3] == size]
        launches, plans = list[Candidate](), list[RowPlan]()
        for launch in (launch for one in some[:count] for launch in self._candidates_of(one)):
            with contextlib.suppress(PlanError):  # its accesses are wrong at this size
                plans.append(self._planned(request, launch))
                launches.append(launch)

        def time() -> list[list[float]] | str:
            if any(stores_elsewhere(one.function) for one in launches):
                return "Triton's IR does not say which tensors the kernel stores to"
            try:
                copies, restore = on_copies(request.arguments)
                return timed([call_of(plan, copies) for plan in plans], self._device, restore)
            except torch.OutOfMemoryError:
                return "there is no memory for copies of its tensors"

        at, self.measurement = measured(plans, time)
        if at is not None:
            self.candidates = [launches[at], *self.candidates]

    def _fitting(self, estimated: Sequence[Candidate]) -> Iterator[Candidate | str]:
        """Compiles candidates; yields the better number of programs of each setting, or why it cannot run."""
        for like, one in zip(estimated, self._compile([like.setting for like in estimated]), strict=True):
            if isinstance(one, Exception):
                yield f"{like.setting}: does not compile: {one}"
            else:
                yield next(iter(self._candidates_of(one)), f"{one.setting}: it uses {one.resources}")

    def _compile(self, settings: Sequence[Setting]) -> Iterator[Candidate | Exception]:
        """Compiles settings; yields candidates, or errors."""
        jit, vendor, configs = self._jit, self._device.vendor, [one.config for one in settings]
        results = compiled_for(self._request.kernel, configs, self._values, self._device, computed=True)
        for setting, compiled in zip(settings, results, strict=True):
            if isinstance(compiled, Exception):
                yield compiled
                continue
            used, loops = vendor.resources(compiled), vendor.loops(compiled)
            fit = vendor.occupancy(used, self._device.hardware)
            yield Candidate(setting, constants_of(compiled, jit), parsed_of(compiled, jit), loops, used, fit)

    def _estimated(self, setting: Setting, like: Candidate) -> Candidate:
        """Returns what a setting should use: as a compiled one does, but for registers, by the elements of a thread."""
        used = replace(like.resources, num_warps=setting.warps, spilled_bytes_per_thread=0)
        if used.registers_per_thread is not None:
            registers = (used.registers_per_thread - REGISTERS) * setting.per_thread / like.setting.per_thread
            threads = round(setting.block / setting.per_thread)
            registers = available(REGISTERS + max(0, math.ceil(registers)), threads, self._device)
            used = replace(used, registers_per_thread=registers)
        constants, fit = like.constants | setting.config.kwargs, self._device.vendor.occupancy(used, self._device.hardware)
        return like._replace(setting=setting, constants=constants, resources=used, occupancy=fit)

    def _candidates_of(self, one: Candidate) -> list[Candidate]:
        """Returns launches of a program, with the mean of their times, the faster one first; nothing if none fits.

        A computed grid has a program for every row, or as many as are resident; one that was passed grows with the rows.
        """
        request, bucket, resident = self._request, self._bucket, self._device.resident(one.occupancy)
        ways, per_row, launches = [request.num_programs], 1.0, list[Candidate]()
        if not resident:
            return launches
        if request.grid is not None:
            per_row = math.prod(request.grid_of(one.constants)) / max(1, request.rows)
        elif request.num_programs is None and resident < bucket[-1]:
            ways = [None, resident]
            if self._device.refused_grid((bucket[-1], 1, 1), one.resources.num_warps):
                ways.remove(None)
        for most in ways:
            programs = [max(1, int(per_row * min(rows, most or rows))) for rows in bucket]
            times = [self._terms(one, *pair) for pair in zip(bucket, programs, strict=True)]
            mean = Terms(*map(fmean, zip(*times, strict=True))) if times[0] else None
            launches.append(one._replace(max_programs=most, terms=mean))
        return sorted(launches, key=lambda one: one.us)

    def _terms(self, one: Candidate, rows: int, num_programs: int) -> Terms | None:
        """Returns the expected time of a launch; None if the profile has no cost."""
        request, setting, costs = self._request, one.setting, self._device.profile.launch.cost
        over_rows = request.grid is None  # a computed grid is that of programs that loop over rows
        if not costs:
            return None
        (blocks, cols), at_once = self._turn(setting), min(VECTOR_BYTES / self._work.element, request.multiple)
        clocks, chained = row_work(one.loops, over_rows, blocks * self._work.loads * max(1, setting.per_thread / at_once))
        work = self._work._replace(
            row=cols * self._work.row,
            again=cols * self._work.again,
            adjacent=min(self._work.adjacent, setting.per_thread),
            elements=blocks * setting.block,
            vector=at_once,
            blocks=blocks,
            steps=1 if self._work.block_reductions else blocks,
            turns=rows if over_rows else num_programs,
            programs=num_programs,
            resident=one.occupancy.programs_per_multiprocessor,
            warps=setting.warps or 1,
            ahead=0 if self.form.in_blocks else max(0, setting.stages - 2),
            spilled_bytes=one.resources.spilled_bytes_per_thread,
            clocks=clocks,
            chained=chained,
        )
        return cost(work, limits_of(self._device), costs)

    def _reasons(self, request: Request, one: Candidate) -> Iterator[str]:
        blocks, cols = self._turn(one.setting)
        moved = cols * self._work.row
        yield from filter(None, [self.measurement])
        if request.grid is None:
            yield f"a row moves {moved:,.0f} bytes of memory; a program beside them {self._work.program:,.0f}"
        else:
            yield f"a program moves {moved:,.0f} bytes of memory"
        if blocks > 1:
            yield f"a row is {blocks} blocks, which the kernel loops over"
        if request.multiple < math.gcd(request.cols, TRITON_MULTIPLE):
            yield f"rows of {request.cols} are read an element at a time; more at once, if their length were a tl.constexpr"
        others = [other for other in self.candidates if other.setting != one.setting]
        yield from runner_up([one, *others], self._left, self._count)
        yield from (f"rejected {reason}" for reason in self._rejected)
