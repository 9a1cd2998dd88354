"""A launch: how rows are cut into tiles, and its plan."""

from dataclasses import dataclass
from textwrap import fill

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.policy import Strategy
from portable_softmax.planning.cost import Terms
from portable_softmax.planning.problem import Problem

LINE = 100  # characters of a line of a printed plan


@dataclass(frozen=True)
class Tiling:
    """Cut of rows into tiles, with the options that a program of it is compiled with.

    A tile has `splits`, one per program that shares its rows; a split has `blocks` of `width` columns. It is held, so that
    rows are read once, or it is read twice, one block at a time.

    Args:
        tile_rows: rows of a tile.
        width: columns of a block, a power of two.
        num_warps, num_stages: Triton's options; None where the vendor has none, or its compiler chooses.
        splits: programs that share the rows of a tile.
        max_registers: per thread, that the compiler may use; None leaves it to the compiler.
        blocks: of a split. 1 where one program reads whole rows twice: it takes as many as there are, by the same kernel.
        held: False where splits are read twice.
        walk: a program may take more than one tile, as fewer programs than tiles must.
        two_launches: the first computes statistics of the splits, the second reads these and the splits again.
    """

    tile_rows: int
    width: int
    num_warps: int | None = None
    num_stages: int | None = None
    splits: int = 1
    max_registers: int | None = None
    blocks: int = 1
    held: bool = True
    walk: bool = True
    two_launches: bool = False

    def __post_init__(self) -> None:
        if self.strategy == "online":
            object.__setattr__(self, "blocks", 1)

    @property
    def strategy(self) -> Strategy:
        """Returns its name: programs share rows ("shared"), or one reads them once ("tile") or twice ("online")."""
        if self.is_shared:
            return "shared"
        return "tile" if self.held else "online"

    @property
    def tile_cols(self) -> int:
        """Returns the columns of a split."""
        return self.blocks * self.width

    @property
    def elements(self) -> int:
        """Returns how many elements a program has at once."""
        return self.tile_rows * (self.tile_cols if self.held else self.width)

    @property
    def is_shared(self) -> bool:
        """True if programs exchange numbers."""
        return self.splits > 1

    def covers(self, n_cols: int) -> int:
        """Returns how many columns the programs of a tile take of rows of `n_cols`, with those that are masked."""
        return -(-n_cols // self.width) * self.width if self.strategy == "online" else self.splits * self.tile_cols

    @property
    def reads_splits_twice(self) -> bool:
        """True if programs share rows whose splits they do not hold."""
        return self.is_shared and not self.held

    @property
    def words_per_tile(self) -> int:
        """Returns the numbers, of one word, that a tile's programs exchange: two per split and row."""
        return 2 * self.splits * self.tile_rows

    def __str__(self) -> str:
        warps = "" if self.num_warps is None else f", num_warps {self.num_warps}"
        splits = "" if self.splits == 1 else f" in {self.splits} splits"
        blocks = "" if self.blocks == 1 else f" of {self.blocks} blocks"
        blocks += ", in two launches" if self.two_launches else ", read twice" if self.reads_splits_twice else ""
        registers = "" if self.max_registers is None else f", at most {self.max_registers} registers"
        stages = f", num_stages {self.num_stages}" if (self.num_stages or 1) > 1 else ""
        return f"{self.strategy} {self.tile_rows} x {self.tile_cols}{splits}{blocks}{warps}{registers}{stages}"


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
        terms: its expected microseconds, by cause; None where the profile has no numbers for them.
    """

    problem: Problem
    tiling: Tiling
    num_programs: int
    resources: KernelResources
    occupancy: Occupancy
    reasons: tuple[str, ...]
    warning: str | None = None
    terms: Terms | None = None

    def __repr__(self) -> str:
        return f"LaunchPlan({self.problem.name} of {self.problem.size}: {self.tiling}, num_programs {self.num_programs})"

    def __str__(self) -> str:
        """Returns the tile and the grid, what a program uses, the expected time, how many fit, and why, in short lines."""
        lines = f"{self.tiling}, num_programs {self.num_programs}", f"uses {self.resources}"
        expected = [f"expected {self.terms}"] if self.terms else []
        everything = (*lines, *expected, *str(self.occupancy).splitlines(), *self.reasons)
        return "\n".join(fill(line, LINE, subsequent_indent="    ", break_on_hyphens=False) for line in everything)

    @property
    def strategy(self) -> Strategy:
        """Returns the word for the tiling."""
        return self.tiling.strategy

    @property
    def num_warps(self) -> int | None:
        """Returns Triton's num_warps of the launch; None if the vendor has none."""
        return self.tiling.num_warps

    @property
    def num_stages(self) -> int | None:
        """Returns Triton's num_stages of the launch; None if the vendor has none."""
        return self.tiling.num_stages
