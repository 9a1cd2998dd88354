"""Problem + Device -> LaunchPlan: arithmetic, and a function that tells what a compiled candidate uses.

The first candidate of the first rule that takes the problem, compiles without spilling and fits the device, is taken.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from portable_softmax.devices.backends.base import DTYPE_BYTES, KernelResources, Occupancy
from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import LaunchRule
from portable_softmax.errors import CompileError, PlanError
from portable_softmax.planning.candidates import candidates
from portable_softmax.planning.plan import LaunchPlan, Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.reasons import why
from portable_softmax.planning.rules import matching

UNLIMITED = 2**63 - 1
REGISTER_BYTES, ADDRESS_BYTES = 4, 8

Measure = Callable[[Problem, Tiling, Device], KernelResources]


class Compiled(NamedTuple):
    """A candidate that compiles: the rule it comes from, what a program uses, and how many fit."""

    rule: LaunchRule
    tiling: Tiling
    resources: KernelResources
    occupancy: Occupancy


def choose(problem: Problem, device: Device, measure: Measure) -> LaunchPlan:
    """Plans the launch of `problem` on `device`; `measure` compiles a candidate and reads what it uses.

    Raises:
        PlanError: no candidate compiles, keeps its registers and fits; lists them all.
    """
    passed_over: list[str] = []
    alone: tuple[Compiled, list[str]] | None = None  # nothing else runs while it waits: more or fewer warps may let two in
    for rule, tiling in _candidates(problem, device):
        if alone and _shape(tiling) != _shape(alone[0].tiling):
            break
        if not _may_fit(problem, rule, tiling, device):
            passed_over.append(f"{tiling}: its elements alone take more registers than there are")
            continue
        try:
            resources = measure(problem, tiling, device)
        except CompileError as error:
            passed_over.append(f"{tiling}: does not compile: {error}")
            continue
        found = Compiled(rule, tiling, resources, device.vendor.occupancy(resources, device.hardware))
        if unfit := _unfit(found, device):
            passed_over.append(f"{tiling}: {unfit}")
        elif found.occupancy.programs_per_multiprocessor > 1 or not tiling.num_warps:
            return _plan(problem, found, device, passed_over)
        else:
            alone = alone or (found, passed_over.copy())
            passed_over.append(f"{tiling}: would be alone on its multiprocessor")
    if alone:
        return _plan(problem, alone[0], device, alone[1])
    tried = "\n  ".join(_told_once(passed_over))
    raise PlanError(f"no launch of a {problem.name} of {problem.n_rows} x {problem.n_cols} fits {device}; tried:\n  {tried}")


def _told_once(passed_over: list[str]) -> list[str]:
    """One line where no candidate compiles, for one and the same reason: the compiler cannot be used at all."""
    reasons = {reason.partition(": ")[2] for reason in passed_over}
    if len(reasons) == 1 < len(passed_over) and (reason := reasons.pop()).startswith("does not compile"):
        return [f"{len(passed_over)} launches, and each {reason}"]
    return passed_over


def _candidates(problem: Problem, device: Device) -> Iterator[tuple[LaunchRule, Tiling]]:
    for rule in matching(problem, device):
        for tiling in candidates(rule, problem, device):
            yield rule, replace(tiling, walk=_walks(problem, tiling, device))


def _shape(tiling: Tiling) -> tuple[str, int, int]:
    """Key shared by candidates that differ only in num_warps, which chooses the length of a row in pieces."""
    return tiling.strategy, tiling.tile_rows, tiling.tile_cols if tiling.pieces == 1 else 0


def _may_fit(problem: Problem, rule: LaunchRule, tiling: Tiling, device: Device) -> bool:
    """Tells whether registers can hold the elements of a tile that is read once, and an address; if not, none is compiled."""
    if tiling.strategy == "online" or not tiling.held or not tiling.num_warps or not device.hardware.warp_size:
        return True
    elements = tiling.tile_rows * tiling.tile_cols * (2 if problem.backward else 1)
    element_bytes = min(DTYPE_BYTES[problem.x_dtype], DTYPE_BYTES[problem.y_dtype])
    threads = tiling.num_warps * device.hardware.warp_size
    held = elements * element_bytes // threads + ADDRESS_BYTES - (rule.spilled_bytes or 0)
    least = KernelResources(tiling.num_warps, max(0, held // REGISTER_BYTES))
    return device.vendor.occupancy(least, device.hardware).programs_per_multiprocessor > 0


def _unfit(found: Compiled, device: Device) -> str | None:
    """Says why a candidate cannot be launched; None if it can."""
    if found.resources.spilled_bytes_per_thread > (found.rule.spilled_bytes or 0):
        return f"spills {found.resources.spilled_bytes_per_thread} bytes per thread"
    if not found.occupancy.programs_per_multiprocessor:
        return f"does not fit: {', '.join(found.occupancy.limited_by)}"
    most = min(device.resident(found.occupancy), _most_programs(found.tiling, device))
    return f"only {most} programs are resident at once" if most < found.tiling.parts else None


def _plan(problem: Problem, found: Compiled, device: Device, passed_over: list[str]) -> LaunchPlan:
    tiling = found.tiling
    resident = device.resident(found.occupancy)
    groups = min(problem.tiles(tiling.tile_rows), _most_programs(tiling, device) // tiling.parts)
    if tiling.parts == 1 and device.profile.launch.grid.value == "resident":
        groups = min(groups, resident)  # each walks over as many tiles as the others
    num_programs = groups * tiling.parts
    reasons = why(problem, found.rule, tiling, found.resources, num_programs, resident, device)
    skipped = (f"passed over {reason}" for reason in passed_over)
    return LaunchPlan(tiling, num_programs, found.resources, found.occupancy, (*skipped, *reasons))


def _walks(problem: Problem, tiling: Tiling, device: Device) -> bool:
    """Tells whether there are fewer programs than tiles: by the profile's choice, or since a launch has no more."""
    resident = tiling.parts == 1 and device.profile.launch.grid.value == "resident"
    return resident or problem.tiles(tiling.tile_rows) * tiling.parts > _most_programs(tiling, device)


def _most_programs(tiling: Tiling, device: Device) -> int:
    """Programs that one launch may have; the kernel walks through what is left."""
    hardware = device.hardware
    threads = tiling.num_warps * (hardware.warp_size or 1) if tiling.num_warps else hardware.max_threads_per_program or 1
    limits = hardware.max_programs, hardware.max_threads and hardware.max_threads // threads
    return min((limit for limit in limits if limit), default=UNLIMITED)
