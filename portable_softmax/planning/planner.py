"""Problem + Device -> LaunchPlan: arithmetic, and a function that tells what a compiled candidate uses.

The first candidate that compiles without spilling and fits the device is taken. Where MOST_SPILLING have spilled, or all, it is
the first of them that spills at most twice as much as the least.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from portable_softmax.devices.backends.base import DTYPE_BYTES, KernelResources, Occupancy
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, PlanError, TargetError
from portable_softmax.planning.budget import Candidate
from portable_softmax.planning.candidates import candidates
from portable_softmax.planning.cost import cost
from portable_softmax.planning.plan import LaunchPlan, Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.reading import GROUPS_AT_ONCE, as_read
from portable_softmax.planning.reasons import why

UNLIMITED = 2**63 - 1
MOST_SPILLING = 4  # candidates that spill before no more are tried: each takes a second or so to compile
REGISTER_BYTES, ADDRESS_BYTES = 4, 8

Measure = Callable[[Problem, Tiling, Device], KernelResources]


class Compiled(NamedTuple):
    """A candidate that compiles, what a program uses, and how many fit."""

    candidate: Candidate
    resources: KernelResources
    occupancy: Occupancy

    @property
    def tiling(self) -> Tiling:
        """Returns the cut of rows into tiles."""
        return self.candidate.tiling

    @property
    def spilled(self) -> int:
        """Returns the bytes of memory that each thread spills into: its stack frame, as these kernels have no other data."""
        frame = self.resources.stack_frame_bytes
        return self.resources.spilled_bytes_per_thread if frame is None else frame


def choose(problem: Problem, device: Device, measure: Measure) -> LaunchPlan:
    """Plans the launch of `problem` on `device`; `measure` compiles a candidate and reads what it uses.

    Raises:
        PlanError: no candidate compiles and fits; lists them all.
        TargetError: this Triton does not compile for the device.
    """
    problem = as_read(problem, device)
    passed_over: list[str] = []
    spilling: list[Compiled] = []
    alone: tuple[Compiled, list[str]] | None = None  # one program fits: other numbers of warps may let two in
    for candidate in _candidates(problem, device):
        tiling = candidate.tiling
        if (alone and _shape(tiling) != _shape(alone[0].tiling)) or len(spilling) == MOST_SPILLING:
            break
        if hopeless := _hopeless(problem, candidate, spilling, device):
            passed_over.append(f"{tiling}: {hopeless}")
            continue
        try:
            resources = measure(problem, tiling, device)
        except TargetError:
            raise  # no candidate would compile
        except CompileError as error:
            passed_over.append(f"{tiling}: does not compile: {error}")
            continue
        found = Compiled(candidate, resources, device.vendor.occupancy(resources, device.hardware))
        if unfit := _unfit(problem, found, device):
            passed_over.append(f"{tiling}: {unfit}")
        elif found.spilled > candidate.spilled_bytes:
            spilling.append(found)
            passed_over.append(_spills(found))
        elif found.occupancy.programs_per_multiprocessor > 1 or not tiling.num_warps:
            return _plan(problem, found, device, passed_over)
        else:
            alone = alone or (found, passed_over.copy())
            passed_over.append(f"{tiling}: would be alone on its multiprocessor")
    if alone:
        return _plan(problem, alone[0], device, alone[1])
    if spilling:
        least = min(found.spilled for found in spilling)
        first = next(found for found in spilling if found.spilled <= 2 * least)  # preferred for another reason than spills
        passed_over.remove(_spills(first))
        tried = f"{len(spilling)} launches were compiled, and none spills into less than {least}"
        return _plan(problem, first, device, passed_over, f"slow: spills into {first.spilled} bytes per thread; {tried}")
    tried = "\n  ".join(_told_once(passed_over))
    raise PlanError(f"no launch of a {problem.name} of {problem.size} fits {device}; tried:\n  {tried}")


def _spills(found: Compiled) -> str:
    return f"{found.tiling}: spills into {found.spilled} bytes per thread"


def _told_once(passed_over: list[str]) -> list[str]:
    """Gives one line, with the first one's reason, where no candidate compiles: the compiler cannot be used at all."""
    reasons = [reason.partition(": ")[2] for reason in passed_over]
    if len(reasons) > 1 and all(reason.startswith("does not compile") for reason in reasons):
        return [f"{len(reasons)} launches, and each {reasons[0]}"]
    return passed_over


def _candidates(problem: Problem, device: Device) -> Iterator[Candidate]:
    for each in candidates(problem, device):
        yield each._replace(tiling=replace(each.tiling, walk=_walks(problem, each.tiling, device)))


def _shape(tiling: Tiling) -> tuple[str, int, int, int]:
    """Returns the key shared by candidates that differ only in num_warps, and in tile_cols if a row is held in blocks."""
    in_blocks, splits = tiling.held and tiling.blocks > 1, 0 if tiling.held else tiling.splits
    return tiling.strategy, tiling.tile_rows, 0 if in_blocks else tiling.width, splits


