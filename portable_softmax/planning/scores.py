"""Scores: what is applied to x ahead of the softmax, as in attention and sampling."""

from dataclasses import dataclass
from typing import Literal

Factor = Literal["number", "rows"]
Causal = Literal["upper_left", "lower_right"]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores, cap * tanh(scale * x / cap) / temperature, and what masks some; all absent by default.

    Args:
        scale: a positive number, or one number per row.
        temperature: likewise; rows of 0 are greedy: all weight is on their largest elements, whatever the cap is.
        cap: compiled into the kernel. The kernel of a gradient then reads x too.
        mask: "bool", where True takes part, or the type of a mask that is added.
        causal: no column above the row's number in its matrix takes part; lower_right: the last row has all columns.
        sink: one more logit per row, in the denominator alone.
        zero_rows: rows that are wholly masked give 0 instead of nan.
    """

    scale: Factor | None = None
    temperature: Factor | None = None
    cap: float | None = None
    mask: str | None = None
    causal: Causal | None = None
    sink: bool = False
    zero_rows: bool = False

    @property
    def hides(self) -> bool:
        """True if a score may be -inf where x is not: then elements of weight 0 have a gradient of 0, whatever dy is."""
        return self.mask is not None or self.causal is not None or self.sink or self.zero_rows

    @property
    def voids(self) -> bool:
        """True if a whole row may be masked, and be nan: its gradient is 0 then, as that of `masked_fill` is."""
        return self.mask == "bool" or self.causal is not None

    def __bool__(self) -> bool:
        """True if any is present."""
        return self != NONE


NONE = Scores()
