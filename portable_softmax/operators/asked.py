"""The arguments of the operators portable_softmax::scored and ::scored_backward, by name."""

from typing import NamedTuple

import torch

from portable_softmax.planning.scores import Causal, Factor, Scores

SCHEMA = (
    "(Tensor x, int dim, ScalarType dtype, str form, Tensor? mask, Tensor? factors, float? factor, bool divides, "
    "float? softcap, str? causal, Tensor? sinks, bool zero_rows) -> Tensor"
)
BACKWARD_SCHEMA = (
    "(Tensor dy, Tensor y, int dim, ScalarType x_dtype, str form, str? mask, Tensor? factors, float? factor, bool divides, "
    "str? causal, bool sink, bool zero_rows) -> Tensor"
)


class Asked(NamedTuple):
    """A softmax of scores that is asked for.

    Args:
        x: any shape of at least one dimension, any strides; of one of the kernel's types.
        dim: the axis along which the result sums to 1, counted from either end.
        dtype: type of the result.
        form: softmax, log_softmax or softmin.
        mask: boolean or floating, of x's rank, with sizes that are those of x or 1, and any strides.
        factors: a number for each row: contiguous, of x's shape without dim, of the type that is computed in.
        factor: one for all rows instead.
        divides: x is divided by it, else multiplied.
        softcap: cap of cap * tanh(score / cap).
        causal: upper_left, lower_right or None.
        sinks: one for each row, as factors.
        zero_rows: rows that are wholly masked give 0 instead of nan.
    """

    x: torch.Tensor
    dim: int
    dtype: torch.dtype
    form: str
    mask: torch.Tensor | None
    factors: torch.Tensor | None
    factor: float | None
    divides: bool
    softcap: float | None
    causal: Causal | None
    sinks: torch.Tensor | None
    zero_rows: bool

    @property
    def by(self) -> float | torch.Tensor | None:
        """Returns what x is multiplied or divided by."""
        return self.factor if self.factors is None else self.factors

    @property
    def scores(self) -> Scores:
        """Returns what becomes of x."""
        return Scores(
            factor=_factor_kind(self.factors, self.factor), divides=self.divides, cap=self.softcap,
            mask=None if self.mask is None else str(self.mask.dtype).removeprefix("torch."), causal=self.causal,
            sink=self.sinks is not None, zero_rows=self.zero_rows,
        )  # fmt: skip


class AskedGradient(NamedTuple):
    """A gradient of a softmax of scores that is asked for, without the derivative of softcap.

    Args:
        dy, y: the result and its gradient, of one shape and type, any strides.
        dim, form, factors, factor, divides, causal, zero_rows: as in Asked.
        x_dtype: type of the gradient.
        mask: "bool", or the name of the type that was added.
        sink: True if there were sinks.
    """

    dy: torch.Tensor
    y: torch.Tensor
    dim: int
    x_dtype: torch.dtype
    form: str
    mask: str | None
    factors: torch.Tensor | None
    factor: float | None
    divides: bool
    causal: Causal | None
    sink: bool
    zero_rows: bool

    @property
    def by(self) -> float | torch.Tensor | None:
        """Returns what x was multiplied or divided by."""
        return self.factor if self.factors is None else self.factors

    @property
    def scores(self) -> Scores:
        """Returns what became of x, but for a cap."""
        return Scores(
            factor=_factor_kind(self.factors, self.factor), divides=self.divides, mask=self.mask, causal=self.causal,
            sink=self.sink, zero_rows=self.zero_rows,
        )  # fmt: skip


def _factor_kind(factors: torch.Tensor | None, factor: float | None) -> Factor | None:
    return "rows" if factors is not None else None if factor is None else "number"
