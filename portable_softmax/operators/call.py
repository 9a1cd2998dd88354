"""The arguments of the operators, by name, and what a launch computes: the softmax of x, or of scores that are made of it."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch

from portable_softmax.operators.arguments import wrap_dim
from portable_softmax.planning.log_probs import LogProbs
from portable_softmax.planning.scores import NONE, Causal, Factor, Scores
from portable_softmax.runtime.launch import name_of

Operands = tuple[torch.Tensor, ...]

_ARGUMENTS = (
    "Tensor input, int dim=-1, ScalarType? dtype=None, Tensor? mask=None, Tensor? factors=None, Tensor? sinks=None, "
    "float? factor=None, bool divides=False, float? softcap=None, str? causal=None, bool zero_rows=False"
)
SCHEMA = f"({_ARGUMENTS}) -> Tensor"
OUT_SCHEMA = f"({_ARGUMENTS}, *, Tensor(a!) out) -> ()"
BACKWARD_SCHEMA = (
    "(Tensor dy, Tensor y, int dim, ScalarType x_dtype, Tensor? factors=None, float? factor=None, bool divides=False, "
    "str? mask=None, str? causal=None, bool sink=False, bool zero_rows=False) -> Tensor"
)


class Asked(NamedTuple):
    """A softmax that is asked for. The dispatcher leaves out arguments that are as by default.

    Args:
        x: any shape, any strides; of at least one dimension if any of the arguments from `mask` on is given.
        dim: the axis along which the result sums to 1, counted from either end.
        dtype: type of the result; None for that of x.
        mask: boolean or floating, of x's rank, with sizes that are those of x or 1, and any strides.
        factors: a number for each row: contiguous, of x's shape without dim, of the type that is computed in.
        sinks: one for each row, as factors.
        factor: one for all rows instead of factors.
        divides: x is divided by it, else multiplied.
        softcap: cap of cap * tanh(score / cap).
        causal: upper_left, lower_right or None.
        zero_rows: rows that are wholly masked give 0 instead of nan.
    """

    x: torch.Tensor
    dim: int = -1
    dtype: torch.dtype | None = None
    mask: torch.Tensor | None = None
    factors: torch.Tensor | None = None
    sinks: torch.Tensor | None = None
    factor: float | None = None
    divides: bool = False
    softcap: float | None = None
    causal: Causal | None = None
    zero_rows: bool = False

    @property
    def by(self) -> float | torch.Tensor | None:
        """Returns what x is multiplied or divided by."""
        return self.factor if self.factors is None else self.factors

    @property
    def y_dtype(self) -> torch.dtype:
        """Returns the type of the result."""
        return self.dtype or self.x.dtype

    @property
    def of_gradient(self) -> tuple[Any, ...]:
        """Returns the arguments of the gradient's operator from `factor` on."""
        mask = None if self.mask is None else name_of(self.mask.dtype)
        return self.factor, self.divides, mask, self.causal, self.sinks is not None, self.zero_rows

    @property
    def tensors(self) -> Operands:
        """Returns the tensors that are given."""
        return tuple(each for each in (self.x, self.mask, self.factors, self.sinks) if each is not None)

    @property
    def is_plain(self) -> bool:
        """Tells whether it is the softmax of x itself."""
        return (
            self.mask is None and self.factors is None and self.sinks is None and self.factor is None
            and self.softcap is None and self.causal is None and not self.zero_rows
        )  # fmt: skip

    @property
    def scores(self) -> Scores:
        """Returns what becomes of x."""
        return Scores(
            factor=factor_kind(self.factors, self.factor), divides=self.divides, cap=self.softcap,
            mask=None if self.mask is None else name_of(self.mask.dtype), causal=self.causal,
            sink=self.sinks is not None, zero_rows=self.zero_rows,
        )  # fmt: skip


