"""token_log_probs: log-probabilities of chosen tokens, as trainers of policies and samplers read them."""

from typing import TYPE_CHECKING

from torch import Tensor

from portable_softmax.api.functional import Numbers
from portable_softmax.operators.log_probs.call import Given, call

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def token_log_probs(
    logits: Tensor,
    ids: Tensor,
    *,
    dim: int = -1,
    scale: Numbers = None,
    temperature: Numbers = None,
    ignore_index: int = -100,
    entropy: bool = False,
    rank: bool = False,
    grad_inplace: bool = False,
    group: "ProcessGroup | None" = None,
    vocab_start: int | None = None,
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
        rank: True to return how many of a row's scaled logits are above that of each id; 0 for ids that are ignored.
        grad_inplace: True to write the gradient over logits, which are lost then. Where torch.compile or torch.func trace the
            call, they say where a gradient is written.
        group: a process group whose ranks each hold a part of every row along `dim`; ids are of the whole vocabulary. All ranks
            get the same results, of whole rows, and each the gradient of its own logits; see docs/sharded.md. A DTensor needs
            none, and gives DTensors.
        vocab_start: with a group, the id of this rank's first column; its rank times its columns if None, as of even parts.
        out: what log-probabilities are written to: float32, or float64 of float64, of the shape of ids. Not differentiable.

    Returns:
        Log-probabilities of the shape of ids, in float32, or float64 of float64. With `entropy` or `rank` a tuple of them, the
        entropies in the same type and in the shape of logits without `dim`, and the ranks, int64 in the shape of ids: those
        that are asked for, in this order. On an accelerator an id out of range gives nan, and no gradient.

    Raises:
        IndexError: there is no such dim; an id is out of range, on the CPU.
        ValueError: logits have no dimension, or ids another shape; `out` is given with DTensors.
        TypeError: an argument is of another type; a DTensor is given with a group.
        RuntimeError: `out` has another type, shape or device, or a gradient is needed; a tensor does not broadcast, or is on
            another device; a second derivative is asked for.
        DtypeError: the device does not compute that type, or ids are no integers.
        LayoutError: a tensor is nested, sparse or of another layout than strided.
        DeviceError, PlanError, CompileError: the kernel cannot run on the device of logits.
    """
    is_dtensor = type(logits) is not Tensor and hasattr(logits, "device_mesh")
    if group is None and not is_dtensor:
        return call(logits, ids, dim, scale, temperature, ignore_index, entropy, rank, grad_inplace, out)
    given = Given(dim, scale, temperature, ignore_index, entropy, rank, grad_inplace)
    if is_dtensor and group is None:
        from portable_softmax.distributed.dtensor import log_probs_of_dtensor

        found: Tensor | tuple[Tensor, ...] = log_probs_of_dtensor(logits, ids, given, out)
        return found
    from portable_softmax.distributed.log_probs import sharded

    return sharded(logits, ids, given, out, [group], vocab_start)
