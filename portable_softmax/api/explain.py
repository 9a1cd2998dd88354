"""explain: the plan of a call's launch, or the reason why PyTorch's operators compute it."""

from typing import Any

import torch
from torch import Tensor

from portable_softmax.devices.detect import chosen
from portable_softmax.devices.device import Device
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.arguments import Factor
from portable_softmax.operators.checks import check_masked_rows, check_tensor, normalized
from portable_softmax.operators.launch import device_of, has_kernels
from portable_softmax.operators.softmax import SOFTMAX
from portable_softmax.operators.tokens import TOKENS
from portable_softmax.planning.problem import VECTOR_BYTES
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
    batch_invariant. No kernel is launched, and nothing is copied. log_softmax has the same launch.

    Args:
        x: a tensor of any shape and strides. With `device`, it may be on the CPU or on meta, where it has no memory:
            `torch.empty(4096, 128256, device="meta")`.
        dim, dtype, scale, temperature, mask, causal, softcap, sink, masked_rows: see `softmax`.
        ids, entropy, return_lse: see `token_log_probs`; with ids, that call is explained.
        device: the device to plan for, as in `plan`; None is the device of x.

    Raises:
        IndexError, TypeError, ValueError, RuntimeError, DtypeError, LayoutError, DeviceError, PlanError, CompileError: the call
            would raise it; or `ids` is combined with an option that `token_log_probs` does not have.
        TypeError, ProfileError: `device` is invalid, as in `plan`.
    """
    check_tensor("explain", "x", x)
    check_masked_rows("explain", masked_rows)
    target = None if device is None else chosen(device)
    zero_rows, invariant = masked_rows == "zero", is_batch_invariant()
    if ids is None:
        args = normalized("explain", SOFTMAX.Args(x, mask, scale, temperature, sink))
        options = SOFTMAX.check(args, softcap, False, dim, dtype, causal, zero_rows)
        tensors: Any = torch.empty(x.shape, dtype=options.dtype, device="meta"), _like(x)
        reason, about = SOFTMAX.problem(args, options, invariant)
    elif dtype is not None or causal or sink is not None:
        raise ValueError("explain(): with ids, dtype, causal and sink of softmax's options are not supported")
    else:
        args = normalized("explain", TOKENS.Args(x, ids, mask, scale, temperature))
        options = TOKENS.check(args, softcap, dim, -100, entropy, return_lse, zero_rows)
        tensors = (_like(x),)
        reason, about = TOKENS.problem(args, options, invariant)
    if target is None and (x.is_meta or not has_kernels(x)):
        hint = "device='vendor/product' plans for an absent one"
        return f"PyTorch's operators compute it: the tensor is on {x.device.type}; {hint}"
    if reason:
        return f"PyTorch's operators compute it: no kernel supports {reason}"
    target = target or device_of(x)
    about.pop("sizes", None)
    hidden = None if mask is None else _like(mask.detach())
    copy, copies_mask, problem = described(tensors, options.dim, target, hidden, **about)
    lines = []
    if copy is not None:
        reason = "batch_invariant reads rows as those of a contiguous tensor" if invariant else "of its strides"
        lines.append(f"the input{' and the mask are' if copies_mask else ' is'} copied first: {reason}")
    planned = plan_problem(problem, target)
    shape = f"{planned.problem.n_rows} rows of {planned.problem.n_cols} columns"
    lines.append(
        f"one launch computes {problem.name} of {shape} on {target.name}, strides {x.stride()} along dim {options.dim}"
    )
    return "\n".join([*lines, str(planned)])


def _like(x: Tensor) -> Tensor:
    """Returns a tensor without memory that is laid out as x is: its strides, and its alignment."""
    offset = x.data_ptr() % VECTOR_BYTES // x.element_size()
    reach = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True) if size)
    return torch.empty(offset + reach, dtype=x.dtype, device="meta").as_strided(x.shape, x.stride(), offset)
