"""token_log_probs and sample_token: log-probabilities of chosen tokens and samples, for policy gradients and samplers."""

from typing import Any

from torch import Tensor

from portable_softmax.operators import checks
from portable_softmax.operators.arguments import Factor, check_inplace
from portable_softmax.operators.tokens import SAMPLE, TOKENS, compute, mask_of


def token_log_probs(
    logits: Tensor, ids: Tensor, *, dim: int = -1, scale: Factor = None, temperature: Factor = None,
    softcap: float | None = None, mask: Tensor | None = None, kept: Tensor | None = None, masked_rows: str = "nan",
    ignore_index: int = -100, entropy: bool = False, return_lse: bool = False, grad_inplace: bool = False,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    """Computes log_softmax(scores, dim, dtype=float32).gather(dim, ids) in one read of the logits, without the log_softmax.

    Scores, gradients and errors are those of `softmax`; the logits, the mask and two numbers per row are saved. A row with only
    ignored ids has a gradient of 0, even if its logits are nan, unless entropies or the logsumexp are requested; such rows are
    not read by the gradient, nor by a call of many rows.

    Args:
        logits: a tensor of at least one dimension, with any strides; a slice such as `logits[:, :-1]` is not copied.
        ids: integers, of the shape of logits without `dim`, or with one more dimension, for K tokens per row.
        dim, scale, temperature, softcap: see `softmax`.
        mask: as in `softmax`. Probabilities, entropies and the logsumexp are those of the kept tokens. Others have
            log-probability -inf and, unless the mask is added, gradient 0, also where they are in `ids`.
        kept: ids of the kept tokens in place of a mask: int64 or int32 of the shape of logits without `dim`, and K per row,
            -1 where a row keeps fewer; an id may occur twice. Other ids out of range keep no token; eager calls on a CPU, where
            the host reads them, raise an IndexError.
        masked_rows: "nan" for rows without a kept token; "zero" for a log-probability of -inf, entropy and gradient of 0.
        ignore_index: the id of ignored positions, which have a log-probability and gradient of 0.
        entropy: True to also return the entropy of each row, including ignored ones. Masked logits (-inf) add 0 to it.
        return_lse: True to also return the logsumexp of each row's scores, which is inf if one of them is. That of a greedy row
            has no gradient.
        grad_inplace: True to write the gradient over the logits, which are lost, if a kernel computes it: not on the CPU, nor
            under torch.compile or torch.func, nor for a batch of gradients, nor with those of mask, scale or temperature.

    Returns:
        Log-probabilities of the shape of ids, in float32 (float64 for float64 logits), nan for ids out of range. With
        `return_lse` or `entropy`, a tuple (log-probabilities, logsumexp, entropies); the latter have the shape of logits
        without `dim`.

    Raises:
        ValueError: logits have no dimension, ids or `kept` have another shape, or there are `mask` and `kept`.
        RuntimeError: with `grad_inplace`, logits are a leaf, a part of split() or unbind(), or share memory with each other.
        DtypeError: logits are not floating-point numbers of 16 bits or more, ids are not integers, or a mask has another dtype.
        others: see `softmax`.
    """
    if not isinstance(grad_inplace, bool):
        raise checks.mistyped(TOKENS.name, "grad_inplace", "bool", grad_inplace)
    checks.check_masked_rows(TOKENS.name, masked_rows)
    if kept is not None:
        mask = mask_of(TOKENS.name, logits, kept, mask, dim)
    args = TOKENS.Args(logits, ids, mask, scale, temperature)
    if grad_inplace:
        check_inplace(TOKENS.name, logits)
    options = softcap, dim, ignore_index, entropy, return_lse, masked_rows == "zero"
    picked, *more = (t for t in compute(args, options, grad_inplace) if t is not None)
    return (picked, *more) if more else picked


def sample_token(
    logits: Tensor, *, temperature: Factor = None, min_p: Factor = None, softcap: float | None = None,
    mask: Tensor | None = None, seed: int | Tensor, position: int | Tensor = 0, generator: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Draws a token per row from softmax(scores, dim=-1), in one read of the logits, and returns its log-probability.

    The scores are those of `softmax`. A token depends on the scores of its row, the seed and the position alone: not on other
    rows, the layout or dtype of the logits, the launch or, for all but one row in a million, the device. It is the maximum of
    scores with Gumbel noise from Philox4x32-7: noise for the logsumexp of 8 adjacent tokens, then for each of these. A mask of
    other tokens than the one drawn may change it.

    Args:
        logits: a tensor of at least one dimension, the last of which is the vocabulary, with any strides.
        temperature, softcap, mask: see `softmax`. Temperature 0 draws the lowest id of the largest scores.
        min_p: tokens with a probability below min_p times the largest are not drawn: a number of at least 0 and below 1, or a
            tensor as `temperature`. A row is read once more if such a token is drawn first.
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
        others: see `token_log_probs`.
    """
    if generator is not None:
        actual = f"{type(generator).__name__}; pass seed= and position="
        raise TypeError(checks.wrong(SAMPLE.name, "generator", "be None", actual))
    args = checks.normalized(SAMPLE.name, SAMPLE.Args(logits, mask, temperature, min_p, seed, position))
    results: tuple[Tensor, Tensor] = SAMPLE.call(args, (softcap,))
    return results
