"""token_log_probs: log-probabilities of chosen tokens, as trainers of policies and samplers read them."""

from torch import Tensor

from portable_softmax.api.functional import Numbers
from portable_softmax.operators.log_probs.call import call


def token_log_probs(
    logits: Tensor,
    ids: Tensor,
    *,
    dim: int = -1,
    scale: Numbers = None,
    temperature: Numbers = None,
    ignore_index: int = -100,
    entropy: bool = False,
    grad_inplace: bool = False,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Computes log_softmax(logits, dim, dtype=float32) at chosen ids, and nothing else of it: logits are read once.

    A launch computes it, of the same kernel as log_softmax, whose bits a launch of the same tiles has. Under `batch_invariant`
    bits do not depend on other rows. Differentiable once, in reverse mode: one more launch reads logits and writes their
    gradient; what is kept beside logits is three numbers of each row.

    Args:
        logits: any shape of at least one dimension, any strides; float16, bfloat16, float32 or float64. A slice such as
            `logits[:, :-1]` is not copied.
        ids: integers, of the shape of logits without `dim`, or of that and one more dimension, for K tokens of each row.
        dim: the axis along which probabilities sum to 1.
        scale, temperature: as softmax takes them: a number, or a tensor that broadcasts against logits with 1 along `dim`. The
            gradient of such a tensor is composed of torch's operators, with tensors of the shape of logits.
        ignore_index: the id that stands for none: its log-probability is 0, and has no gradient.
        entropy: True to return the entropy of each row too, ignored or not. Logits of -inf, as a mask leaves them, add 0 to it.
        grad_inplace: True to write the gradient over logits, which are lost then. Where torch.compile or torch.func trace the
            call, they say where a gradient is written.
        out: what log-probabilities are written to: float32, or float64 of float64, of the shape of ids. Not differentiable.

    Returns:
        Log-probabilities of the shape of ids, in float32, or float64 of float64. With `entropy` a tuple of them and the
        entropies, in the same type and in the shape of logits without `dim`. On an accelerator an id out of range gives nan,
        and no gradient.

    Raises:
        IndexError: there is no such dim; an id is out of range, on the CPU.
        ValueError: logits have no dimension, or ids another shape.
        TypeError: an argument is of another type, or a DTensor.
        RuntimeError: `out` has another type, shape or device, or a gradient is needed; a tensor does not broadcast, or is on
            another device; a second derivative is asked for.
        DtypeError: the device does not compute that type, or ids are no integers.
        LayoutError: a tensor is nested, sparse or of another layout than strided.
        DeviceError, PlanError, CompileError: the kernel cannot run on the device of logits.
    """
    return call(logits, ids, dim, scale, temperature, ignore_index, entropy, grad_inplace, out)
