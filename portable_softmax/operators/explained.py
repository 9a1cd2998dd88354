"""Says how a call of softmax is computed: the plan of its launch, and what torch does before, or instead."""

from collections.abc import Iterator

import torch

from portable_softmax.devices.device import Device
from portable_softmax.errors import LayoutError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.arguments import KERNEL_DTYPES, autocast_dtype, check_layout, device_of, wrap_dim
from portable_softmax.operators.call import Asked, call_of
from portable_softmax.operators.composite import BY_TORCH
from portable_softmax.operators.launching import by_torch, described
from portable_softmax.operators.layout import AS_THEY_LIE, Way
from portable_softmax.operators.options import Options, read
from portable_softmax.operators.out import check_out
from portable_softmax.operators.overlap import Overlap, overlap_of
from portable_softmax.planning.problem import VECTOR_BYTES, Problem
from portable_softmax.runtime.launch import name_of
from portable_softmax.runtime.plans import plan_problem


def explained(
    x: torch.Tensor, dim: int, dtype: torch.dtype | None, options: Options, out: torch.Tensor | None, device: Device | None
) -> str:
    """Returns lines about softmax(x, dim, dtype, ...); compiles the kernel that the call would, and launches none.

    Args:
        x, dim, dtype, options, out: of the call.
        device: plans for it, wherever x is; None for the device that x is on.
    """
    return "\n".join(_lines(x.detach(), dim, dtype, options, out, device))


def _lines(
    x: torch.Tensor, dim: int, dtype: torch.dtype | None, options: Options, out: torch.Tensor | None, device: Device | None
) -> Iterator[str]:
    check_layout("softmax", x)
    dim, y_dtype = wrap_dim(dim, x.dim()), dtype or (autocast_dtype(x) if out is None else x.dtype)
    place = None if out is None else _place(x, dtype, out)
    asked = _asked(x, dim, options, out, place)
    if not options.are_default:
        x, options = x if x.dim() else x.unsqueeze(0), _without_memory(x, dim, dtype, options)
    if device is None and (x.is_meta or by_torch(x)):
        yield _without_a_kernel(x, dim, dtype, options)
        return
    converted = dtype is not None and x.dtype not in KERNEL_DTYPES
    types = (y_dtype if converted else x.dtype), y_dtype
    if device is None:
        device = device_of(x, *types)
    for each in types:
        device.check_dtype(name_of(each))
    if not x.numel():
        yield "nothing is computed: the tensor has no elements"
        return
    if converted:
        yield f"torch converts {name_of(x.dtype)} to {name_of(y_dtype)} first, which is read by the kernel"
    stands_in = torch.empty_like(x, dtype=y_dtype, device="meta") if converted else like(x)
    y = torch.empty(x.shape, dtype=y_dtype, device="meta")
    y = stands_in if place == "same" else like(out) if out is not None and out.shape == x.shape else y
    try:
        way, problem = _described(stands_in, y, dim, device, options)
    except LayoutError as error:
        yield f"a launch for each index of the outermost dimension computes it: {error}"
        return
    if way is not AS_THEY_LIE:
        invariant = "batch_invariant reads rows as those of a contiguous tensor"
        reason = invariant if is_batch_invariant() else "no kernel takes these strides"
        yield f"the input is copied first, and the result back if need be: {reason}"
    found = plan_problem(problem, device)
    shape = f"{found.problem.n_rows} rows of {found.problem.n_cols} columns"
    yield f"a kernel of this package computes {shape} on {device.name}, {name_of(types[0])} to {name_of(y_dtype)}: {asked}"
    yield str(found)


def like(x: torch.Tensor) -> torch.Tensor:
    """Returns a tensor without memory that lies as x does: its strides, and its place on 16 bytes."""
    offset = x.data_ptr() % VECTOR_BYTES // x.element_size()
    reach = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True) if size)
    return torch.empty(offset + reach, dtype=x.dtype, device="meta").as_strided(x.shape, x.stride(), offset)


def _place(x: torch.Tensor, dtype: torch.dtype | None, out: torch.Tensor) -> Overlap:
    """Returns how a result lies to x, or refuses it as the call does."""
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"explain(): argument 'out' must be Tensor, not {type(out).__name__}")
    check_out("softmax", x, dtype, out)
    return overlap_of(x, out) if x.numel() and out.shape == x.shape else "none"


def _asked(x: torch.Tensor, dim: int, options: Options, out: torch.Tensor | None, place: Overlap | None) -> str:
    """Returns words for a call."""
    words = [f"softmax along dim {dim} of {tuple(x.shape)}, strides {x.stride()}"]
    for name, each in options._asdict().items():
        if isinstance(each, torch.Tensor):
            words.append(f"{name} {name_of(each.dtype)} {tuple(each.shape)}")
        elif each != Options._field_defaults[name]:
            words.append(f"{name} {each}")
    if out is not None:
        words.append("in place" if place == "same" else f"into strides {out.stride()}")
    return ", ".join(words)


def _without_memory(x: torch.Tensor, dim: int, dtype: torch.dtype | None, options: Options) -> Options:
    """Returns what is options with x, its tensors on meta; refuses those that are elsewhere than x, as the call does."""
    tensors = [each for each in options if isinstance(each, torch.Tensor)]
    if any(each.device != x.device or each.layout is not torch.strided or each.is_nested for each in tensors):
        read("softmax", x, dim, dtype, options)  # raises
    return Options(*(like(each.detach()) if isinstance(each, torch.Tensor) else each for each in options))


def _without_a_kernel(x: torch.Tensor, dim: int, dtype: torch.dtype | None, options: Options) -> str:
    """Says who computes a call that comes to no kernel; the call's errors are those of torch's operators."""
    scores = not options.are_default
    if scores:
        read("softmax", like(x), dim, dtype or x.dtype, options)
    if x.is_meta:
        return "nothing is computed: the tensor is on meta. Give device='vendor/product', and it is planned for that one"
    if not scores:
        BY_TORCH["softmax"](x.new_ones((1,) * x.dim()), dim, dtype=dtype)
    by = "torch's operators compute" if scores else "torch.softmax computes"
    return f"{by} it: the tensor is on the CPU, and TRITON_INTERPRET=1 is not set"


def _described(x: torch.Tensor, y: torch.Tensor, dim: int, device: Device, options: Options) -> tuple[Way, Problem]:
    """Returns whether x is copied first, and the problem that the call launches."""
    asked = Asked(x, dim, y.dtype) if options.are_default else read("softmax", x, dim, y.dtype, options)
    call, operands = call_of("softmax", asked, is_batch_invariant())
    return described(call, (y, operands[0]), device, operands[1] if call.scores.mask else None)
