"""How rows are cut into tiles."""

from typing import NamedTuple


class Tiling(NamedTuple):
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
