"""Log-probabilities of chosen elements, and more numbers of each row, which are wanted in place of a softmax."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LogProbs:
    """Numbers of rows that a launch ends with, or whose gradient it computes.

    Args:
        entropy: of each row too; for a gradient, its own is given.
        lse: the logsumexp of each row is requested; for a gradient, its own is given.
        gradient: of x, from the gradients of these numbers.
        many: a gradient: rows have another number of chosen elements than one.
    """

    entropy: bool = False
    lse: bool = False
    gradient: bool = False
    many: bool = False

    @property
    def n_statistics(self) -> int:
        """Numbers of each row that a launch leaves for its gradient: logsumexp, its rounding error, and entropy last."""
        return 2 + self.entropy
