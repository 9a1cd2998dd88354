"""Scores: what becomes of x ahead of the softmax, as attention and sampling want it."""

from dataclasses import dataclass
from typing import Literal

Factor = Literal["number", "rows"]
Causal = Literal["upper_left", "lower_right"]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Steps from x to the scores whose softmax is taken, in their order; all absent by default.

    Args:
        cap, cap_scale: cap * tanh(cap_scale * x / cap); each is a kernel of its own.
        factor: that times a number, which is positive, or times one number per row.
        divides: it is divided by the factor instead; rows of 0 are greedy: all weight is on their largest elements. Kernels
            multiply by the inverse.
        mask: "bool", where True takes part, or the type of a mask that is added.
        causal: no column above the row's number in its matrix takes part; lower_right: the last row has all columns.
        sink: one more logit per row, in the denominator alone.
        zero_rows: rows that are wholly masked give 0 instead of nan.
    """

    factor: Factor | None = None
    divides: bool = False
    cap: float | None = None
    cap_scale: float = 1.0
    mask: str | None = None
    causal: Causal | None = None
    sink: bool = False
    zero_rows: bool = False

    @property
    def scale(self) -> Factor | None:
        """Returns what x is multiplied by."""
        return None if self.divides else self.factor

    @property
    def temperature(self) -> Factor | None:
        """Returns what scores are divided by."""
        return self.factor if self.divides else None

    @property
    def hides(self) -> bool:
        """Tells whether a score may be -inf where x is not: then elements of weight 0 have a gradient of 0, whatever dy is."""
        return self.mask is not None or self.causal is not None or self.sink or self.zero_rows

    @property
    def voids(self) -> bool:
        """Tells whether a row may be hidden whole, and be nan: its gradient is 0 then, as that of `masked_fill` is."""
        return self.mask == "bool" or self.causal is not None

    def __bool__(self) -> bool:
        """Tells whether anything is done."""
        return self != NONE


NONE = Scores()
