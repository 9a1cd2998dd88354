"""A launch: candidates for it, and the one that is chosen."""

from dataclasses import dataclass
from textwrap import fill

from portable_softmax.devices.backends.base import KernelResources, Occupancy

LINE = 100  # characters of a line of a printed plan


@dataclass(frozen=True)
class Tiling:
    """A candidate: how rows are cut into tiles, and how a program works on one."""

    strategy: str  # tile: a row is read once; online: in several tiles, twice; shared: once, by `parts` programs
    tile_rows: int
    tile_cols: int
    num_warps: int | None
    num_stages: int | None
    parts: int = 1  # programs that share a row
    max_registers: int | None = None  # per thread, that the compiler may use; None leaves it to the compiler
    pieces: int = 1  # of a tile, side by side; a piece's columns are a power of two
    walk: bool = True  # whether programs may take more than one tile, as fewer of them than tiles must

    @property
    def words_per_row(self) -> int:
        """64-bit words in which its programs exchange numbers: two for each, and no cache line of 128 bytes with two rows'."""
        return 2 * -(-self.parts // 8) * 8

    def __str__(self) -> str:
        warps = "" if self.num_warps is None else f", num_warps {self.num_warps}"
        parts = "" if self.parts == 1 else f" in {self.parts} parts"
        pieces = "" if self.pieces == 1 else f" of {self.pieces} pieces"
        registers = "" if self.max_registers is None else f", at most {self.max_registers} registers"
        return f"{self.strategy} {self.tile_rows} x {self.tile_cols}{parts}{pieces}{warps}{registers}"


@dataclass(frozen=True)
class LaunchPlan:
    """How one softmax is launched, and why.

    Args:
        strategy: "tile" (a row is read once), "online" (a longer one, read twice) or "shared" (longer rows, or few, read once
            by several programs that tell each other what they find).
        tile_rows, tile_cols: elements of a tile.
        pieces: that a tile's columns are held in, a power of two of them each.
        parts: programs that share a row.
        num_warps, num_stages: Triton's options; None where the vendor has no such thing.
        max_registers: per thread, that the compiler was held to; None if it was not.
        num_programs: size of the one-dimensional grid.
        walk: whether programs take more than one tile each.
        resources: what a program of the compiled kernel uses.
        occupancy: programs per multiprocessor, and what limits them.
        reasons: the decisions in order, in words.
    """

    strategy: str
    tile_rows: int
    tile_cols: int
    parts: int
    num_warps: int | None
    num_stages: int | None
    num_programs: int
    resources: KernelResources
    occupancy: Occupancy
    reasons: tuple[str, ...]
    max_registers: int | None = None
    pieces: int = 1
    walk: bool = True

    def __str__(self) -> str:
        """Gives the tile and the grid, what a program uses, how many fit, and why, in short lines."""
        launch = f"{self.tiling}, num_stages {self.num_stages}" if self.num_stages is not None else f"{self.tiling}"
        used = [f"{key} {value}" for key, value in vars(self.resources).items() if value is not None]
        lines = [f"{launch}, num_programs {self.num_programs}", f"uses {', '.join(used)}", *str(self.occupancy).splitlines()]
        return "\n".join(fill(line, LINE, subsequent_indent="    ", break_on_hyphens=False) for line in (*lines, *self.reasons))

    @property
    def tiling(self) -> Tiling:
        return Tiling(
            self.strategy,
            self.tile_rows,
            self.tile_cols,
            self.num_warps,
            self.num_stages,
            self.parts,
            self.max_registers,
            self.pieces,
            self.walk,
        )
