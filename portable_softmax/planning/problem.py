"""The softmax of rows as a kernel computes it, and how its rows are read."""

import sys
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.planning.lines import Lines

VECTOR_BYTES = 16  # the widest load or store of one thread
MAX_COLS = 2**31 - 2**16  # offsets in a line are 32 bits wide, and reach past its end by less than a tile
MAX_BYTES = sys.maxsize  # of a matrix: addresses are 64 bits wide, and their differences signed
MANY_ROWS = 2048  # from which on a launch may skip rows without a token
FORMS = "softmax", "log_softmax"


def next_power_of_2(value: int) -> int:
    """Returns the smallest power of two that is at least `value`."""
    return 1 << (value - 1).bit_length()


Factor = Literal["number", "rows"]
Causal = Literal["upper_left", "lower_right"]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores, cap * tanh(scale * x / cap) / temperature, and what masks some; all absent by default.

    Args:
        scale: a positive number, or one number per row.
        temperature: likewise; rows of 0 are greedy: all weight is on their largest elements, whatever the cap is.
        cap: compiled into the kernel. The kernel of a gradient then reads x too.
        mask: "bool", where True keeps an element; "bits", of 32 elements in a word; or the dtype of a mask that is added.
        causal: columns above the row's number in its matrix are masked; lower_right: the last row has all columns.
        sink: one more logit per row, in the denominator alone.
        zero_rows: wholly masked rows are 0 instead of nan.
    """

    scale: Factor | None = None
    temperature: Factor | None = None
    cap: float | None = None
    mask: str | None = None
    causal: Causal | None = None
    sink: bool = False
    zero_rows: bool = False

    def __bool__(self) -> bool:
        """True if any is present."""
        return self != NONE


NONE = Scores()


@dataclass(frozen=True, kw_only=True)
class LogProbs:
    """Numbers per row that a launch computes, or the gradient of which it computes.

    Args:
        sample: a token is drawn, and its log-probability computed.
        entropy: computed per row too; for a gradient, it has one itself.
        lse: the logsumexp per row is requested; for a gradient, it has one itself.
        gradient: of x, from the gradients of these numbers.
        many: a gradient: rows have another number of chosen elements than one.
        seed, position, min_p: of samples: a number, or one number per row; min_p may be None.
    """

    sample: bool = False
    entropy: bool = False
    lse: bool = False
    gradient: bool = False
    many: bool = False
    seed: Factor = "number"
    position: Factor = "number"
    min_p: Factor | None = None

    @property
    def n_statistics(self) -> int:
        """Numbers per row that a launch stores for its gradient: logsumexp, its rounding error, and entropy last."""
        return 2 + self.entropy


@dataclass(frozen=True)
class Problem:
    """The softmax of rows, or its gradient, as far as a kernel depends on it.

    Args:
        n_rows, n_cols: number of rows and their length in elements: at least 1, at most MAX_COLS in a line.
            All of them take at most MAX_BYTES.
        x_dtype, y_dtype: torch's names of the types of the input and of the output; their gradients have the same.
        vector: elements that divide the length and the strides of all lines, at most what 16 bytes hold.
        aligned: whether all operands start on a multiple of 16 bytes.
        form: one of FORMS.
        backward: the gradient of x from that of y, and y.
        inner: 1 where the elements of a row are next to each other; else the number of rows side by side, as in a
            contiguous [n_rows // inner, n_cols, inner] tensor.
        batch_invariant: whether the tile must not depend on n_rows.
        depth: 1 where all lines are one distance apart; 2 where they are in matrices; 3 where these are in batches.
        lines: layout of the operands; None where only a plan is requested.
        unaligned, scattered: how a launch reads it, which planning chooses (grid.py).
            unaligned: rows start anywhere, but those of all operands alike, and are read in whole vectors; `vector` is what 16
            bytes hold. scattered: a tile takes rows of several matrices.
        scores: what is applied to x first; none for the plain softmax.
        in_place: the result overwrites x, or dy; or y.
        mask_step: stride of the mask within a line, 0 or 1; None for another one.
        mask_vector: elements of a load of the mask.
        log_probs: numbers per row that replace the result, or that x has a gradient of; None for neither.

    Raises:
        ValueError: a size is too large.
    """

    n_rows: int
    n_cols: int
    x_dtype: str
    y_dtype: str
    vector: int
    aligned: bool = True
    form: str = "softmax"
    backward: bool = False
    inner: int = 1
    batch_invariant: bool = False
    depth: int = 1
    lines: Lines | None = None
    unaligned: bool = False
    scattered: bool = False
    scores: Scores = NONE
    in_place: bool = False
    mask_step: int | None = 1
    mask_vector: int = 1
    log_probs: LogProbs | None = None

    def __post_init__(self) -> None:
        if (line := self.inner if self.across else self.n_cols) > MAX_COLS:
            raise ValueError(f"a row of {line} elements is too large; rows of up to {MAX_COLS} can be computed")
        used = self.n_rows * self.n_cols * max(DTYPE_BYTES[self.x_dtype], DTYPE_BYTES[self.y_dtype])
        if used > MAX_BYTES:
            rows = f"{self.n_rows} rows of {self.n_cols} columns"
            raise ValueError(f"{rows} are too large: {used} bytes, and {MAX_BYTES} can be addressed")

    @cached_property
    def operations(self) -> frozenset[str]:
        """Returns names of what a kernel computes beside a softmax, as far as its memory depends on it."""
        scores, picks, log = self.scores, self.log_probs, self.form == "log_softmax"
        names = {
            "gradient": self.backward and not log,
            "log gradient": self.backward and log,
            "tokens": picks is not None,
            "token gradient": picks is not None and picks.gradient,
            "many": picks is not None and picks.many,
            "causal": scores.causal is not None,
            "cap": scores.cap is not None,
            "scale": scores.scale == "rows",
            "temperature": scores.temperature is not None,
            "bool": scores.mask in ("bool", "bits"),
            "added": scores.mask not in (None, "bool", "bits"),
        }
        return frozenset(name for name, there in names.items() if there)

    @property
    def numbered(self) -> bool:
        """True if the kernel needs row numbers, as rows have values of their own in memory."""
        return bool(self.scores) or self.log_probs is not None

    @property
    def stores(self) -> bool:
        """True if a result per element is written, not numbers per row alone."""
        return self.log_probs is None or self.log_probs.gradient

    @property
    def skips(self) -> bool:
        """True if rows without a token are not read: the ids must be known first, which does not pay for a few rows."""
        picks = self.log_probs
        return picks is not None and not (picks.entropy or picks.lse) and (picks.gradient or self.n_rows >= MANY_ROWS)

    @property
    def pairs(self) -> int:
        """Returns the pairs of numbers per split that programs exchange; a gradient of log-probabilities needs none."""
        picks = self.log_probs
        return 1 if picks is None else 0 if picks.gradient else 1 + picks.entropy

    @property
    def is_sample(self) -> bool:
        """True if tokens are drawn. The launch is that of log-probabilities, so that these are equal in bits."""
        return self.log_probs is not None and self.log_probs.sample

    @cached_property
    def widest(self) -> int:
        """Returns the most elements of the wider type that one load or store takes."""
        return VECTOR_BYTES // max(DTYPE_BYTES[self.x_dtype], DTYPE_BYTES[self.y_dtype])

    @property
    def across(self) -> bool:
        """True if rows are side by side, so that neighbouring elements in memory belong to different rows."""
        return self.inner > 1

    @cached_property
    def neighbours(self) -> int:
        """Returns the number of rows that a tile selects from: all, or those side by side."""
        if self.across:
            return self.n_rows if self.scattered else self.inner
        return self.lines.levels[2][0] if self.numbered and self.lines else self.n_rows

    @cached_property
    def width(self) -> int:
        """Returns the columns that a tile of whole rows needs.

        The whole vectors of an unaligned row may begin up to vector - 1 elements ahead of it.
        """
        return self.n_cols + self.vector - 1 if self.unaligned else max(self.n_cols, 1 if self.across else self.vector)

    @property
    def size(self) -> str:
        """Returns rows x columns."""
        return f"{self.n_rows} x {self.n_cols}"

    @property
    def name(self) -> str:
        """Returns words for error messages: the output's type, the form and the direction."""
        picks, form = self.log_probs, f"{self.form} of scores" if self.scores else self.form
        if self.is_sample:
            return f"{self.x_dtype} sample of tokens"
        if picks:
            form = f"log-probabilities of tokens{' and entropy' if picks.entropy else ''}"
            return f"gradient of {form} in {self.y_dtype}" if picks.gradient else f"{self.y_dtype} {form}"
        return f"gradient of a {self.y_dtype} {form}" if self.backward else f"{self.y_dtype} {form}"

    def tiles(self, tile_rows: int) -> int:
        """Returns the number of tiles of `tile_rows` rows that cover all rows."""
        return self.n_rows // self.neighbours * -(-self.neighbours // tile_rows)