class AskedGradient(NamedTuple):
    """A gradient of x that is asked for, without the derivative of softcap.

    Args:
        dy, y: the result and its gradient, of one shape and type, any strides.
        dim, factors, factor, divides, causal, zero_rows: as in Asked.
        x_dtype: type of the gradient.
        mask: "bool", or the name of the type that was added.
        sink: True if there were sinks.
    """

    dy: torch.Tensor
    y: torch.Tensor
    dim: int
    x_dtype: torch.dtype
    factors: torch.Tensor | None = None
    factor: float | None = None
    divides: bool = False
    mask: str | None = None
    causal: Causal | None = None
    sink: bool = False
    zero_rows: bool = False

    @property
    def by(self) -> float | torch.Tensor | None:
        """Returns what x was multiplied or divided by."""
        return self.factor if self.factors is None else self.factors

    @property
    def tensors(self) -> Operands:
        """Returns the tensors that are given."""
        return (self.dy, self.y) if self.factors is None else (self.dy, self.y, self.factors)

    @property
    def scores(self) -> Scores:
        """Returns what became of x, but for a cap."""
        return Scores(
            factor=factor_kind(self.factors, self.factor), divides=self.divides, mask=self.mask, causal=self.causal,
            sink=self.sink, zero_rows=self.zero_rows,
        )  # fmt: skip


class Call(NamedTuple):
    """Everything that a launch computes, but its tensors.

    Args:
        form: softmax or log_softmax.
        dim: the axis of the softmax, counted from 0.
        dtype: type of the result.
        batch_invariant: True if a row's bits may not depend on the other rows.
        scores: what becomes of x first. A factor is one number for each row, or a positive one that multiplies.
        factor: that one.
        backward: True for the gradient.
        log_probs: what is computed in place of a result for each element, or its gradient.
        n_ids, ignored: chosen elements of each row, and the id that stands for none.
    """

    form: str
    dim: int
    dtype: torch.dtype
    batch_invariant: bool
    scores: Scores = NONE
    factor: float | None = None
    backward: bool = False
    log_probs: LogProbs | None = None
    n_ids: int = 1
    ignored: int = 0

    @property
    def stores(self) -> bool:
        """Tells whether a result for each element is written, not numbers of each row alone."""
        return self.log_probs is None or self.log_probs.gradient


def call_of(form: str, asked: Asked, batch_invariant: bool) -> tuple[Call, Operands]:
    """Returns what is asked for as a launch takes it: (x, mask, factors, sinks), those there are; the mask of x's shape."""
    dim, dtype = wrap_dim(asked.dim, asked.x.dim()), asked.y_dtype
    if asked.is_plain:
        return Call(form, dim, dtype, batch_invariant), (asked.x,)
    scores, number, factors = multiplied(asked.scores, asked.by, asked.x, dim, dtype)
    mask = None if asked.mask is None else asked.mask.expand(asked.x.shape)  # by strides of 0
    operands = tuple(each for each in (asked.x, mask, factors, asked.sinks) if each is not None)
    return Call(form, dim, dtype, batch_invariant, scores, number), operands


def call_of_gradient(form: str, asked: AskedGradient, batch_invariant: bool) -> tuple[Call, Operands]:
    """Returns what is asked for as a launch takes it: (dy, y, factors), with factors if there are some."""
    dim, y = wrap_dim(asked.dim, asked.y.dim()), asked.y
    scores, number, factors = multiplied(asked.scores, asked.by, y, dim, y.dtype)
    call = Call(form, dim, asked.x_dtype, batch_invariant, scores, number, backward=True)
    return call, (asked.dy, y) if factors is None else (asked.dy, y, factors)


def factor_kind(factors: torch.Tensor | None, factor: float | None) -> Factor | None:
    """Returns the word for a factor: one number for each row, one for all, or none."""
    return "rows" if factors is not None else None if factor is None else "number"


def multiplied(
    scores: Scores, by: float | torch.Tensor | None, x: torch.Tensor, dim: int, dtype: torch.dtype
) -> tuple[Scores, float | None, torch.Tensor | None]:
    """Returns (scores, factor, factors) as kernels take them: a positive number that multiplies, or one number for each row.

    Numbers that have no inverse, are not positive, or too small to be normal, become one for each row.
    """
    if by is None or isinstance(by, torch.Tensor):
        return scores, None, by
    compute = torch.promote_types(dtype, torch.float32)
    number, limits = 1 / by if scores.divides and by else by, torch.finfo(compute)
    if by and limits.tiny <= number <= limits.max:
        return replace(scores, divides=False), number, None
    rows = [*x.shape[:dim], *x.shape[dim + 1 :]]
    return replace(scores, factor="rows"), None, torch.full(rows, by, dtype=compute, device=x.device)
