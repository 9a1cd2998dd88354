"""A launch: how rows are cut into tiles, and the plan that is made of it."""

from dataclasses import dataclass
from textwrap import fill

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.policy import Strategy
from portable_softmax.planning.problem import Problem

LINE = 100  # characters of a line of a printed plan


@dataclass(frozen=True)
class Tiling:
    """Cut of rows into tiles, with the options that a program of it is compiled with.

    Args:
        strategy: "tile" (a row is read once), "online" (a longer one, read twice) or "shared" (longer rows, or few, read once
            by several programs that tell each other what they find).
        tile_rows, tile_cols: elements of a tile.
        num_warps, num_stages: Triton's options; None where the vendor has no such thing, or its compiler chooses.
        parts: programs that share the rows of a tile.
        max_registers: per thread, that the compiler may use; None leaves it to the compiler.
        pieces: in which a tile's columns are held, or a part's are read twice, a power of two of them each.
        held: False where rows, or parts of them, are read twice; an "online" row always is.
        walk: a program may take more than one tile, as fewer programs than tiles must.
    """

    strategy: Strategy
    tile_rows: int
    tile_cols: int
    num_warps: int | None = None
    num_stages: int | None = None
    parts: int = 1
    max_registers: int | None = None
    pieces: int = 1
    held: bool = True
    walk: bool = True

    def __post_init__(self) -> None:
        if self.strategy == "online":
            object.__setattr__(self, "held", False)

    @property
    def is_shared(self) -> bool:
        """Tells whether programs exchange numbers."""
        return self.strategy == "shared"

    @property
    def reads_parts_twice(self) -> bool:
        """Tells whether programs share rows whose parts they do not hold."""
        return self.is_shared and not self.held

    @property
    def words_per_tile(self) -> int:
        """Returns the 64-bit words in which a tile's programs exchange numbers: two per row, in cache lines of 128 bytes."""
        return 2 * -(-self.parts * self.tile_rows // 8) * 8

    def __str__(self) -> str:
        warps = "" if self.num_warps is None else f", num_warps {self.num_warps}"
        parts = "" if self.parts == 1 else f" in {self.parts} parts"
        pieces = "" if self.pieces == 1 else f" of {self.pieces} pieces"
        pieces += ", read twice" if self.reads_parts_twice else ""
        registers = "" if self.max_registers is None else f", at most {self.max_registers} registers"
        stages = f", num_stages {self.num_stages}" if (self.num_stages or 1) > 1 else ""
        return f"{self.strategy} {self.tile_rows} x {self.tile_cols}{parts}{pieces}{warps}{registers}{stages}"


@dataclass(frozen=True)
class LaunchPlan:
    """Launch of one softmax, and the reasons for it.

    Args:
        problem: what is computed, and how its rows are read.
        tiling: how rows are cut into tiles, with the compiler's options.
        num_programs: size of the one-dimensional grid.
        resources: what a program of the compiled kernel uses.
        occupancy: programs per multiprocessor, and what limits them.
        reasons: the decisions in order, in sentences.
        warning: the reason why the launch is slow, where all that were compiled are; None for most.
    """

    problem: Problem
    tiling: Tiling
    num_programs: int
    resources: KernelResources
    occupancy: Occupancy
    reasons: tuple[str, ...]
    warning: str | None = None

    def __repr__(self) -> str:
        return f"LaunchPlan({self.problem.name} of {self.problem.size}: {self.tiling}, num_programs {self.num_programs})"

    def __str__(self) -> str:
        """Gives the tile and the grid, what a program uses, how many fit, and why, in short lines."""
        lines = f"{self.tiling}, num_programs {self.num_programs}", f"uses {self.resources}"
        everything = (*lines, *str(self.occupancy).splitlines(), *self.reasons)
        return "\n".join(fill(line, LINE, subsequent_indent="    ", break_on_hyphens=False) for line in everything)

    @property
    def num_warps(self) -> int | None:
        """Returns Triton's num_warps of the launch; None if the vendor has none."""
        return self.tiling.num_warps

    @property
    def num_stages(self) -> int | None:
        """Returns Triton's num_stages of the launch; None if the vendor has none."""
        return self.tiling.num_stages
