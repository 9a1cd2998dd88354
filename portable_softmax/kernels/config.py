"""What a kernel is compiled for, as one constexpr: kernels read it as C.NAME."""

from dataclasses import dataclass
from typing import Any

from triton.language import constexpr

from portable_softmax.kernels.common import BOTH, END, INTERPRETED, NONE, START, TRITON


@dataclass(frozen=True, kw_only=True)
class KernelConfig:
    """Everything that a kernel is compiled for, except the types of its arguments.

    A program has ROWS rows and BLOCKS blocks of BLOCK columns: of shape [ROWS, BLOCK], or [BLOCK, ROWS] with AXIS 0.
    """

    # What is computed.
    LOG: bool = False  # log_softmax
    GRADIENT: bool = False  # of a softmax
    EXACT: bool = False  # exponentials and quotients to the last bits, for float32 results
    FUSED: bool = True  # fma rounds once; else tl.exp and a quotient are exact, and what is selected takes memory
    SAMPLE: bool = False  # log-probabilities: a token per row is drawn
    ENTROPY: bool = False  # the entropy per row too
    MULTIPLE_IDS: bool = False  # their gradient: rows have more tokens than one
    SKIP_IGNORED: bool = False  # rows without a token are not read, though ids must then be known first

    # Layout of rows.
    AXIS: int = 1  # of a tile's columns: 1 if neighbors in memory belong to one row, 0 if to one column
    LEVELS: int = 1  # strides from row to row: 1 of queries, 2 of heads too, 3 of batches too
    HEAD_TILES: bool = False  # a tile has rows of one head, in place of consecutive rows of any
    WIDE: bool = False  # there may be 2**31 rows or more
    OUT_LIKE_X: bool = False  # the result has the strides of x (in place); else it is contiguous
    VECTOR: int = 1  # elements of an access; rows start at multiples of it, unless they are
    UNALIGNED: bool = False  # rows that start at any element, at the same distance from a multiple in all tensors
    ROW_UNIT: int = 1  # divides the length of a row and the stride between rows, which are passed in units of it
    COL_UNIT: int = 1  # the same for the number of queries and the stride between columns
    UNIT: int = 1  # the same for the strides of batches and heads

    # Work of a program.
    ROWS: int = 1
    BLOCK: int = 1024  # a power of two, as in all tensors
    BLOCKS: int = 1  # of a row, or of a split of one: the last splits may have one more than the first
    UNMASKED_BLOCKS: int = 0  # at the start of every split, within rows
    IN_REGISTERS: bool = True  # else one block at a time, as with a STEP: twice by a softmax, once by log-probabilities
    AS_LOADED: str = ""  # constraint of a register with two elements of 16 bits: a tile is kept so, and exp computed twice
    GROUP: int = 0  # adjacent columns with statistics of their own, of log-probabilities and samples: 8, or all of fewer
    PARTS: int = 1  # of a block, with statistics of their own: groups, or columns of different threads
    OPAQUE: str = ""  # constraint of an optimization barrier before the columns of stores
    WALK: bool = False  # programs take one tile after another: the grid may be smaller than the number of tiles

    # Split rows: a program has one split of every row of its tile.
    SPLITS: int = 1
    SPLITS_READ: int = 1  # of a row, with padding, by one program: a power of two, at least SPLITS and threads // ROWS
    POLLS: int = 256  # of the other splits' words, at most
    ATOMIC_POLL: bool = False  # a volatile load would be moved out of the loop
    STEP: str = ""  # two launches in place of an exchange: "reduce" publishes row statistics, "map" reads them

    # Scores: cap * tanh(scale * x / cap) / temperature + mask.
    SCALE: str = ""  # "number", or "rows": one per row
    TEMPERATURE: str = ""  # the same; 0 leaves the largest elements alone
    CAP: float = 0.0
    MASK: str = ""  # "bool", "added", or "bits": of 32 columns in a word
    MASK_COL: int = 1  # its stride between columns if 0 or 1, else -1
    MASK_UNIT: int = 1  # what divides its other strides
    MASK_SHARED: bool = False  # by the heads of a batch, which take turns: a cache has it then
    ACCESS: int = 1  # neighbors that a thread reads at once: they are read if a mask shows any
    CAUSAL: str = ""  # "upper_left", or "lower_right"
    SINK: bool = False  # one more logit per row in the denominator
    MASKED_ROWS_ZERO: bool = False  # rows without a score result in 0; else nan
    MASKED_GRADIENT: bool = False  # gradients are 0 where y has no weight, and in rows of nan

    # Samples: "integer" or "number", or "rows".
    SEED: str = ""
    POSITION: str = ""
    MIN_P: str = ""  # "" if all tokens may be drawn
    LOG2: str = ""  # assembly of a logarithm, where that of Triton is a long function

    @property
    def FOLD(self) -> int:
        """The axis of columns that share statistics, in a block that is folded."""
        return 2 if self.GROUP else self.AXIS

    @property
    def EDGES(self) -> tuple[constexpr, ...]:
        """EDGE of every block of a program: END behind UNMASKED_BLOCKS, and START of the first one if rows are unaligned."""
        edges = [NONE] * self.UNMASKED_BLOCKS + [END] * (self.BLOCKS - self.UNMASKED_BLOCKS)
        if self.UNALIGNED:
            edges[0] = BOTH if edges[0] is END else START
        return tuple(edges)

    @property
    def VECTOR_MASKS(self) -> bool:
        """True if a row may begin or end within a vector."""
        return self.AXIS == 1 and (self.UNALIGNED or self.CAUSAL != "") and self.FUSED

    @property
    def MASK_WORDS(self) -> bool:
        """True if a word of a mask's bits is loaded once for its 32 columns."""
        return self.MASK == "bits" and self.AXIS == 1 and not self.UNALIGNED and self.BLOCK >= 32

    @property
    def HIDES(self) -> bool:
        """True for a mask that makes scores -inf, and adds nothing."""
        return self.MASK in ("bool", "bits")

    @property
    def SELECT(self) -> bool:
        """True if scores are not -inf by themselves where a row has no element, or a mask hides it."""
        return self.HIDES or self.VECTOR_MASKS or "rows" in (self.SCALE, self.TEMPERATURE) or self.CAP != 0.0


@dataclass(frozen=True)
class InKernel:
    """A KernelConfig as the value of a kernel's C: its attributes are constexprs, but plain values in the interpreter."""

    config: KernelConfig
    interpreted: bool = INTERPRETED.value

    def __getattr__(self, name: str) -> Any:
        if not name.isupper():
            raise AttributeError(name)
        value = getattr(self.config, name)
        return value if self.interpreted or isinstance(value, tuple) else constexpr(value)


if TRITON < (3, 4):  # it does not look up attributes of what constexprs hold
    constexpr.__getattr__ = lambda constant, name: getattr(constant.value if name.isupper() else None, name)