def _hopeless(problem: Problem, candidate: Candidate, spilling: list[Compiled], device: Device) -> str | None:
    """Says why a candidate is not worth compiling; None if it is."""
    tiling = candidate.tiling
    if least := _least(problem, candidate, device):
        fits = device.vendor.occupancy(least, device.hardware)
        if not fits.programs_per_multiprocessor:
            return "its elements alone take more registers than there are"
        if unfit := _unfit(problem, Compiled(candidate, least, fits), device):
            return unfit
    for found in spilling:
        if _way(tiling) == _way(found.tiling) and candidate.spilled_bytes == found.candidate.spilled_bytes:
            elements, registers = _per_thread(tiling, device)
            least_elements, most_registers = _per_thread(found.tiling, device)
            if elements >= least_elements and registers <= most_registers:
                return f"a thread has as many elements as one of {found.tiling}, which spills, and no more registers"
    return None


def _way(tiling: Tiling) -> tuple[object, ...]:
    """Returns the key shared by candidates whose threads hold their elements in the same way."""
    return tiling.strategy, tiling.held, tiling.blocks > 1, tiling.num_warps is None


def _per_thread(tiling: Tiling, device: Device) -> tuple[float, int]:
    """Counts elements and registers of a thread; elements that are not held are those of a block."""
    hardware = device.hardware
    threads = (tiling.num_warps or 1) * (hardware.warp_size or 1)
    elements = tiling.elements / threads
    limits = tiling.max_registers, hardware.max_registers_per_thread, (hardware.registers_per_multiprocessor or 0) // threads
    return elements, min((limit for limit in limits if limit), default=0)


def _least(problem: Problem, candidate: Candidate, device: Device) -> KernelResources | None:
    """Estimates what a program uses at least: registers for the elements that it holds, and an address; None without warps."""
    tiling = candidate.tiling
    if not tiling.num_warps or not device.hardware.warp_size:
        return None
    held = 0
    if tiling.held:
        elements = tiling.elements * (2 if problem.backward else 1)
        element_bytes = min(DTYPE_BYTES[problem.x_dtype], DTYPE_BYTES[problem.y_dtype])
        threads = tiling.num_warps * device.hardware.warp_size
        held = elements * element_bytes // threads + ADDRESS_BYTES - candidate.spilled_bytes
    return KernelResources(tiling.num_warps, max(1, held // REGISTER_BYTES))  # none would mean that they are not known


def _unfit(problem: Problem, found: Compiled, device: Device) -> str | None:
    """Says why a candidate cannot be launched; None if it can."""
    if not found.occupancy.programs_per_multiprocessor:
        return f"does not fit: {', '.join(found.occupancy.limited_by)}"
    most = min(device.resident(found.occupancy), _most_programs(found.tiling, device))
    splits, together = found.tiling.splits, found.tiling.splits
    if problem.folded > 1:
        together = splits * min(problem.tiles(found.tiling.tile_rows), GROUPS_AT_ONCE * problem.folded)
    return f"only {most} programs are resident at once" if most < together else None


def _plan(problem: Problem, found: Compiled, device: Device, passed_over: list[str], warning: str | None = None) -> LaunchPlan:
    tiling = found.tiling
    resident = device.resident(found.occupancy)
    groups = min(problem.tiles(tiling.tile_rows), _most_programs(tiling, device) // tiling.splits)
    if not tiling.is_shared and device.profile.grid.value == "resident":
        groups = min(groups, resident)  # each walks over as many tiles as the others
    num_programs = groups * tiling.splits
    reasons = why(problem, found.candidate, found.resources, num_programs, resident, device)
    skipped = (f"passed over {reason}" for reason in passed_over)
    warnings = [warning] if warning else []
    told = (*warnings, *skipped, *reasons)
    terms = None
    if device.hardware.memory_bandwidth_gb_per_s:
        spilled, programs = found.resources.spilled_bytes_per_thread, found.occupancy.programs_per_multiprocessor
        terms = cost(problem, tiling, num_programs, programs, device, spilled)
    return LaunchPlan(problem, tiling, num_programs, found.resources, found.occupancy, told, warning, terms)


def _walks(problem: Problem, tiling: Tiling, device: Device) -> bool:
    """Tells whether there are fewer programs than tiles: by the profile's choice, or since a launch has no more."""
    resident = not tiling.is_shared and device.profile.grid.value == "resident"
    return resident or problem.tiles(tiling.tile_rows) * tiling.splits > _most_programs(tiling, device)


def _most_programs(tiling: Tiling, device: Device) -> int:
    """Returns the most programs of one launch; the kernel walks through the tiles that are left."""
    hardware = device.hardware
    threads = tiling.num_warps * (hardware.warp_size or 1) if tiling.num_warps else hardware.max_threads_per_program or 1
    limits = hardware.max_programs, hardware.max_threads and hardware.max_threads // threads
    return min((limit for limit in limits if limit), default=UNLIMITED)
