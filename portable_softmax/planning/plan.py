"""Plans of launches, and the launch of a softmax with what follows from it: programs, expected time, and reasons."""

import functools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import attrgetter
from textwrap import fill
from typing import Any

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.device import Device
from portable_softmax.planning.cost import Terms, Work, cost, limits_of
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.tiling import Tiling, softmax_work

FIELDS = attrgetter(*(one.name for one in fields(Problem)))
LINE = 100  # characters of a line of a printed plan


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Launch of a kernel."""

    num_programs: int  # of the grid; 0 where nothing is launched
    resources: Any = None  # KernelResources of a program; None in the interpreter, as the next one
    occupancy: Any = None  # Occupancy of a multiprocessor
    warnings: tuple[str, ...] = ()  # why the launch is slow, or what is wrong with the kernel at this size

    def printed(self, launch: str, terms: Terms | None, reasons: Sequence[str]) -> str:
        """Returns a launch, its expected time, what a program uses, how many fit, and why, in short lines."""
        lines = [launch]
        if terms:
            lines.append(f"expected {terms}")
        if self.resources:
            lines += [f"uses {self.resources}", *str(self.occupancy).splitlines()]
        lines += [*reasons, *self.warnings]
        return "\n".join(fill(line, LINE, subsequent_indent="    ", break_on_hyphens=False) for line in lines)


@dataclass(frozen=True, repr=False)
class LaunchPlan(Plan):
    """Launch of one softmax, and the reasons for it."""

    problem: Problem  # what is computed, and how its rows are read
    tiling: Tiling
    device: Any = None  # Device
    decisions: tuple[str, ...] = ()  # reasons for the tiling, which holds for a bucket of problems

    @property
    def work(self) -> Work:
        """Returns what its programs do, if they fit."""
        about = self.num_programs, self.occupancy.programs_per_multiprocessor, spilled_by(self.resources)
        return softmax_work(self.problem, self.tiling, limits_of(self.device), *about)

    @cached_property
    def terms(self) -> Terms | None:
        """Returns the expected microseconds by cause; None if the profile has no cost, or no program fits."""
        numbers, fits = self.device.profile.launch.cost, self.occupancy.programs_per_multiprocessor
        return cost(self.work, limits_of(self.device), numbers) if numbers and fits and self.num_programs else None

    @cached_property
    def us(self) -> float:
        """Returns the number by which launches are ranked: microseconds, or spilled bytes where these are not known.

        If a launch must not depend on the number of rows, they are the geometric mean of those for its rows and for one.
        """
        if not self.terms:
            return spilled_by(self.resources)
        if not self.problem.batch_invariant:
            return float(self.terms.total)
        one = self.resized(replace(self.problem, n_rows=self.problem.inner, rows_per_matrix=None)).terms or self.terms
        return math.sqrt(self.terms.total * one.total)

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Returns the decisions, how rows are read, whether registers are unknown, and num_programs, in sentences."""
        problem, grid, more = self.problem, self.device.profile.launch.grid, list[str]()
        if problem.whole_vectors:
            more.append(f"unaligned: rows start anywhere, and are read in whole vectors of {problem.vector} elements")
        if self.resources.registers_per_thread is None and self.device.hardware.registers_per_multiprocessor:
            more.append("registers are estimated: the compiler does not report registers or spills")
        tiles, number = problem.tiles(self.tiling.tile_rows) * self.tiling.splits, "one per tile"
        if self.num_programs != tiles:
            number = f"for {tiles} tiles"
        resident, source = self.device.resident(self.occupancy), self.device.profile.sources[grid.source].title
        number += f"; {resident} are resident at once (grid: {grid.value}; {source})"
        return *self.decisions, *more, f"num_programs {self.num_programs}: {number}"

    @property
    def label(self) -> str:
        """Returns what differs from other candidates."""
        return str(self.tiling)

    @property
    def unfit(self) -> str | None:
        """Returns the reason why it cannot run, or not without a long wait; None if it can."""
        if not self.occupancy.programs_per_multiprocessor:
            return f"does not fit: {', '.join(self.occupancy.limited_by)}"
        if self.tiling.two_launches or not self.problem.pairs:
            return None  # no program polls for words of another one
        most = min(self.device.resident(self.occupancy), self.num_programs)
        return f"only {most} programs are resident at once" if most < self.tiling.splits else None

    def __repr__(self) -> str:
        return f"LaunchPlan({self.problem.name}, {self.problem.size}: {self.tiling}, num_programs {self.num_programs})"

    def __str__(self) -> str:
        doubt = "an estimate, not compiled: " if self.resources.estimated else ""
        return self.printed(f"{doubt}{self.tiling}, num_programs {self.num_programs}", self.terms, self.reasons)

    def resized(self, problem: Problem) -> "LaunchPlan":
        """Returns the launch of another problem of the bucket, which is read in the same way."""
        way = self.problem
        if (problem.vector, problem.whole_vectors, problem.scattered) != (way.vector, way.whole_vectors, way.scattered):
            problem = Problem(*FIELDS(problem))  # a copy: replace() takes an eighth of a new number of rows
            problem.vector, problem.whole_vectors, problem.scattered = way.vector, way.whole_vectors, way.scattered
        said = {"decisions": self.decisions, "warnings": self.warnings}
        return launch_of(problem, self.tiling, self.device, self.resources, self.occupancy, **said)


def launch_of(
    problem: Problem, tiling: Tiling, device: Device, used: KernelResources, fit: Occupancy | None = None, **said: Any
) -> LaunchPlan:
    """Returns the launch of a tiling: with a program for each split of a tile, or fewer that walk over tiles."""
    fit = fit or occupancy_of(used, device)
    hardware, is_resident = device.hardware, device.profile.launch.grid.value == "resident" and not tiling.is_split
    threads = tiling.warps * (hardware.warp_size or hardware.max_threads_per_program or 1)
    most = min(hardware.max_programs or sys.maxsize, (hardware.max_threads or sys.maxsize) // threads)
    tiles = problem.tiles(tiling.tile_rows)
    groups = min(tiles, most // tiling.splits)
    if is_resident:
        groups = min(groups, device.resident(fit) or groups)
    if tiling.walk != (walk := is_resident or groups < tiles):  # all walk over equally many tiles
        tiling = tiling._replace(walk=walk)
    programs = groups * tiling.splits
    return LaunchPlan(problem, tiling, device, num_programs=programs, resources=used, occupancy=fit, **said)


@functools.lru_cache(maxsize=4096)
def occupancy_of(used: KernelResources, device: Device) -> Occupancy:
    """Returns how many programs that use so much a multiprocessor holds; many candidates use as much."""
    return device.vendor.occupancy(used, device.hardware)


def spilled_by(used: KernelResources) -> int:
    """Returns the bytes of memory that a thread spills into: its stack frame, as these kernels have no other data."""
    return used.spilled_bytes_per_thread if used.stack_frame_bytes is None else used.stack_frame_bytes
