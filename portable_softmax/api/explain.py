"""explain: the plan of a call's launch, or the reason why PyTorch's operators compute it."""

from typing import Any

import torch
from torch import Tensor

from portable_softmax.devices.detect import chosen
from portable_softmax.devices.device import Device
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.arguments import Factor
from portable_softmax.operators.checks import check_masked_rows, check_tensor, normalized
from portable_softmax.operators.launch import NoKernel, device_of, has_kernels
from portable_softmax.operators.softmax import SOFTMAX
from portable_softmax.operators.tokens import TOKENS
from portable_softmax.runtime.layout import described
from portable_softmax.runtime.plans import plan_problem


def explain(
    x: Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, scale: Factor = None, temperature: Factor = None,
    mask: Tensor | None = None, causal: bool | str = False, softcap: float | None = None, sink: Factor = None,
    masked_rows: str = "nan", ids: Tensor | None = None, entropy: bool = False, return_lse: bool = False,
    device: Device | str | None = None,
) -> str:  # fmt: skip
    """Returns the plan of the kernel that softmax(x, dim, dtype, ...) launches, or why PyTorch's operators compute it, as text.

    The kernel is planned and compiled as for the call, with the strides and alignment of x, under the active autocast and
    batch_invariant, but not launched. log_softmax has the same launch.

    Args:
        x: a tensor of any shape and strides. With `device`, it may be on the CPU or on meta, where it has no memory:
            `torch.empty(4096, 128256, device="meta")`.
        ids, entropy, return_lse: see `token_log_probs`; with ids, that call is explained.
        device: the device to plan for, as in `plan`; None is the device of x.
        others: see `softmax`.

    Raises:
        others: those of the call and of `plan`; ValueError if `ids` is combined with what `token_log_probs` does not have.
    """
    check_tensor("explain", "x", x)
    check_masked_rows("explain", masked_rows)
    target = None if device is None else chosen(device)
    zero_rows, invariant = masked_rows == "zero", is_batch_invariant()
    if ids is not None and (dtype is not None or causal or sink is not None):
        raise ValueError("explain(): with ids, dtype, causal and sink of softmax's options are not supported")
    operator: Any = SOFTMAX
    args = SOFTMAX.Args(x, mask, scale, temperature, sink)
    options: tuple[Any, ...] = softcap, False, dim, dtype, causal
    if ids is not None:
        operator, args = TOKENS, TOKENS.Args(x, ids, mask, scale, temperature)
        options = softcap, dim, -100, entropy, return_lse
    args = normalized("explain", args)
    checked = operator.check(args, *options, zero_rows)
    try:
        about = operator.describe(args, checked, invariant)
    except NoKernel as error:
        return f"PyTorch's operators compute it: no kernel supports {error}"
    if target is None and (x.is_meta or not has_kernels(x)):
        return (
            f"PyTorch's operators compute it: the tensor is on {x.device.type}; device='vendor/product' plans for an absent one"
        )
    target = target or device_of(x)
    tensors: tuple[Any, ...] = (x,)
    if ids is None:
        tensors = torch.empty(x.shape, dtype=checked.dtype, device="meta"), x
    about.pop("sizes", None)
    innermost, problem = described(tensors, checked.dim, target, mask, **about)
    lines = []
    if innermost is not None:
        copied = "the input and the mask are" if mask is not None and innermost == checked.dim else "the input is"
        reason = "batch_invariant reads rows as those of a contiguous tensor" if invariant else "of its strides"
        lines.append(f"{copied} copied first: {reason}")
    shape = f"{problem.n_rows} rows of {problem.n_cols} columns on {target.name}, strides {x.stride()} along dim {checked.dim}"
    lines += [f"one launch computes {problem.name} of {shape}", str(plan_problem(problem, target))]
    return "\n".join(lines)
