"""Chooses the launch of a row kernel: a few settings are compiled, and the one of the least expected time is selected."""

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace

from portable_softmax.devices.backends.machine_code import Loop
from portable_softmax.devices.device import Device
from portable_softmax.errors import GridError, PlanError
from portable_softmax.planning.candidates import FEW, REGISTERS, available
from portable_softmax.planning.cost import cost
from portable_softmax.planning.facts import RowLaunch, Traffic, row_facts, row_work
from portable_softmax.planning.planner import MANY, MAX_COMPILED
from portable_softmax.planning.problem import VECTOR_BYTES, next_power_of_2
from portable_softmax.row_kernels import addresses, facts
from portable_softmax.row_kernels.compiling import compiled_for, failure
from portable_softmax.row_kernels.decorators import configurations, constants_of, jit_function
from portable_softmax.row_kernels.measuring import stored
from portable_softmax.row_kernels.row_plan import Costed, RowPlan, Used
from portable_softmax.row_kernels.row_settings import KNOWN, Request, Setting, settings_of
from portable_softmax.row_kernels.ttir import Function, parsed_of

LONGEST = 60  # seconds, after which no further setting is compiled
COMPILED = MAX_COMPILED, MAX_COMPILED - 2  # settings that are compiled, without stages and then of all
SEVERAL = KNOWN + 1  # rows, in place of one, which Triton makes a constant, or none


