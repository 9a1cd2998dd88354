"""Chooses the launch of a row kernel: a few settings are compiled, and the one of the least expected time is taken."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from textwrap import fill
from typing import Any, NamedTuple

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.device import Device
from portable_softmax.devices.grid import refusal
from portable_softmax.errors import CompileError, GridError, PlanError
from portable_softmax.planning.plan import LINE
from portable_softmax.planning.problem import next_power_of_2
from portable_softmax.planning.row_cost import RowLaunch, RowTerms, Traffic, row_cost
from portable_softmax.row_kernels.blocks import smaller_block
from portable_softmax.row_kernels.decorators import jit_function
from portable_softmax.row_kernels.fits import compiled_for
from portable_softmax.row_kernels.row_settings import Request, Setting, settings_of
from portable_softmax.row_kernels.ttir import KNOWN, traffic_of

EACH = 16  # elements of a block for each thread, of the setting that is compiled first
COMPILED = 6, 4  # settings that are compiled, without stages and then of all
OTHER_REGISTERS = 24  # of a thread, that do not grow with its elements
MANY_ROWS = 2**20  # that a launch is chosen for where it must not depend on their number


@dataclass(frozen=True)
class RowPlan:
    """A launch of a row kernel, and the reasons for it.

    Args:
        kernel: its name.
        size: rows and elements of a row.
        device: name of the device.
        num_programs: of the grid; 0 where there are no rows, and nothing is launched.
        meta: constexprs and options, given or computed: the launch is `kernel[(num_programs,)](*arguments, **meta)`.
        resources, occupancy: of a program, and how many fit; None in the interpreter.
        terms: expected microseconds, by what they are for; None in the interpreter, or if no bandwidth is known.
        reasons: sentences.
        config: Triton's Config that was taken.
    """

    kernel: str
    size: tuple[int, int]
    device: str
    num_programs: int
    meta: dict[str, Any]
    resources: KernelResources | None = None
    occupancy: Occupancy | None = None
    terms: RowTerms | None = None
    reasons: tuple[str, ...] = ()
    config: Any = field(default=None, repr=False)

    def __str__(self) -> str:
        """Gives the launch, its expected time, what a program uses, how many fit, and why, in short lines."""
        launch = ", ".join(f"{name} {value}" for name, value in {"num_programs": self.num_programs, **self.meta}.items())
        lines = [f"{self.kernel} of {' x '.join(map(str, self.size))} on {self.device}: {launch}"]
        lines += [f"expected {self.terms}"] if self.terms else []
        lines += [f"uses {self.resources}", *str(self.occupancy).splitlines()] if self.resources else []
        return "\n".join(fill(line, LINE, subsequent_indent="    ", break_on_hyphens=False) for line in (*lines, *self.reasons))


class _Used(NamedTuple):
    """Resources that a program of a setting uses, or is expected to."""

    setting: Setting
    resources: KernelResources
    occupancy: Occupancy


class _Costed(NamedTuple):
    """A launch. They compare by whether they spill or may not fit, then by their time, then by what is simpler.

    Where the memory's bandwidth is unknown the time is the number of a row's blocks, and there are no terms.
    """

    doubtful: bool
    us: float
    stages: int
    num_programs: int
    used: _Used
    terms: RowTerms | None


def interpreted(request: Request, device: Device) -> RowPlan:
    """Returns the launch in Triton's interpreter, which compiles nothing and runs one program after another."""
    config = settings_of(request, None)[0].config
    programs = request.num_programs or (1 if request.form.walks else request.rows)
    name, size = jit_function(request.kernel).__name__, (request.rows, request.cols)
    return RowPlan(name, size, device.name, programs if request.rows else 0, request.meta | config.kwargs, config=config)


