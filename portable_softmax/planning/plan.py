"""A launch: how rows are cut into tiles, and its plan."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from textwrap import fill
from typing import Any

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.planning.cost import Terms
from portable_softmax.planning.problem import Problem

LINE = 100  # characters of a line of a printed plan


@dataclass(frozen=True)
class Tiling:
    """Partition of rows into tiles, and the compiler's options.

    A tile has `splits`, one per program that shares its rows; a split has `blocks` of `width` columns. A split is held in
    registers, or read one block at a time: twice, but once for log-probabilities and their gradient, which need no second pass.
    """

    tile_rows: int
    width: int  # columns of a block, a power of two
    num_warps: int | None = None  # Triton's options; None if the vendor has none, or its compiler chooses
    num_stages: int | None = None
    splits: int = 1  # programs that share the rows of a tile
    max_registers: int | None = None  # per thread that the compiler may use; None leaves it to the compiler
    blocks: int = 1  # of a split; 1 if one program reads whole rows in a loop over blocks
    held: bool = True  # in registers; False if splits are read one block at a time
    walk: bool = True  # a program may compute several tiles, which is required if there are fewer programs than tiles
    two_launches: bool = False  # the first computes statistics of the splits, the second reads these and the splits again

    @property
    def strategy(self) -> str:
        """Returns "split" if several programs share rows; else "in registers", or "two-pass" if read block by block."""
        if self.is_shared:
            return "split"
        return "in registers" if self.held else "two-pass"

    @property
    def tile_cols(self) -> int:
        """Returns the columns of a split."""
        return self.blocks * self.width

    @property
    def block_cols(self) -> int:
        """Returns the columns that a program has in registers at once."""
        return self.tile_cols if self.held else self.width

    @property
    def warps(self) -> int:
        """Returns num_warps; 1 if the vendor has none."""
        return self.num_warps or 1

    @property
    def is_shared(self) -> bool:
        """True if programs exchange numbers."""
        return self.splits > 1

    def covers(self, n_cols: int) -> int:
        """Returns how many of `n_cols` columns the programs of a tile compute, including masked ones."""
        return -(-n_cols // self.width) * self.width if self.strategy == "two-pass" else self.splits * self.tile_cols

    def __str__(self) -> str:
        words = f"{self.strategy} {self.tile_rows} x {self.tile_cols}"
        if self.is_shared:
            words += f" in {self.splits} splits"
        if self.blocks > 1:
            words += f" of {self.blocks} blocks"
        if self.two_launches:
            words += ", in two launches"
        elif self.is_shared and not self.held:
            words += ", block by block"
        if self.num_warps is not None:
            words += f", num_warps {self.num_warps}"
        if self.max_registers is not None:
            words += f", at most {self.max_registers} registers"
        return words


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Launch of a kernel, and the reasons for it."""

    num_programs: int  # of the grid; 0 where nothing is launched
    resources: Any = None  # KernelResources of a program; None in the interpreter, as the next two
    occupancy: Any = None  # Occupancy of a multiprocessor
    terms: Terms | None = None  # expected microseconds by cause; None if the profile has no cost
    reasons: tuple[str, ...] = ()  # the decisions in order, in sentences
    warnings: tuple[str, ...] = ()  # why the launch is slow, or what is wrong with the kernel at this size

    def printed(self, launch: str) -> str:
        """Returns a launch, its expected time, what a program uses, how many fit, and why, in short lines."""
        lines = [launch, f"expected {self.terms}"] if self.terms else [launch]
        lines += [f"uses {self.resources}", *str(self.occupancy).splitlines()] if self.resources else []
        return "\n".join(
            fill(line, LINE, subsequent_indent="    ", break_on_hyphens=False)
            for line in (*lines, *self.reasons, *self.warnings)
        )


@dataclass(frozen=True, repr=False)
class LaunchPlan(Plan):
    """Launch of one softmax, and the reasons for it."""

    problem: Problem  # what is computed, and how its rows are read
    tiling: Tiling

    @cached_property
    def us(self) -> float:
        """Returns the expected microseconds; where they are not known the bytes that are spilled."""
        return self.terms.total if self.terms else spilled_by(self.resources)

    @property
    def words(self) -> str:
        """Returns what differs from other candidates."""
        return str(self.tiling)

    def __repr__(self) -> str:
        return f"LaunchPlan({self.problem.name} of {self.problem.size}: {self.tiling}, num_programs {self.num_programs})"

    def __str__(self) -> str:
        doubt = "an estimate, not compiled: " if self.resources.estimated else ""
        return self.printed(f"{doubt}{self.tiling}, num_programs {self.num_programs}")

    def because(self, device: Device) -> Iterator[str]:
        """Yields sentences: how rows are read, unknown registers, and num_programs."""
        problem, tiling, programs, grid = self.problem, self.tiling, self.num_programs, device.profile.launch.grid
        if problem.unaligned:
            yield f"unaligned: rows start anywhere, and are read in whole vectors of {problem.vector} elements"
        if problem.in_place and device.profile.launch.polls:
            yield "in place: no programs share a row, as one may read again what another has overwritten"
        if self.resources.registers_per_thread is None and device.hardware.registers_per_multiprocessor:
            yield "registers are estimated: the compiler does not report registers or spills"
        tiles, resident = problem.tiles(tiling.tile_rows) * tiling.splits, device.resident(self.occupancy)
        number = "one per tile" if programs == tiles else f"for {tiles} tiles"
        source = f"grid: {grid.value}; {device.profile.sources[grid.source].title}"
        yield f"num_programs {programs}: {number}; {resident} are resident at once ({source})"


def spilled_by(used: KernelResources) -> int:
    """Returns the bytes of memory that a thread spills into: its stack frame, as these kernels have no other data."""
    return used.spilled_bytes_per_thread if used.stack_frame_bytes is None else used.stack_frame_bytes
