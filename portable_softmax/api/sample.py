"""sample_token: tokens drawn from logits, with their log-probabilities."""

from typing import Any

from torch import Tensor

from portable_softmax.operators.arguments import Factor, SampleArgs
from portable_softmax.operators.checks import normalized, wrong
from portable_softmax.operators.sample import NAME, SAMPLE


def sample_token(
    logits: Tensor, *, temperature: Factor = None, min_p: Factor = None, softcap: float | None = None,
    mask: Tensor | None = None, seed: int | Tensor, position: int | Tensor = 0, generator: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Draws a token per row from softmax(scores, dim=-1), in one read of the logits, and returns its log-probability.

    The scores are softcap * tanh(logits / softcap) / temperature, then the mask. A token depends on the scores of its row, the
    seed and the position alone: not on other rows, their number and order, the layout or dtype of the logits, the launch or,
    for all but one row in a million, the device. It is the maximum of scores with Gumbel noise from Philox4x32-7: noise for
    the logsumexp of 8 adjacent tokens, then for each of these. A mask of other tokens than the one drawn may change it.

    Args:
        logits: a tensor of at least one dimension, the last of which is the vocabulary, with any strides.
        temperature: a number, or a tensor of shape (..., 1) that broadcasts against logits. 0 is greedy: the lowest id of the
            largest scores. Tensors are never read by the host.
        min_p: tokens with a probability below min_p times the largest are not drawn: a number of at least 0 and below 1, or a
            tensor as `temperature`. A row whose first draw is such a token is read once more.
        softcap, mask: see `token_log_probs`.
        seed: an integer of 64 bits, also negative, or a tensor of int64 or int32 that broadcasts against ids. Rows of the same
            seed and position have the same noise.
        position: likewise: the number of the token in its sequence, or anything else that differs between draws of a seed. In
            a CUDA graph, a tensor, as a number is that of the capture.
        generator: not supported, as its state would depend on other calls.

    Returns:
        (ids, log_probs) of the shape of logits without the last dimension: int64, and float32 (float64 for float64 logits).
        Log-probabilities are those of the masked, tempered scores before `min_p`, and under `batch_invariant` equal in bits to
        `token_log_probs` of the same scores. A row with nan, +inf or no kept token has id -1 and log-probability nan. Neither
        has a gradient: compute that of a log-probability with `token_log_probs`.

    Raises:
        TypeError: an argument has another type, or there is a `generator`.
        ValueError: `min_p`, `softcap`, an integer or the vocabulary is out of range.
        RuntimeError: a tensor does not broadcast, or is on another device.
        DtypeError, LayoutError, DeviceError, PlanError, CompileError: as for `token_log_probs`.
    """
    if generator is not None:
        raise TypeError(wrong(NAME, "generator", "be None", f"{type(generator).__name__}; pass seed= and position="))
    args = normalized(NAME, SampleArgs(logits, mask, temperature, min_p, seed, position))
    results: tuple[Tensor, Tensor] = SAMPLE(args, (softcap,), (type(softcap),))
    return results
