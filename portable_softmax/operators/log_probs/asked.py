"""The arguments of the operators portable_softmax::token_log_probs and ::token_log_probs_backward, by name."""

from typing import NamedTuple

import torch

from portable_softmax.operators.arguments import wrap_dim
from portable_softmax.operators.call import Call, Operands, factor_kind, multiplied
from portable_softmax.planning.log_probs import LogProbs
from portable_softmax.planning.scores import Scores

SCHEMA = (
    "(Tensor input, Tensor ids, int dim=-1, Tensor? factors=None, float? factor=None, bool divides=False, "
    "int ignore_index=-100, bool entropy=False) -> (Tensor, Tensor)"
)
BACKWARD_SCHEMA = (
    "(Tensor input, Tensor ids, Tensor statistics, Tensor dpicked, Tensor? dentropy, int dim, Tensor? factors=None, "
    "float? factor=None, bool divides=False, int ignore_index=-100) -> Tensor"
)


class Asked(NamedTuple):
    """Log-probabilities that are asked for. The dispatcher leaves out arguments that are as by default.

    Args:
        x: logits, of at least one dimension, any strides.
        ids: int64, contiguous: of x's shape without dim, or with one more dimension behind, of several for each row.
        dim: the axis along which probabilities sum to 1, counted from either end.
        factors: a number for each row: contiguous, of x's shape without dim, of the type that is computed in.
        factor: one for all rows instead of factors.
        divides: x is divided by it, else multiplied.
        ignore_index: the id that stands for none.
        entropy: of each row too.
    """

    x: torch.Tensor
    ids: torch.Tensor
    dim: int = -1
    factors: torch.Tensor | None = None
    factor: float | None = None
    divides: bool = False
    ignore_index: int = -100
    entropy: bool = False

    @property
    def by(self) -> float | torch.Tensor | None:
        """Returns what x is multiplied or divided by."""
        return self.factor if self.factors is None else self.factors

    @property
    def compute(self) -> torch.dtype:
        """Returns the type of all results: float32, or float64 of float64."""
        return torch.promote_types(self.x.dtype, torch.float32)

    @property
    def own_dim(self) -> int:
        """Returns the axis, counted from 0."""
        return wrap_dim(self.dim, self.x.dim())

    @property
    def rows(self) -> list[int]:
        """Returns the shape of x without dim."""
        return [*self.x.shape[: self.own_dim], *self.x.shape[self.own_dim + 1 :]]

    @property
    def statistics_shape(self) -> list[int]:
        """Returns the shape of the numbers of rows: maximum, sum of exponentials, and the entropy if it is asked for."""
        return [3 if self.entropy else 2, *self.rows]

    @property
    def n_ids(self) -> int:
        """Returns how many ids a row has."""
        return self.ids.shape[-1] if self.ids.dim() == self.x.dim() else 1

    @property
    def numbers(self) -> Operands:
        """Returns the factors, if there are any."""
        return () if self.factors is None else (self.factors,)


class AskedGradient(NamedTuple):
    """The gradient of x that is asked for.

    Args:
        x, ids, dim, factors, factor, divides, ignore_index: as in Asked.
        statistics: as the forward gave them; with the entropy if dentropy is given.
        dpicked, dentropy: contiguous gradients of log-probabilities, of the shape of ids, and of entropies, or None.
    """

    x: torch.Tensor
    ids: torch.Tensor
    statistics: torch.Tensor
    dpicked: torch.Tensor
    dentropy: torch.Tensor | None
    dim: int
    factors: torch.Tensor | None = None
    factor: float | None = None
    divides: bool = False
    ignore_index: int = -100

    @property
    def asked(self) -> Asked:
        """Returns what the gradient is of."""
        entropy = self.dentropy is not None
        return Asked(self.x, self.ids, self.dim, self.factors, self.factor, self.divides, self.ignore_index, entropy)

    @property
    def numbers(self) -> Operands:
        """Returns the factors, if there are any."""
        return () if self.factors is None else (self.factors,)

    @property
    def of_rows(self) -> Operands:
        """Returns the numbers of rows as a launch takes them."""
        of_rows = self.statistics, self.ids, self.dpicked
        return of_rows if self.dentropy is None else (*of_rows, self.dentropy)


def call_of(asked: Asked, batch_invariant: bool) -> tuple[Call, Operands]:
    """Returns what is asked for as a launch takes it, and (x, factors), with factors if there are some."""
    wanted = LogProbs(entropy=asked.entropy)
    return _call(asked, asked.compute, batch_invariant, wanted)


def call_of_gradient(given: AskedGradient) -> tuple[Call, Operands]:
    """Returns the same for a gradient, which has one result for each element, whatever other rows there are."""
    asked = given.asked
    wanted = LogProbs(entropy=asked.entropy, gradient=True, many=asked.n_ids != 1)
    return _call(asked, asked.x.dtype, False, wanted)


def _call(asked: Asked, dtype: torch.dtype, batch_invariant: bool, wanted: LogProbs) -> tuple[Call, Operands]:
    scores = Scores(factor=factor_kind(asked.factors, asked.factor), divides=asked.divides)
    scores, number, factors = multiplied(scores, asked.by, asked.x, asked.own_dim, dtype)
    call = Call(
        "log_softmax", asked.own_dim, dtype, batch_invariant, scores, number,
        log_probs=wanted, n_ids=asked.n_ids, ignored=asked.ignore_index,
    )  # fmt: skip
    return call, (asked.x,) if factors is None else (asked.x, factors)