class Choice:
    """The settings of a request on a device; they are compiled when a number of rows first asks for them."""

    def __init__(self, request: Request, device: Device) -> None:
        self._request = request._replace(arguments={})  # as tensors may be large, and go
        self._device, self._name, self._settings = device, jit_function(request.kernel).__name__, settings_of(request, device)
        self._compiled: dict[Setting, _Used] = {}
        self._traffic = Traffic()
        self._asked: set[int] = set()

    def plan(self, rows: int, arguments: dict[str, Any]) -> RowPlan:
        """Returns the launch for so many rows; see `Persistent.plan`."""
        request, device = self._request, self._device
        of_rows = MANY_ROWS if request.num_programs else max(1, rows)
        if (asked := next_power_of_2(of_rows)) not in self._asked:
            self._compile_for(asked, arguments)
            self._asked.add(asked)
        costed = sorted(self._costed(self._compiled.values(), of_rows), key=lambda each: each[:4])
        if not costed:
            raise self._refusal(of_rows, arguments)
        best = costed[0]
        return RowPlan(
            self._name,
            (rows, request.cols),
            device.name,
            best.num_programs if rows else 0,
            request.meta | best.used.setting.config.all_kwargs(),
            best.used.resources,
            best.used.occupancy,
            best.terms,
            tuple(self._reasons(costed)),
            best.used.setting.config,
        )

    def _compile_for(self, rows: int, arguments: dict[str, Any]) -> None:
        """Compiles the settings that are expected to be fastest, first those without stages, from whose use others' follows."""
        if not self._compiled:
            first = min(self._settings, key=lambda each: (abs(math.log2(self._each(each) / EACH)), each.stages))
            self._compile([first], arguments)
        least = min(each.stages for each in self._settings)
        for count, most in zip(COMPILED, (least, math.inf), strict=True):
            settings = [each for each in self._settings if each.stages <= most]
            expected = sorted(self._costed(map(self._expected, settings), rows), key=lambda each: each[:4])
            fastest = list(dict.fromkeys(each.used.setting for each in expected))[:count]
            self._compile([each for each in fastest if each not in self._compiled], arguments)

    def _compile(self, settings: Sequence[Setting], arguments: dict[str, Any]) -> None:
        request, device = self._request, self._device
        found = compiled_for(request.kernel, [each.config for each in settings], arguments | request.options, device)
        for setting, compiled in zip(settings, found, strict=True):
            if not isinstance(compiled, Exception):
                resources = device.vendor.resources(compiled)
                self._compiled[setting] = _Used(setting, resources, device.vendor.occupancy(resources, device.hardware))
            elif self._compiled:
                self._settings.remove(setting)  # some of a compiler's faults are of few settings
            else:
                error = TypeError if isinstance(compiled, TypeError) else CompileError
                raise error(f"{self._name} for {device.backend}/{device.arch}: {compiled}") from compiled
            if len(self._compiled) == 1 and not isinstance(compiled, Exception):
                sizes = request.form.walks, request.rows, request.cols, setting.block
                self._traffic = traffic_of(compiled.asm["ttir"], arguments, *sizes)

    def _each(self, setting: Setting) -> float:
        return setting.block / ((setting.warps or 1) * (self._device.hardware.warp_size or 1))

    def _expected(self, setting: Setting) -> _Used:
        """Returns what a program should use: registers for each element as the most similar one that was compiled."""
        if setting in self._compiled:
            return self._compiled[setting]
        like = max(self._compiled.values(), key=lambda each: (_size(each.setting) == _size(setting), -each.setting.stages))
        hardware, wanted = self._device.hardware, like.resources.registers_per_thread
        if wanted is not None:
            threads, grows = (setting.warps or 1) * (hardware.warp_size or 1), self._each(setting) / self._each(like.setting)
            wanted = OTHER_REGISTERS + max(0, math.ceil((wanted - OTHER_REGISTERS) * grows))
            wanted = min(
                wanted,
                hardware.max_registers_per_thread or wanted,
                (hardware.registers_per_multiprocessor or wanted * threads) // threads,
            )
        shared, most = like.resources.shared_memory_bytes, like.resources.shared_memory_most
        shared = shared * setting.block // like.setting.block
        shared += (setting.stages - 1) * int(self._traffic.row * setting.block / self._request.cols)
        most = most and most * setting.block // like.setting.block
        resources = replace(like.resources, num_warps=setting.warps, spilled_bytes_per_thread=0)
        resources = replace(resources, registers_per_thread=wanted, shared_memory_bytes=shared, shared_memory_most=most)
        return _Used(setting, resources, self._device.vendor.occupancy(resources, hardware))

    def _costed(self, candidates: Iterable[_Used], rows: int) -> Iterator[_Costed]:
        """Yields all launches that the device takes."""
        request, device = self._request, self._device
        for used in candidates:
            if not (resident := device.resident(used.occupancy)):
                continue
            setting, spilled = used.setting, used.resources.spilled_bytes_per_thread
            grids = [request.num_programs] if request.num_programs else [min(rows, resident), rows]
            for num_programs in dict.fromkeys(grids if request.form.walks else [rows]):
                if refusal(device, (num_programs, 1, 1), used.resources.num_warps):
                    continue
                launch = RowLaunch(
                    rows, request.cols, request.multiple, num_programs, used.occupancy.programs_per_multiprocessor,
                    setting.warps, setting.block, setting.stages, request.form.in_blocks, spilled,
                )  # fmt: skip
                terms = row_cost(self._traffic, launch, device) if device.hardware.memory_bandwidth_gb_per_s else None
                us = terms.total if terms else -(-request.cols // setting.block)
                doubtful = bool(spilled or device.doubt(used.resources))
                yield _Costed(doubtful, us, setting.stages, num_programs, used, terms)

    def _refusal(self, rows: int, arguments: dict[str, Any]) -> Exception:
        """Returns the error of a request that has no launch."""
        request, device, used = self._request, self._device, list(self._compiled.values())
        if not any(each.occupancy.programs_per_multiprocessor for each in used):
            told = f"no program of {self._name} fits {device.name}: a block of {used[0].setting.block} uses {used[0].resources}"
            given = arguments | request.options | used[0].setting.config.kwargs
            block = given.pop(request.block)
            return PlanError(f"{told}; {smaller_block(request.kernel, given, request.block, block, device)}")
        programs = request.num_programs or rows
        return GridError(f"{self._name}: {refusal(device, (programs, 1, 1), used[0].resources.num_warps)}")

    def _reasons(self, costed: Sequence[_Costed]) -> Iterator[str]:
        request, traffic, best = self._request, self._traffic, costed[0]
        yield f"a row moves {traffic.row:,.0f} bytes of memory; a program beside them {traffic.program:,.0f}"
        blocks = -(-request.cols // best.used.setting.block)
        yield "a row is one block" if blocks == 1 else f"a row is {blocks} blocks, which the kernel loops over"
        if request.multiple < math.gcd(request.cols, KNOWN):
            yield f"rows of {request.cols} are read an element at a time; more at once, if their length were a tl.constexpr"
        if not request.form.walks:
            yield "a program takes one row, as the kernel has no loop over rows"
        others = [each for each in costed[1:] if each.used.setting != best.used.setting][:3]
        for each in others if best.terms else []:
            yield f"{_words(each)} would take {each.us:.1f} us" + ", and spills" * each.doubtful
        if why := self._device.doubt(best.used.resources):
            yield f"{why}: Triton's IR gives bounds only, and no setting certainly fits"
        numbers = self._device.profile.launch.rows
        if best.terms and numbers and not numbers.errors:
            yield f"numbers of the cost: {self._device.profile.sources[numbers.source].title}"


def _size(setting: Setting) -> tuple[int, int | None]:
    return setting.block, setting.warps


def _words(costed: _Costed) -> str:
    meta = {"num_programs": costed.num_programs, **costed.used.setting.config.all_kwargs()}
    return ", ".join(f"{name} {value}" for name, value in meta.items())
