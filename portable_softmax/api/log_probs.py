"""token_log_probs: log-probabilities of chosen tokens, for policy gradients and samplers."""

import torch
from torch import Tensor

from portable_softmax.operators.arguments import Factor, TokenArgs
from portable_softmax.operators.checks import check_masked_rows, check_tensor, mistyped
from portable_softmax.operators.kept import mask_of
from portable_softmax.operators.log_probs import NAME, compute
from portable_softmax.operators.memory import check_inplace, check_out


def token_log_probs(
    logits: Tensor, ids: Tensor, *, dim: int = -1, scale: Factor = None, temperature: Factor = None,
    softcap: float | None = None, mask: Tensor | None = None, kept: Tensor | None = None, masked_rows: str = "nan",
    ignore_index: int = -100, entropy: bool = False, return_lse: bool = False, grad_inplace: bool = False,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    """Computes log_softmax(scores, dim, dtype=float32).gather(dim, ids) in one read of the logits, without the log_softmax.

    The scores are softcap * tanh(scale * logits / softcap) / temperature, then the mask. Differentiable in every mode: the
    gradient is a second launch, which reads the logits and writes their gradient; the logits, the mask and two numbers per row
    are saved. A row with only ignored ids has a gradient of 0, even if its logits are nan, unless entropies or the logsumexp
    are requested; such rows are not read by the gradient, nor by a call of many rows.

    Args:
        logits: a tensor of at least one dimension, with any strides; a slice such as `logits[:, :-1]` is not copied.
        ids: integers, of the shape of logits without `dim`, or with one more dimension, for K tokens per row.
        dim: the dimension along which probabilities sum to 1.
        scale, temperature, softcap: see `softmax`. Gradients of tensors are computed by PyTorch's operators.
        mask: a tensor that broadcasts against logits: boolean, True to keep a token; floating-point, which is added to the
            scores; or int32 with ceil(V / 32) words along `dim` for V tokens, of which bit j of word k keeps token 32 k + j, as
            in xgrammar, vLLM and SGLang. Probabilities, entropies and the logsumexp are those of the kept tokens. Others have
            log-probability -inf and, unless the mask is added, gradient 0, also where they are in `ids`.
        kept: ids of the kept tokens in place of a mask: int64 or int32 of the shape of logits without `dim`, and K per row,
            -1 where a row keeps fewer; an id may occur twice. Other ids out of range raise an error on a CPU; on other devices
            the host does not read them, and they keep no token.
        masked_rows: "nan" for rows without a kept token; "zero" for a log-probability of -inf, entropy and gradient of 0.
        ignore_index: the id of ignored positions, whose log-probability and gradient are 0.
        entropy: True to also return the entropy of each row, including ignored ones. Masked logits (-inf) add 0 to it.
        return_lse: True to also return the logsumexp of each row's scores, which is inf if one of them is. That of a greedy row
            has no gradient.
        grad_inplace: True to write the gradient over the logits, which are lost, if a kernel computes the call: not on the
            CPU, nor under torch.compile or torch.func, nor for a batch of gradients.
        out: the tensor to write log-probabilities to, of their dtype, shape and device. Not differentiable.

    Returns:
        Log-probabilities of the shape of ids, in float32 (float64 for float64 logits), nan for ids out of range. With
        `return_lse` or `entropy`, a tuple (log-probabilities, logsumexp, entropies); the latter have the shape of logits
        without `dim`.

    Raises:
        IndexError: `dim` is out of range, or an id of `kept`, on a CPU.
        ValueError: logits have no dimension, ids or `kept` have another shape, there is a `mask` too, `softcap` is not
            positive, or `masked_rows` is none of the above.
        TypeError: an argument has another type.
        RuntimeError: `out` has another dtype, shape or device, or a gradient is required; a tensor does not broadcast, or is
            on another device; with `grad_inplace`, logits are a leaf, a part of split() or unbind(), or share memory with
            each other or an operand.
        DtypeError: logits are not floating-point numbers of 16 bits or more, ids are not integers, or a mask has another dtype.
        LayoutError: a tensor is nested, sparse or otherwise not strided.
        DeviceError, PlanError, CompileError: the kernel cannot run on the device of logits.
    """
    if not isinstance(grad_inplace, bool):
        raise mistyped(NAME, "grad_inplace", "bool", grad_inplace)
    check_masked_rows(NAME, masked_rows)
    if kept is not None:
        mask = mask_of(NAME, logits, kept, mask, dim)
    args = TokenArgs(logits, ids, mask, scale, temperature)
    if grad_inplace:
        check_inplace(NAME, args)
    if out is not None:
        check_tensor(NAME, "logits", logits)
        check_tensor(NAME, "ids", ids)
        check_out(NAME, out, logits, torch.promote_types(logits.dtype, torch.float32), args)
        if out.shape != ids.shape:
            raise RuntimeError(f"{NAME}(): out of shape {tuple(out.shape)} for ids of shape {tuple(ids.shape)}")
    options = softcap, dim, ignore_index, entropy, return_lse, masked_rows == "zero"
    picked, *more = (t for t in compute(args, options, grad_inplace) if t is not None)
    picked = picked if out is None else out.copy_(picked)
    return (picked, *more) if more else picked
