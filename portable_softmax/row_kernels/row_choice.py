"""Chooses the launch of a row kernel for a range of numbers of rows: a few settings are compiled, the fastest is selected."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch

from portable_softmax.devices.backends.machine_code import Loop
from portable_softmax.devices.device import Device
from portable_softmax.errors import GridError, PlanError
from portable_softmax.planning.candidates import FEW, REGISTERS, available
from portable_softmax.planning.cost import Terms, cost
from portable_softmax.planning.facts import Launch, launch_facts, limits_of, row_work
from portable_softmax.planning.planner import MAX_COMPILED, compile_best, measured, runner_up
from portable_softmax.planning.problem import VECTOR_BYTES, next_power_of_2
from portable_softmax.row_kernels import addresses, forms
from portable_softmax.row_kernels.compiling import compiled_for
from portable_softmax.row_kernels.decorators import configurations, constants_of, jit_function
from portable_softmax.row_kernels.row_plan import Candidate, RowPlan
from portable_softmax.row_kernels.row_settings import KNOWN, Request, Setting, settings_of
from portable_softmax.row_kernels.ttir import parsed_of, stored
from portable_softmax.runtime.measuring import on_copies, timed

SEVERAL = KNOWN + 1  # rows of which Triton knows nothing: it makes 1 a constant, and reads less by multiples of 16; 0 is no row


class Choice:
    """The settings of a request that are compiled for a device, the one of the least mean time for some numbers of rows first.

    Raises:
        PlanError: no setting fits, or only some number of programs is right, and none was passed.
        CompileError, TypeError: as of `Launcher.plan`.
    """

    def __init__(self, request: Request, device: Device, numbers: Sequence[int]) -> None:
        self._device, self._jit, self._numbers, self._request = device, jit_function(request.kernel), numbers, request
        self._compiled: dict[Setting, Candidate] = {}
        self.measured = ""  # what was timed, in a sentence
        if request.names[0] and (request.fixed or request.rows < 2):
            self._request = request._replace(arguments={**request.arguments, request.names[0]: SEVERAL})
        # The simplest setting with the shortest block shows the form of the kernel, on which the settings depend.
        self._left = settings_of(request, device, True)
        (probe,) = self._compile([min(self._left, key=lambda setting: (setting.block, *self._simplicity(setting)))])
        self._splits = self._learn(probe)
        self._left = settings_of(request, device, self.form.in_blocks or self._splits)
        self._count = len(self._left)
        if not request.fixed:
            self._request = request
        self._compiled = {}
        # A typical setting shows what a row moves, and what others should use; the fastest by that are compiled and compared.
        (first,) = self._compile([min(self._left, key=self._simplicity)])
        self._traffic = self._traffic_of(first)
        compiled, self._rejected = compile_best(self._expected, self._fitting, MAX_COMPILED + 3, MAX_COMPILED - 1)
        self.candidates = sorted([*self._launches(first)[:1], *compiled], key=lambda one: one.rank)
        if not self.candidates:
            why = f"no program of {self._jit.__name__} fits {device.name}: {first.setting}: it uses {first.resources}"
            raise PlanError(f"{why}; use a smaller {request.names[2]}")

    def _learn(self, probe: Candidate) -> bool:
        """Reads the form of the kernel; returns True if programs may take blocks of a row."""
        request = self._request
        about = request.arguments, *request.names[:2], probe.setting.block, request.grid is None
        self.form = forms.form_of(probe.function, *about)
        forms.check_form(self.form, request)
        splits, longest = False, {request.names[2]: next_power_of_2(request.cols)}
        if callable(request.grid) and request.names[2] not in request.meta:
            splits = request.grid_of(probe.constants) != request.grid_of(probe.constants | longest)
        if splits or configurations(request.kernel):  # blocks of rows, and pruning, may depend on any number
            self.form = self.form._replace(decisive=frozenset(request.arguments))
        return splits

    def _traffic_of(self, one: Candidate) -> Any:
        """Returns what a row and a program of a setting move and compute."""
        request = self._request
        rows = 0 if request.fixed else request.rows
        programs = rows if request.grid is None else math.prod(request.grid_of(one.constants))
        shared = programs if rows else None
        values: dict[Any, Any] = {**request.arguments, request.names[0]: rows or SEVERAL}
        return forms.traffic_of(one.function, values, request.grid is None, shared, request.cols, one.setting.block)

    def plan(self, request: Request, candidates: Sequence[Candidate] = ()) -> RowPlan:
        """Returns the launch of a request that differs from the choice's in the number of rows and in sizes at most.

        It is the first one of candidates, or of all, with right accesses; the error is that of the first one if none has.
        """
        forms.check_form(self.form, request)
        error, candidates = None, candidates or self.candidates
        name, blocks = self._jit.__name__, [one.setting.block for one in candidates]
        for one in (one for at, one in enumerate(candidates) if one.setting.block not in blocks[:at]):
            grid = self._grid(request, one)
            if refused := self._device.refused_grid(grid, one.resources.num_warps):
                raise GridError(f"{name}: {refused}")
            errors, warned = addresses.check(request, one.function, grid, one.setting.block)
            if errors:
                error = error or PlanError(f"{name}: {errors[0]}")
                continue
            if self._is_computed(request):
                forms.check_rows(self.form, request, one.function, grid[0])
            programs = math.prod(grid)
            return RowPlan(
                kernel=name,
                size=(request.rows, request.cols),
                device=self._device.name,
                num_programs=programs if request.rows else 0,
                meta=request.meta | one.setting.config.all_kwargs(),
                grid=grid[:1] if request.grid is None else grid,
                resources=one.resources,
                occupancy=one.occupancy,
                terms=self._terms(one, max(1, request.rows), programs),
                reasons=tuple(self._reasons(request, one)),
                warnings=tuple(warned),
                config=one.setting.config,
                form=self.form,
            )
        raise error or AssertionError

    def measure(self, request: Request, count: int, call_of: Callable[..., Callable[[], Any]]) -> None:
        """Times the first `count` settings that do not spill, with both numbers of programs; the fastest is used from now on.

        BLOCK and warps stay those of the first one where bits are promised. The device is the current one; `call_of` returns a
        call of a RowPlan with arguments by name.
        """
        tensors = {name: value for name, value in request.arguments.items() if isinstance(value, torch.Tensor)}
        if any(tensor.device.type != self._device.vendor.torch_device_type for tensor in tensors.values()):
            return  # a plan for types, or for tensors without memory
        some = [one for one in self.candidates if not one.resources.spilled_bytes_per_thread]
        if request.fixed or torch.are_deterministic_algorithms_enabled():
            some = [one for one in some if one.setting.shape == self.candidates[0].setting.shape]
        launches, plans, words = list[Candidate](), list[RowPlan](), list[str]()
        for one in (launch for first in some[:count] for launch in self._launches(first)):
            with contextlib.suppress(PlanError):  # its accesses are wrong at this size
                plans.append(self.plan(request, [one]))
                launches.append(one)
                programs = f", num_programs={plans[-1].num_programs}" if request.grid is None else ""
                words.append(f"{one.setting}{programs}")

        def time() -> list[list[float]] | str:
            stores = [stored(one.function) for one in some[:count]]
            if None in stores:
                return "Triton's IR does not say which tensors the kernel stores to"
            names = tensors.keys() & set().union(*filter(None, stores))
            try:
                copies, restore = on_copies(request.arguments, names)
                return timed([call_of(plan, copies) for plan in plans], self._device, restore)
            except torch.OutOfMemoryError:
                return f"there is no memory for copies of {', '.join(sorted(names))}"

        at, self.measured = measured(plans, words, time)
        self.candidates = [*launches[at : at + 1], *self.candidates]

    def _grid(self, request: Request, one: Candidate) -> tuple[int, int, int]:
        """Returns the grid of a request: of as many programs as have rows, or as many of these as are resident."""
        if request.grid is not None:
            return request.grid_of(one.constants)
        if request.num_programs:
            return request.num_programs, 1, 1
        rows = max(1, request.rows)
        if self._is_computed(request):
            rows = min(rows, max(1, forms.turns_of_rows(one.function, request.arguments, self.form.parts, 0, 1)))
        return rows if one.is_whole else min(rows, self._device.resident(one.occupancy)), 1, 1

    def _is_computed(self, request: Request) -> bool:
        """True if the grid is computed from a number of rows that the kernel reads."""
        read = self.candidates[0].function.parameters.values()
        return request.grid is None and request.rows > 0 and request.names[0] in read

    def _expected(self) -> list[Candidate]:
        """Returns candidates of settings that are left, those with more stages once the same without is compiled."""
        known = {setting.shape for setting in self._compiled}
        least = min((setting.stages for setting in self._left), default=1)
        some = [setting for setting in self._left if setting.stages == least or setting.shape in known]
        launches = [launch for setting in some for launch in self._launches(self._estimated(setting))[:1]]
        return sorted(launches, key=lambda one: (one.us, one.setting.stages))

    def _fitting(self, expected: Sequence[Candidate]) -> Iterator[Candidate | str]:
        """Compiles candidates; yields the better number of programs of each setting, or why it cannot run."""
        settings = [one.setting for one in expected]
        for setting, one in zip(settings, self._compile(settings), strict=True):
            if isinstance(one, Exception):
                yield f"{setting}: does not compile: {one}"
            else:
                yield next(iter(self._launches(one)), f"{setting}: it uses {one.resources}")

    def _compile(self, settings: Sequence[Setting]) -> list[Any]:
        """Compiles settings that are left; returns their programs, or the error of one; raises that of the first."""
        request, device, programs = self._request, self._device, list[Any]()
        configs = [setting.config for setting in settings]
        results = compiled_for(request.kernel, configs, request.arguments, device, computed=True)
        for setting, compiled in zip(settings, results, strict=True):
            self._left.remove(setting)
            programs.append(compiled)
            if not isinstance(compiled, Exception):
                used, constants = device.vendor.resources(compiled), constants_of(compiled, self._jit)
                code, function = device.vendor.loops(compiled), parsed_of(compiled, self._jit)
                fit = device.vendor.occupancy(used, device.hardware)
                programs[-1] = self._compiled[setting] = Candidate(setting, used, fit, constants, code, function)
            elif not self._compiled:
                raise compiled
        return programs

    def _threads(self, setting: Setting) -> int:
        return (setting.warps or 1) * (self._device.hardware.warp_size or 1)

    def _simplicity(self, setting: Setting) -> tuple[float, int]:
        """Returns a key of settings, the least for typical blocks without stages."""
        return abs(math.log2(setting.block / self._threads(setting) / (2 * FEW))), setting.stages

    def _estimated(self, setting: Setting) -> Candidate:
        """Returns the expected resources of a program, by elements of a thread as of the most similar compiled one.

        Stages load ahead, so that no loads wait for one another.
        """
        like = max(self._compiled.values(), key=lambda one: (one.setting.shape == setting.shape, -one.setting.stages))
        used, longer, threads = like.resources, setting.block / like.setting.block, self._threads(setting)
        more = longer * self._threads(like.setting) / threads
        registers, shared = used.registers_per_thread, 0
        if registers is not None:
            elements = max(0, math.ceil((registers - REGISTERS) * more))
            registers = available(REGISTERS + elements, threads, self._device)
        if not used.compiler:  # a plan is no need
            staged = (setting.stages - 1) * int(self._traffic.loaded * setting.block / self._request.cols)
            shared = int(used.shared_memory_bytes * longer) + staged
        used = replace(used, num_warps=setting.warps, registers_per_thread=registers, shared_memory_bytes=shared)
        used = replace(used, spilled_bytes_per_thread=0)
        fit = self._device.vendor.occupancy(used, self._device.hardware)
        waits = 0 if setting.stages > like.setting.stages else more
        loops = [Loop(one.depth, more * one.clocks, more * one.loads, waits * one.chained) for one in like.loops]
        return Candidate(setting, used, fit, like.constants | setting.config.kwargs, loops, like.function)

    def _launches(self, one: Candidate) -> list[Candidate]:
        """Returns launches of a setting, with the mean of their times, the faster one first; nothing if no program fits."""
        ways, launches = dict[tuple[int, ...], bool](), list[Candidate]()
        blocks = float(-(-self._request.cols // one.setting.block))
        for is_whole in (True, False):
            programs = tuple(self._programs(one, rows, is_whole) for rows in self._numbers)
            if min(programs) and not (is_whole and self._device.refused_grid((max(programs), 1, 1), one.resources.num_warps)):
                ways.setdefault(programs, is_whole)
        for programs, is_whole in ways.items():
            times = [terms for pair in zip(self._numbers, programs, strict=True) if (terms := self._terms(one, *pair))]
            mean = Terms(*map(fmean, zip(*times, strict=True))) if times else None
            launches.append(one._replace(is_whole=is_whole, terms=mean, us=mean.total if mean else blocks))
        return sorted(launches, key=lambda one: one.us)

    def _programs(self, one: Candidate, rows: int, is_whole: bool) -> int:
        """Returns the number of programs for so many rows, with which a grid that was passed grows; 0 if none fits."""
        request, resident = self._request, self._device.resident(one.occupancy)
        if not resident:
            return 0
        if request.grid is not None:
            programs = math.prod(request.grid_of(one.constants))
            return max(1, programs if request.fixed else programs * rows // max(1, request.rows))
        if request.num_programs:
            return request.num_programs
        return rows if is_whole else min(rows, resident)

    def _terms(self, one: Candidate, rows: int, num_programs: int) -> Terms | None:
        """Returns the expected time of a launch; None if no bandwidth is known."""
        device, request, setting, walks = self._device, self._request, one.setting, self._request.grid is None
        numbers, in_blocks = device.profile.launch.cost, self.form.in_blocks
        if not device.hardware.memory_bandwidth_gb_per_s or not numbers or not num_programs:
            return None
        at_once = min(VECTOR_BYTES / self._traffic.element, request.multiple)
        of_block = self._traffic.loads * max(1, setting.block / self._threads(setting) / at_once)
        blocks = -(-request.cols // setting.block) if in_blocks else 1
        clocks, chained = row_work(one.loops, self.form.walks and walks, blocks * of_block if in_blocks else 0, of_block)
        launch = Launch(
            rows if walks else num_programs,
            num_programs,
            one.occupancy.programs_per_multiprocessor,
            setting.warps or 1,
            blocks * setting.block,
            at_once,
            blocks,
            spilled_bytes=one.resources.spilled_bytes_per_thread,
            clocks=clocks,
            chained=chained,
        )
        return cost(launch_facts(self._traffic, launch, limits_of(device)), numbers)

    def _reasons(self, request: Request, one: Candidate) -> Iterator[str]:
        walks, blocks = request.grid is None, -(-request.cols // one.setting.block)
        if self.measured:
            yield self.measured
        moves = f"a {'row' if walks else 'program'} moves {self._traffic.row:,.0f} bytes of memory"
        yield f"{moves}; a program beside them {self._traffic.program:,.0f}" if walks else moves
        if blocks > 1 and (self.form.in_blocks or self._splits):
            yield f"a row is {blocks} blocks, {'which the kernel loops over' if self.form.in_blocks else 'one per program'}"
        if request.multiple < math.gcd(request.cols, KNOWN):
            yield f"rows of {request.cols} are read an element at a time; more at once, if their length were a tl.constexpr"
        others = [other for other in self.candidates if other.setting != one.setting and not request.fixed]
        yield from runner_up([one, *others], self._expected() if others else [], self._count)
        yield from (f"rejected {reason}" for reason in self._rejected)
