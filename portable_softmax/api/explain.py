"""explain: the plan of a call's launch, or the reason why PyTorch's operators compute it."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from portable_softmax.devices.detect import chosen, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import log_probs
from portable_softmax.operators.arguments import DTYPES, Factor, Inputs, check_tensor, normalized, read
from portable_softmax.operators.launch import FORMS, device_of, problem_fields, scores_of
from portable_softmax.planning.problem import VECTOR_BYTES
from portable_softmax.runtime.layout import described, expanded
from portable_softmax.runtime.plans import plan_problem


def explain(
    x: Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, scale: Factor = None, temperature: Factor = None,
    mask: Tensor | None = None, causal: bool | str = False, softcap: float | None = None, sink: Factor = None,
    masked_rows: str = "nan", ids: Tensor | None = None, entropy: bool = False, return_lse: bool = False,
    device: Device | str | None = None,
) -> str:  # fmt: skip
    """Returns the plan of the kernel that softmax(x, dim, dtype, ...) launches, or why PyTorch's operators compute it.

    The kernel is planned and compiled as for the call, with the strides and alignment of x, under the active autocast and
    batch_invariant. No kernel is launched, and nothing is copied. log_softmax has the same launch.

    Args:
        x: a tensor of any shape and strides. With `device`, it may be on the CPU or on meta, where it has no memory:
            `torch.empty(4096, 128256, device="meta")`.
        dim, dtype, scale, temperature, mask, causal, softcap, sink, masked_rows: see `softmax`.
        ids, entropy, return_lse: see `token_log_probs`; with ids, that call is explained.
        device: the device to plan for, as in `plan`; None is the device of x.

    Returns:
        Text: copies of the input, the launch, the number of resident programs, and the reasons.

    Raises:
        IndexError, TypeError, ValueError, RuntimeError, DtypeError, LayoutError, DeviceError, PlanError, CompileError: the call
            would raise it; or `ids` is combined with an option that `token_log_probs` does not have.
        TypeError, ProfileError: `device` is invalid, as in `plan`.
    """
    check_tensor("explain", "x", x)
    target = None if device is None else chosen(device)
    inputs = normalized("explain", Inputs(x, mask, scale, temperature, sink, softcap))
    options = read("softmax", inputs, dim, dtype, causal, masked_rows)
    if ids is None:
        scores = None if x.is_meta and target is None else scores_of(inputs, options)
        about = {"form": FORMS[False], "scores": scores, "batch_invariant": is_batch_invariant()}
        y = torch.empty(x.shape, dtype=options.dtype, device="meta")
        return "\n".join(_lines((y, _like(x)), options.dim, mask, about if scores is not None else None, target, x))
    if dtype is not None or causal or sink is not None:
        raise ValueError("explain(): with ids, dtype, causal and sink of softmax's options are not supported")
    arguments = x, ids, mask, inputs.scale, inputs.temperature, inputs.softcap
    checked = log_probs.read(arguments, dim, -100, entropy, return_lse)
    fields = problem_fields(arguments, x.dtype, is_batch_invariant(), masked_rows == "zero", entropy=entropy)
    return "\n".join(_lines((_like(x),), checked[0], mask, fields, target, x))


def _lines(
    tensors: tuple[Tensor, ...], dim: int, mask: Tensor | None, about: dict[str, Any] | None, device: Device | None, x: Tensor
) -> Iterator[str]:
    dtypes = x.dtype, tensors[0].dtype
    if device is None and (x.is_meta or (x.is_cpu and not interpreting())):
        hint = "device='vendor/product' plans for an absent one"
        yield f"PyTorch's operators compute it: the tensor is on {x.device.type}; {hint}"
        return
    empty = not x.numel() or not x.dim()
    if empty or about is None or not DTYPES.issuperset(dtypes) or torch.promote_types(*dtypes) != dtypes[1]:
        reason = "tensors without elements or dims" if empty else f"{dtypes[0]} to {dtypes[1]}" if about else "these options"
        yield f"PyTorch's operators compute it: no kernel supports {reason}"
        return
    device = device or device_of(x)
    whole_mask = None if mask is None else expanded(_like(mask.detach()), x, dim)
    copy, copies_mask, problem = described(tensors, dim, device, whole_mask, **about)
    if copy is not None:
        reason = "batch_invariant reads rows as those of a contiguous tensor" if is_batch_invariant() else "of its strides"
        yield f"the input{' and the mask are' if copies_mask else ' is'} copied first: {reason}"
    planned = plan_problem(problem, device)
    shape = f"{planned.problem.n_rows} rows of {planned.problem.n_cols} columns"
    yield f"one launch computes {problem.name} of {shape} on {device.name}, strides {x.stride()} along dim {dim}"
    yield str(planned)


def _like(x: Tensor) -> Tensor:
    """Returns a tensor without memory that is laid out as x is: its strides, and its alignment."""
    offset = x.data_ptr() % VECTOR_BYTES // x.element_size()
    reach = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True) if size)
    return torch.empty(offset + reach, dtype=x.dtype, device="meta").as_strided(x.shape, x.stride(), offset)
