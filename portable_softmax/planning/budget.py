"""Budget that a device has for a problem's launches: what follows from its facts, and numbers that somebody measured."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from portable_softmax.devices.device import Device
from portable_softmax.planning.numbers import Numbers
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem, next_power_of_2

MANY_ROWS = 2**31  # what a batch-invariant tile is chosen for


class Candidate(NamedTuple):
    """A launch to compile, the bytes that each thread may spill, and how it was computed."""

    tiling: Tiling
    spilled_bytes: int
    why: str


class Budget:
    """Facts of a device as they concern a problem; threads, registers and elements are those of a multiprocessor."""

    def __init__(self, problem: Problem, device: Device, numbers: Numbers) -> None:
        hardware = device.hardware
        self.problem, self.device, self.numbers = problem, device, numbers
        self.warp = hardware.warp_size or 1
        self.most_threads = hardware.max_threads_per_program or self.warp
        self.registers = hardware.registers_per_multiprocessor or 1
        self.multiprocessors = hardware.multiprocessor_count or 1
        self.threads = min((hardware.partitions_per_multiprocessor or 1) * self.warp, self.most_threads)  # a warp for each
        self.twice = min(2 * self.threads, self.most_threads)
        self.operands = 2 if problem.backward else 1
        self.n_rows = MANY_ROWS if problem.batch_invariant else problem.n_rows
        words = problem.y_dtype != "float64"  # a word holds a number of 32 bits
        launch = device.profile.launch
        self.shares = words and bool(launch.polls) and (not problem.in_place or bool(launch.in_place))
        resident_warps = hardware.max_warps_per_multiprocessor or 1
        resident = hardware.max_programs_per_multiprocessor or resident_warps * self.warp // self.threads
        self.programs_kept = max(1, resident // 2)  # on each multiprocessor, before short rows share a program

    @property
    def line(self) -> int:
        """Returns the neighbouring rows that fill a cache line."""
        line = self.device.profile.launch.line_elements
        return line.value if line else 1

    @property
    def sector(self) -> int:
        """Returns the neighbouring rows that fill the least that memory moves."""
        least = self.device.profile.launch.min_line_elements
        return least.value if least else 1

    @property
    def most_rows(self) -> int:
        """Returns a power of two of rows that is enough for all neighbours, or that has each row of folded lines once."""
        if self.problem.folded > 1:
            return 1 << (self.problem.inner // self.problem.folded).bit_length() - 1
        return next_power_of_2(self.problem.neighbours)

    @property
    def few_elements(self) -> int:
        """Returns the elements of a block for each thread, where a thread reads neighbours of several columns."""
        return self.numbers.elements_per_thread // 8

    @property
    def block(self) -> int:
        """Returns the elements of a block for each thread."""
        return max(1, self.numbers.bytes_per_block // self.problem.element_bytes)

    def rows(self, elements: float, row: int) -> int:
        """Returns a power of two of rows that there are elements for, while each multiprocessor keeps enough programs."""
        fit = max(1, int(elements // row))
        rows = min(1 << fit.bit_length() - 1, next_power_of_2(-(-self.n_rows // (self.multiprocessors * self.programs_kept))))
        return rows if self.problem.batch_invariant else min(rows, self.most_rows)

    def is_few(self, split: int) -> bool:
        """Tells whether programs of so many elements are few for each multiprocessor."""
        return self.n_rows * self.problem.n_cols <= self.numbers.fewest_programs * self.multiprocessors * split

    def registers_of(self, programs: int, threads: int) -> int:
        """Returns the registers of a thread that let so many programs be resident, in whole granules; 0 if none do."""
        hardware = self.device.hardware
        granule = hardware.register_granule or 1
        return min(self.registers // (programs * threads) // granule * granule, hardware.max_registers_per_thread or 1)

    def warps(self, elements: int, per_thread: int) -> int:
        """Returns the warps whose threads hold so many elements each, as far as a program may have them."""
        return min(next_power_of_2(max(1, round(elements / per_thread / self.warp))), self.most_threads // self.warp)

    def in_blocks(self, tiling: Tiling, elements: int) -> Tiling | None:
        """Returns the tiling in blocks of so many elements a thread, which end nearer to a row's end; None if one is enough."""
        unit = self.problem.vector if self.problem.unaligned else 1
        cols = max(unit, elements * (tiling.num_warps or 1) * self.warp // tiling.tile_rows)
        blocks = -(-self.problem.width // (tiling.splits * cols))
        return replace(tiling, width=cols, blocks=blocks) if blocks > 1 else None


def halves(most: int, least: int) -> Iterator[int]:
    """Yields most, half of it, and so on, while it is at least `least`."""
    while most >= least:
        yield most
        most //= 2
