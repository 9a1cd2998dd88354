"""The softmax of rows as a kernel computes it, and how its rows are read."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from portable_softmax.devices.backends.base import DTYPE_BYTES

VECTOR_BYTES = 16  # the widest load or store of one thread
MAX_COLS = 2**31 - 2**16  # offsets in a line are 32 bits wide, and reach past its end by less than a tile
MAX_ROWS = 2**31 - 2**20  # rows are numbered in 32 bits, and a tile reaches past the last one
MANY_ROWS = 2048  # from which on a launch may skip rows without a token

Factor = Literal["number", "rows"]
Causal = Literal["upper_left", "lower_right"]
Level = tuple[int, tuple[int, ...]]  # a size, and the operands' strides in elements


def next_power_of_2(value: int) -> int:
    """Returns the smallest power of two that is at least `value`."""
    return 1 << (value - 1).bit_length()


@dataclass(unsafe_hash=True, kw_only=True)
class Scores:
    """Scores, cap * tanh(scale * x / cap) / temperature, and what masks some; all absent by default."""

    scale: Factor | None = None  # a positive number, or one number per row
    temperature: Factor | None = None  # likewise; rows of 0 are greedy: all weight is on their largest elements
    cap: float | None = None  # compiled into the kernel; the kernel of a gradient then reads x too
    # Of a gradient, which reads no mask, "bool" says that y may have elements without weight.
    mask: str | None = None  # "bool", where True keeps an element; "bits", 32 in a word; or the dtype of a mask that is added
    causal: Causal | None = None  # columns above the row's number in its matrix are masked; lower_right: the last row has all
    sink: bool = False  # one more logit per row, in the denominator alone
    zero_rows: bool = False  # wholly masked rows are 0 instead of nan

    def __bool__(self) -> bool:
        """True if any is present."""
        return self is not NONE and self != NONE


NONE = Scores()


@dataclass(unsafe_hash=True, kw_only=True)
class LogProbs:
    """Numbers per row that a launch computes, or the gradient of which it computes."""

    sample: bool = False  # a token is drawn, and its log-probability computed
    entropy: bool = False  # computed per row too; a gradient has one from it
    lse: bool = False  # the logsumexp per row is a result; a gradient has one from it
    gradient: bool = False  # of x, from the gradients of these numbers
    many: bool = False  # a gradient: rows have another number of chosen elements than one
    seed: str = ""  # of samples: an "integer", or one per row, "rows"; min_p may be absent
    position: str = ""
    min_p: Factor | None = None

    @property
    def n_statistics(self) -> int:
        """Numbers per row that a launch stores for its gradient: logsumexp, its rounding error, and entropy last."""
        return 3 if self.entropy else 2


class Mask(NamedTuple):
    """Layout of a mask, as far as its kernel depends on it."""

    step: int = 1  # stride within a line, 0 or 1; -1 for another one
    col: int = 1  # stride between columns, likewise
    vector: int = 1  # elements of a load
    per_batch: bool = False  # all matrices of a batch, such as heads, share a mask, in which rows differ
    shared: bool = True  # by several elements of x, so that a cache has it; or there is none


NO_MASK = Mask()


@dataclass(unsafe_hash=True)  # not frozen, which takes microseconds of every new number of rows
class Problem:
    """The softmax of rows, or its gradient, as far as plans and kernels depend on it; nothing changes it."""

    n_rows: int  # at least 1, and at most MAX_ROWS
    n_cols: int  # at least 1; a line has at most MAX_COLS elements
    x_dtype: str  # torch's names of the types of input and output; their gradients have the same
    y_dtype: str
    vector: int  # elements that divide the length and the strides of all lines, at most what 16 bytes hold
    starts_aligned: bool = True  # all operands start on a multiple of 16 bytes
    form: str = "softmax"  # or log_softmax
    backward: bool = False  # the gradient of x from that of y, and y; that of log-probabilities is log_probs.gradient
    inner: int = 1  # rows side by side, as in [n_rows // inner, n_cols, inner]; 1 where the elements of a row are adjacent
    batch_invariant: bool = False  # the tile does not depend on n_rows
    depth: int = 1  # 1 where all lines are one distance apart; 2 where they are in matrices; 3 where these are in batches
    alike: bool = False  # rows of all operands start at the same element of a vector
    out_like_x: bool = False  # the result has the strides of x, and is not contiguous
    whole_vectors: bool = False  # a way of reading rows that start at any element, chosen by planning; requires starts_aligned
    scattered: bool = False  # a tile has rows of several matrices; planning decides it
    scores: Scores = NONE  # what is applied to x first
    overwrites: bool = False  # the result is written over x, dy or y; False for log-probabilities, whose rows stay as they are
    mask: Mask = NO_MASK  # of scores
    log_probs: LogProbs | None = None  # numbers per row in place of the result, or that x has a gradient of
    rows_per_matrix: int | None = None  # None where all rows are in one
    # batches, matrices, lines of a matrix and elements of a line, with the strides of operands and, last, of a mask; they are
    # arguments of a launch, and no plan and no kernel depends on them
    levels: tuple[Level, ...] | None = field(default=None, compare=False)

    @cached_property
    def operations(self) -> frozenset[str]:
        """Returns names of what a kernel computes beside a softmax, as far as its memory depends on it."""
        scores, picks, log = self.scores, self.log_probs or LogProbs(), self.form == "log_softmax"
        names = {
            "gradient": self.backward and not log,
            "log gradient": self.backward and log,
            "tokens": self.log_probs is not None,
            "token gradient": picks.gradient,
            "many": picks.many,
            "causal": scores.causal is not None,
            "cap": scores.cap is not None,
            "scale": scores.scale == "rows",
            "temperature": scores.temperature is not None,
            "bool": scores.mask in ("bool", "bits"),
            "added": scores.mask not in (None, "bool", "bits"),
        }
        return frozenset(name for name, present in names.items() if present)

    @property
    def numbered(self) -> bool:
        """True if the kernel needs row numbers, as rows have values of their own in memory."""
        return bool(self.scores) or self.log_probs is not None

    @cached_property
    def stores(self) -> int:
        """Returns the number of operands of which every element is written: none if results are numbers per row."""
        return 1 if self.log_probs is None or self.log_probs.gradient else 0

    @cached_property
    def loads(self) -> int:
        """Returns the number of operands of which every element is read."""
        return 2 if self.backward else 1

    @cached_property
    def element(self) -> int:
        """Returns the bytes of an element of the result, or of x if no element is written."""
        return DTYPE_BYTES[self.y_dtype if self.stores else self.x_dtype]

    @property
    def skips(self) -> bool:
        """True if rows without a token are not read: the ids must be known first, which does not pay for a few rows."""
        picks = self.log_probs
        if picks is None or picks.sample or picks.entropy or picks.lse:
            return False
        return picks.gradient or self.n_rows >= MANY_ROWS

    @cached_property
    def pairs(self) -> int:
        """Returns the pairs of numbers per split that all its programs read; a gradient of log-probabilities needs none.

        A sample publishes another one, a score and its token, which the last program alone reads.
        """
        picks = self.log_probs or LogProbs()
        if picks.gradient:
            return 0
        return 2 if picks.entropy else 1

    @property
    def is_sample(self) -> bool:
        """True if tokens are drawn by a launch of its own: a batch-invariant one is that of log-probabilities, in bits."""
        return self.log_probs is not None and self.log_probs.sample and not self.batch_invariant

    @cached_property
    def widest(self) -> int:
        """Returns the most elements of the wider type that one load or store takes."""
        return VECTOR_BYTES // max(DTYPE_BYTES[self.x_dtype], DTYPE_BYTES[self.y_dtype])

    @property
    def across(self) -> bool:
        """True if rows are side by side, so that neighbouring elements in memory belong to different rows."""
        return self.inner > 1

    @property
    def rows_per_group(self) -> int:
        """Returns the number of rows that a tile selects from: all, or those side by side."""
        if self.across:
            return self.n_rows if self.scattered else self.inner
        return (self.numbered and self.rows_per_matrix) or self.n_rows

    @cached_property
    def width(self) -> int:
        """Returns the columns that a tile of whole rows needs; vectors of an unaligned row may begin ahead of it."""
        if self.whole_vectors:
            return self.n_cols + self.vector - 1
        return self.n_cols if self.across else max(self.n_cols, self.vector)

    @property
    def size(self) -> str:
        """Returns rows x columns."""
        return f"{self.n_rows} x {self.n_cols}"

    @property
    def name(self) -> str:
        """Returns text for error messages: the direction, the form, and the type of the output."""
        text, picks = self.form, self.log_probs or LogProbs()
        if self.log_probs:
            text = "log-probabilities of tokens"
        if picks.sample:
            text = "sample of tokens"
        if self.backward or picks.gradient:
            text = f"gradient of {text}"
        return f"{text} in {self.y_dtype}"

    def tiles(self, tile_rows: int) -> int:
        """Returns the number of tiles of `tile_rows` rows that cover all rows."""
        rows = self.rows_per_group
        return self.n_rows // rows * -(-rows // tile_rows)
