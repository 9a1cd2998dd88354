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
    EXACT: bool = False  # y, or logits of log-probabilities, are float32: exponentials and quotients to the last bits
    FUSED: bool = True  # the device's fma rounds once; else (Ascend) tl.exp and quotients are exact
    SAMPLE: bool = False  # the kernel of log-probabilities draws a token per row
    ENTROPY: bool = False  # likewise, not beside SAMPLE: entropies too; and their gradient has one from these
    MULTIPLE_IDS: bool = False  # gradient of log-probabilities: rows have another number of tokens than one
    SKIP_IGNORED: bool = False  # tiles without a token are not read: their programs load the ids first

    # Layout of rows.
    AXIS: int = 1  # of a tile's columns: 1 if neighbors in memory belong to one row; 0 if rows lie side by side
    LEVELS: int = 1  # of strides between rows: 1 of queries, 2 of heads too, 3 of batches too
    HEAD_TILES: bool = False  # all rows of a tile belong to one head; else they are consecutive
    OUT_LIKE_X: bool = False  # the result has the strides of x, as in place; else it is contiguous
    VECTOR: int = 1  # elements of an access: divides strides of rows and their length, unless they are unaligned
    WHOLE_VECTORS: bool = False  # rows start at any element, at the same distance from a multiple of VECTOR in all tensors
    ROW_UNIT: int = 1  # the length of a row and the stride between rows are passed in units of it, which divides them
    COL_UNIT: int = 1  # likewise, of the number of queries and the stride between columns
    UNIT: int = 1  # likewise, of strides between batches and heads

    # Work of a program.
    ROWS: int = 1  # a power of two, as BLOCK
    BLOCK: int = 1024
    BLOCKS: int = 1  # in registers at once: those of the longest split, where shorter ones mask the last wholly; else one
    UNMASKED_BLOCKS: int = 0  # at the start of every split, which end within all rows
    IN_REGISTERS: bool = True  # a program loads its split once; else block by block, and a softmax twice
    AS_LOADED: str = ""  # 16-bit tiles without scores stay in registers as loaded: assembly constraint of one with two elements
    GROUP: int = 0  # adjacent columns that share statistics, in log-probabilities and samples: 8, or a narrower block; 0: none
    PARTS: int = 1  # of a block, with statistics of their own: groups or, without, elements that all threads load at once
    OPAQUE: str = ""  # columns of stores are hidden from the optimizer: the assembly constraint of a register
    WALK: bool = False  # a program computes one tile after another; else the grid has one for every tile and split

    # Split rows: a program has one split of every row of its tile.
    SPLITS: int = 1
    SPLITS_READ: int = 1  # rows of the tensor of all words: a power of two of at least SPLITS, so that each thread reads one
    POLLS: int = 256  # of the words of all splits, at most
    ATOMIC_POLL: bool = False  # words are read by an atomic operation, where the compiler moves volatile loads out of a loop
    STEP: str = ""  # of two launches in place of an exchange: "reduce" publishes row statistics, "map" reads them

    # Scores: cap * tanh(scale * x / cap) / temperature + mask.
    SCALE: str = ""  # "number", or "rows": one per row
    TEMPERATURE: str = ""  # the same; 0 leaves the largest elements alone
    CAP: float = 0.0
    MASK: str = ""  # "bool", "added", or "bits": of 32 columns in a word
    MASK_COL: int = 1  # its stride between columns if 0 or 1; -1 for another one
    MASK_UNIT: int = 1  # its other strides are passed in units of it
    MASK_SHARED: bool = False  # by the heads of a batch: tiles of the same queries follow one another, while a cache has it
    ACCESS: int = 1  # adjacent elements that a thread loads at once, unless a mask hides all of them
    CAUSAL: str = ""  # "upper_left", or "lower_right"
    SINK: bool = False  # one more logit per row in the denominator
    MASKED_ROWS_ZERO: bool = False  # rows without a score result in 0; else nan
    MASKED_GRADIENT: bool = False  # gradients are 0 where y has no weight, and in rows of nan

    # Samples: "integer" or "number", or "rows" for one per row.
    SEED: str = ""
    POSITION: str = ""
    MIN_P: str = ""  # "" if all tokens may be drawn
    LOG2: str = ""  # assembly of the hardware's logarithm; "" for that of Triton

    @property
    def FOLD(self) -> int:
        """The axis of columns that share statistics, in a block that is folded."""
        return 2 if self.GROUP else self.AXIS

    @property
    def EDGES(self) -> tuple[constexpr, ...]:
        """EDGE of every block of a program: END behind UNMASKED_BLOCKS, and START of the first one if rows are unaligned."""
        edges = [NONE] * self.UNMASKED_BLOCKS + [END] * (self.BLOCKS - self.UNMASKED_BLOCKS)
        if self.WHOLE_VECTORS:
            edges[0] = BOTH if edges[0] is END else START
        return tuple(edges)

    @property
    def VECTOR_MASKS(self) -> bool:
        """True if a row may begin or end within a vector."""
        return self.AXIS == 1 and (self.WHOLE_VECTORS or self.CAUSAL != "") and self.FUSED

    @property
    def MASK_WORDS(self) -> bool:
        """True if a word of a mask's bits is loaded once for its 32 columns."""
        return self.MASK == "bits" and self.AXIS == 1 and not self.WHOLE_VECTORS and self.BLOCK >= 32

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
