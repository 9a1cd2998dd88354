"""token_log_probs: log-probabilities of chosen tokens, as trainers of policies and samplers read them."""

import torch
from torch import Tensor

from portable_softmax.operators.arguments import Factor, check_out, check_tensor
from portable_softmax.operators.log_probs import NAME, compute


def token_log_probs(
    logits: Tensor, ids: Tensor, *, dim: int = -1, scale: Factor = None, temperature: Factor = None,
    softcap: float | None = None, ignore_index: int = -100, entropy: bool = False, return_lse: bool = False,
    grad_inplace: bool = False, out: Tensor | None = None,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    """Computes log_softmax(scores, dim, dtype=float32) at chosen ids, and nothing else of it: logits are read once.

    The scores are softcap * tanh(scale * logits / softcap) / temperature. Differentiable in every mode: the first gradient is
    one more launch, which reads logits and writes their gradient; beside logits two numbers of each row are saved. A row with
    only ignored ids has a gradient of 0, whatever its logits are, unless entropies or the logsumexp are requested; neither
    its gradient nor a call of many rows reads it.

    Args:
        logits: any shape of at least one dimension, any strides; a slice such as `logits[:, :-1]` is not copied.
        ids: integers, of the shape of logits without `dim`, or of that and one more dimension, for K tokens of each row.
        dim: the axis along which probabilities sum to 1.
        scale, temperature, softcap: see softmax. The gradient of a tensor is composed of torch's operators.
        ignore_index: the id that stands for none: its log-probability is 0, and has no gradient.
        entropy: True to return the entropy of each row too, ignored or not. Logits of -inf, as a mask leaves them, add 0 to it.
        return_lse: True to return the logsumexp of each row's scores too; that of a greedy row has no gradient.
        grad_inplace: True to write the gradient over logits, which are lost then, if the call is launched: not by torch's
            operators on the CPU, nor under torch.compile or torch.func.
        out: what log-probabilities are written to: of their type, shape and device. Not differentiable.

    Returns:
        Log-probabilities of the shape of ids, in float32, or float64 of float64; those of ids out of range are nan. With
        `return_lse` or `entropy` a tuple of them, then logsumexp, then entropies, of the shape of logits without `dim`.

    Raises:
        IndexError: there is no such dim.
        ValueError: logits have no dimension, or ids another shape; `softcap` is not positive.
        TypeError: an argument is of another type.
        RuntimeError: `out` has another type, shape or device, or a gradient is needed; a tensor does not broadcast, or is on
            another device.
        DtypeError: logits are no floating-point numbers, or ids no integers.
        LayoutError: a tensor is nested, sparse or of another layout than strided.
        DeviceError, PlanError, CompileError: the kernel cannot run on the device of logits.
    """
    inputs = logits, ids, scale, temperature, softcap
    if out is not None:
        check_tensor(NAME, "logits", logits)
        check_tensor(NAME, "ids", ids)
        check_out(NAME, out, logits, torch.promote_types(logits.dtype, torch.float32), inputs)
        if out.shape != ids.shape:
            raise RuntimeError(f"{NAME}(): out of shape {tuple(out.shape)} for ids of shape {tuple(ids.shape)}")
    picked, lse, entropies = compute(inputs, (dim, ignore_index, entropy, return_lse), grad_inplace)
    picked = picked if out is None else out.copy_(picked)
    if lse is None and entropies is None:
        return picked
    return (picked, *(t for t in (lse, entropies) if t is not None))