class Choice:
    """The settings of a request that are compiled for a device, with what they use: a function of the two alone.

    Args:
        request: its tensors are not kept.
        device: the target.
        rows: number of rows that settings are compiled for.

    Raises:
        PlanError: only some number of programs is right, and none was passed.
        CompileError, TypeError: as of `Launcher.plan`.
    """

    def __init__(self, request: Request, device: Device, rows: int) -> None:
        self._device, self._jit = device, jit_function(request.kernel)
        self._compiled: dict[Setting, Used] = {}
        self._function, self._traffic = Function({}, [], []), Traffic()
        self._until, self._took = time.monotonic() + LONGEST, dict[Setting, float]()
        self._left = 0  # settings, for want of time
        self.measured = ""  # what was timed, in a sentence
        self._fastest: tuple[Setting, bool] | None = None
        self._settings = settings_of(request, device, True)
        probe = min(self._settings, key=lambda setting: (setting.block, self._unlike(setting), setting.stages))
        several = {request.names[0]: SEVERAL} if request.names[0] and request.rows < 2 else {}
        arguments = request.arguments | several
        any_rows = (
            {request.names[0]: SEVERAL} if request.names[0] and request.fixed else {}
        )  # no choice depends on their number
        self._compile(request._replace(arguments=arguments | any_rows), [probe])
        self.form = facts.form_of(self._function, arguments, *request.names[:2], probe.block, request.grid is None)
        if not self.form.walks:
            facts.check_form(self.form, request)
        constants, longest = self._compiled[probe].constants, {request.names[2]: next_power_of_2(request.cols)}
        splits = callable(request.grid) and request.names[2] not in request.meta
        self._splits = splits = splits and request.grid_of(constants) != request.grid_of(constants | longest)
        if splits or configurations(request.kernel):  # programs may take blocks of rows, and pruning may drop, by any number
            self.form = self.form._replace(decisive=frozenset(request.arguments))
        self._settings = settings_of(request, device, self.form.in_blocks or splits)
        if (several and not request.fixed) or probe not in self._settings:
            self._compiled.clear()
        self._compile_for(request._replace(arguments=arguments | any_rows) if request.fixed else request, rows)

    def plan(self, request: Request) -> RowPlan:
        """Returns the launch of a request that differs from the choice's in the number of rows and in sizes at most."""
        costed = self._costed(request)
        if not costed:
            setting, resources, *_ = next(iter(self._compiled.values()))
            reason = f"no program of {self._jit.__name__} fits {self._device.name}: a block of {setting.block} uses {resources}"
            raise PlanError(f"{reason}; use a smaller {request.names[2]}")
        return self._plan(request, costed)

    def candidates(self, request: Request, most: int, same_bits: bool) -> list[tuple[tuple[Setting, bool], RowPlan]]:
        """Returns kinds and launches of the first settings by cost that do not spill, with all their numbers of programs.

        With `same_bits`, or if they may not depend on the number of rows, BLOCK and warps are the first one's.
        """
        first, used, rows = self._costed(request, True)[0].used.setting, [*self._compiled.values()], max(1, request.rows)
        if same_bits or request.fixed:
            used = [one for one in used if (one.setting.block, one.setting.warps) == (first.block, first.warps)]
        costed = [one for one in self._sorted(request, used, rows, self._most(request)) if not one.spills]
        if request.fixed:
            costed.sort(key=lambda one: one.used.setting != first)
        settings = [*dict.fromkeys(one.used.setting for one in costed)][:most]
        launches = list[tuple[tuple[Setting, bool], RowPlan]]()
        for one in costed:
            with contextlib.suppress(PlanError):  # its accesses are wrong at this size
                launches += [(one.kind(rows), self._plan(request, [one]))] if one.used.setting in settings else []
        return launches

    def stored(self, request: Request, settings: Iterable[Setting]) -> set[str] | None:
        """Returns the parameters that kernels of these settings store to; None if they may be more."""
        found = [stored(self._compiled[setting].function) for setting in settings]
        return None if None in found else set().union(*filter(None, found))

    def prefer(self, kind: tuple[Setting, bool] | None, words: str) -> None:
        """Plans launches of a kind from now on, where one fits; `words` say what was measured."""
        self._fastest, self.measured = kind, words

    def _most(self, request: Request) -> int:
        """Returns the most programs that have rows."""
        if not self._is_computed(request):
            return max(1, request.rows)
        return facts.turns_of_rows(self._function, request.arguments, self.form.parts, 0, 1)

    def _is_computed(self, request: Request) -> bool:
        """True if the grid is computed from a number of rows that the kernel reads."""
        return request.grid is None and request.rows > 0 and request.names[0] in self._function.parameters.values()

    def _costed(self, request: Request, by_cost: bool = False) -> list[Costed]:
        """Returns the launches of a request, the one to use first: the fastest that was timed, unless `by_cost`."""
        facts.check_form(self.form, request)
        rows, most = max(1, request.rows), self._most(request)
        costed = self._sorted(request, self._compiled.values(), *((MANY, MANY) if request.fixed else (rows, most)))
        if self._fastest and not by_cost:
            setting, is_whole = self._fastest
            costed.sort(key=lambda one: (one.used.setting != setting, (one.num_programs >= rows) != is_whole))
        if request.fixed and costed:
            costed = [*self._sorted(request, [costed[0].used], rows, most), *costed[1:]]
        return costed

    def _plan(self, request: Request, costed: list[Costed]) -> RowPlan:
        """Returns the first launch whose accesses are right, and reasons for it."""
        best, grid, warned = self._checked(request, costed)
        used, size = best.used, (request.rows, request.cols)
        if self._is_computed(request):
            facts.check_rows(self.form, request, self._function, grid[0])
        meta, programs = request.meta | used.setting.config.all_kwargs(), math.prod(grid) if request.rows else 0
        axes = grid[:1] if request.grid is None else grid
        reasons = self._reasons(request, [best, *(other for other in costed if other != best)])
        return RowPlan(
            self._jit.__name__, size, self._device.name, programs, meta, axes, used.resources, used.occupancy,
            best.terms, tuple(reasons), tuple(warned), used.setting.config, self.form,
        )  # fmt: skip

    def _checked(self, request: Request, costed: Sequence[Costed]) -> tuple[Costed, tuple[int, int, int], list[str]]:
        """Returns the first launch whose accesses are right, its grid, and warnings; the error of the first if none is."""
        error: Exception | None = None
        blocks = list(dict.fromkeys(one.used.setting.block for one in costed))
        for block in blocks:
            best = next(one for one in costed if one.used.setting.block == block)
            used = best.used
            grid = (best.num_programs, 1, 1) if request.grid is None else request.grid_of(used.constants)
            if refused := self._device.refused_grid(grid, used.resources.num_warps):
                raise GridError(f"{self._jit.__name__}: {refused}")
            errors, warned = addresses.check(request, used.function, grid, block)
            if not errors:
                return best, grid, warned
            error = error or PlanError(f"{self._jit.__name__}: {errors[0]}")
        raise error or AssertionError

    def _compile_for(self, request: Request, rows: int) -> None:
        """Compiles the settings expected to be fastest, first those without stages, from which others are estimated."""
        if not self._compiled:
            self._compile(request, [min(self._settings, key=lambda setting: (self._unlike(setting), setting.stages))])
        least = min(setting.stages for setting in self._settings)
        for count, most in zip(COMPILED, (least, math.inf), strict=True):
            settings = [setting for setting in self._settings if setting.stages <= most]
            expected = self._sorted(request, (self._expected(setting, request.cols) for setting in settings), rows)
            fastest = list(dict.fromkeys(costed.used.setting for costed in expected))[:count]
            self._compile(request, [setting for setting in fastest if setting not in self._compiled])

    def _compile(self, request: Request, settings: Sequence[Setting]) -> None:
        device, configs = self._device, [setting.config for setting in settings]
        took, until = list[float](), self._until if self._compiled else math.inf
        results = compiled_for(request.kernel, configs, request.arguments, device, until=until, took=took)
        self._took |= zip(settings, took, strict=True)
        self._left += sum(isinstance(result, CancelledError) for result in results)
        for setting, compiled in zip(settings, results, strict=True):
            if isinstance(compiled, Exception):
                if not self._compiled or isinstance(compiled, OSError):
                    raise failure(compiled, self._jit, device) from compiled
                self._settings.remove(setting)  # some faults are of few settings
                continue
            resources, constants = device.vendor.resources(compiled), constants_of(compiled, self._jit)
            occupancy, loops = device.vendor.occupancy(resources, device.hardware), device.vendor.loops(compiled)
            function = parsed_of(compiled, self._jit)
            self._compiled[setting] = Used(setting, resources, occupancy, constants, loops, function)
            if len(self._compiled) == 1:
                self._function, walks = function, request.grid is None
                rows = (request.rows or 1) if walks else math.prod(request.grid_of(constants))
                shared = None if request.fixed or not request.rows else rows
                self._traffic = facts.traffic_of(self._function, request.arguments, walks, shared, request.cols, setting.block)

    def _threads(self, setting: Setting) -> int:
        return (setting.warps or 1) * (self._device.hardware.warp_size or 1)

    def _unlike(self, setting: Setting) -> float:
        return abs(math.log2(setting.block / self._threads(setting) / (2 * FEW)))

    def _expected(self, setting: Setting, cols: int) -> Used:
        """Returns the expected resources of a program, by elements of a thread as of the most similar compiled one.

        Stages load ahead, so that no loads wait for one another.
        """
        if setting in self._compiled:
            return self._compiled[setting]
        like = max(
            self._compiled.values(),
            key=lambda used: ((used.setting.block, used.setting.warps) == (setting.block, setting.warps), -used.setting.stages),
        )
        used, longer, threads = like.resources, setting.block / like.setting.block, self._threads(setting)
        if (wanted := used.registers_per_thread) is not None:
            elements = (wanted - REGISTERS) * longer * self._threads(like.setting) / threads
            wanted = available(REGISTERS + max(0, math.ceil(elements)), threads, self._device)
        staged = (setting.stages - 1) * int(self._traffic.loaded * setting.block / cols)
        resources = replace(
            used,
            num_warps=setting.warps,
            registers_per_thread=wanted,
            spilled_bytes_per_thread=0,
            shared_memory_bytes=0 if used.compiler else int(used.shared_memory_bytes * longer) + staged,  # a plan is no need
        )
        occupancy = self._device.vendor.occupancy(resources, self._device.hardware)
        more = longer * self._threads(like.setting) / threads
        waits = 0 if setting.stages > like.setting.stages else more
        loops = [Loop(one.depth, more * one.clocks, more * one.loads, waits * one.chained) for one in like.loops]
        return Used(setting, resources, occupancy, like.constants | setting.config.kwargs, loops, like.function)

    def _sorted(self, request: Request, candidates: Iterable[Used], rows: int, most: int | None = None) -> list[Costed]:
        """Returns the launches of programs that fit in their order, without grids that the device refuses, if any is left."""
        device, launches = self._device, list[Costed]()
        numbers = device.profile.launch.cost if device.hardware.memory_bandwidth_gb_per_s else None
        for used in candidates:
            if not (resident := device.resident(used.occupancy)):
                continue
            setting, spilled = used.setting, used.resources.spilled_bytes_per_thread
            one_block = request.grid is not None and not self.form.in_blocks
            cols = min(request.cols, setting.block) if one_block else request.cols
            for num_programs, of_rows in self._grids(request, used, rows, resident, rows if most is None else most):
                launch = RowLaunch(
                    of_rows, cols, request.multiple, num_programs, used.occupancy.programs_per_multiprocessor,
                    setting.warps, setting.block, setting.stages, self.form.in_blocks, spilled, *self._work(request, used),
                )  # fmt: skip
                terms = cost(row_facts(self._traffic, launch, device), numbers) if numbers else None
                us = terms.total if terms else -(-request.cols // setting.block)
                launches.append(Costed(bool(spilled), us, num_programs, used, terms))
        return sorted(launches, key=lambda one: (one.spills, one.us, one.used.setting.stages))

    def _work(self, request: Request, used: Used) -> tuple[float, float]:
        """Returns clocks of a warp, and chained loads of a program, per row; see row_work."""
        block, at_once = used.setting.block, min(VECTOR_BYTES / self._traffic.element, request.multiple)
        of_block = self._traffic.loads * max(1, block / self._threads(used.setting) / at_once)
        blocks = -(-request.cols // block) if self.form.in_blocks else 0
        return row_work(used.loops, self.form.walks and request.grid is None, blocks * of_block, of_block)

    def _grids(self, request: Request, used: Used, rows: int, resident: int, most: int) -> Iterator[tuple[int, int]]:
        """Yields numbers of programs, at most as many as have rows, and of rows."""
        if request.grid is not None:
            programs = rows if request.fixed and rows == MANY else max(1, math.prod(request.grid_of(used.constants)))
            yield programs, programs
        elif request.num_programs:
            yield request.num_programs, rows
        else:
            numbers = list(dict.fromkeys((min(rows, most, resident), min(rows, most))))
            accepted = [number for number in numbers if not self._device.refused_grid((number, 1, 1), used.resources.num_warps)]
            yield from ((number, rows) for number in accepted or numbers[:1])

    def _reasons(self, request: Request, costed: Sequence[Costed]) -> Iterator[str]:
        if self.measured:
            yield self.measured
        best, walks, blocks = costed[0], request.grid is None, -(-request.cols // costed[0].used.setting.block)
        moves = f"a {'row' if walks else 'program'} moves {self._traffic.row:,.0f} bytes of memory"
        yield moves + f"; a program beside them {self._traffic.program:,.0f}" * walks
        if blocks > 1 and (self.form.in_blocks or self._splits):
            yield f"a row is {blocks} blocks, {'which the kernel loops over' if self.form.in_blocks else 'one per program'}"
        if self._left:
            slowest = max(self._took, key=self._took.__getitem__)
            words = ", ".join(f"{name} {value}" for name, value in slowest.config.all_kwargs().items())
            yield f"{self._left} candidates are left out after {LONGEST} s: {words} took {self._took[slowest]:.0f} s to compile"
        if request.multiple < math.gcd(request.cols, KNOWN):
            yield f"rows of {request.cols} are read an element at a time; more at once, if their length were a tl.constexpr"
        others = [other for other in costed if other.used.setting != best.used.setting][:2]
        for other in others if best.terms and not request.fixed else []:
            meta = {"num_programs": other.num_programs, **other.used.setting.config.all_kwargs()}
            words = ", ".join(f"{name} {value}" for name, value in meta.items())
            yield f"{words} would take {other.us:.1f} us" + ", and spills" * other.spills
