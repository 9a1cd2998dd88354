"""Log-probabilities of chosen elements, and other numbers per row, in place of a softmax."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LogProbs:
    """Numbers per row that a launch computes, or the gradient of which it computes.

    Args:
        entropy: computed per row too; for a gradient, it has one itself.
        lse: the logsumexp per row is requested; for a gradient, it has one itself.
        gradient: of x, from the gradients of these numbers.
        many: a gradient: rows have another number of chosen elements than one.
    """

    entropy: bool = False
    lse: bool = False
    gradient: bool = False
    many: bool = False

    @property
    def n_statistics(self) -> int:
        """Numbers per row that a launch stores for its gradient: logsumexp, its rounding error, and entropy last."""
        return 2 + self.entropy
