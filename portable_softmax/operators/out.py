"""The softmax written where a caller wants it, the input itself included: torch's `out=`.

The operators portable_softmax::softmax_out and ::log_softmax_out return nothing, so that compilers can follow
what they write. They are not differentiable.
"""

import warnings
from typing import Any

import torch
from torch._C import _dispatch_isTensorSubclassLike
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version
from torch.compiler import is_dynamo_compiling

from portable_softmax.errors import LayoutError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import arguments, launching
from portable_softmax.operators.arguments import check_layout, wrap_dim
from portable_softmax.operators.bypass import Kind, directly, kind_of
from portable_softmax.operators.call import OUT_SCHEMA, Asked
from portable_softmax.operators.launching import by_torch
from portable_softmax.operators.library import operator
from portable_softmax.operators.memory import nobody_listens, repeated_into
from portable_softmax.operators.options import Options, read
from portable_softmax.operators.overlap import are_disjoint, overlap_of
from portable_softmax.planning.problem import FORMS
from portable_softmax.runtime.launch import name_of

_TORCHS_NAMES = {  # of types, in its errors
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.float32: "float",
    torch.float64: "double",
    torch.int32: "int",
    torch.int64: "long",
}
_library = torch.library.Library("portable_softmax", "FRAGMENT")


def call_into(form: str, x: Any, dim: Any, dtype: Any, out: Any, options: Options | None = None) -> torch.Tensor:
    """Writes a form of softmax to `out`, which is resized first if its shape is another one, and returns it.

    Arguments and errors are those of api.functional.softmax.
    """
    is_plain = options is None and type(dim) is int and (dtype is None or type(dtype) is torch.dtype)
    if is_plain and not is_dynamo_compiling() and repeated_into(form, dim, dtype, is_batch_invariant(), x, out):
        return out
    kind = kind_of(form, x, dim, dtype, options, out)
    if kind and options and (repeat := kind.repeat):
        repeat(out, x, options)
        increment_version(out)
        return out
    for name, given in (("input", x), ("out", out)):
        if not isinstance(given, torch.Tensor):
            raise TypeError(f"{form}(): argument '{name}' must be Tensor, not {type(given).__name__}")
    dim, dtype = arguments.read(form, x, dim, dtype)
    check_differentiable(form, x, out, *(each for each in options or () if isinstance(each, torch.Tensor)))
    check_out(form, x, dtype, out)
    if out.shape != x.shape:
        resize(out, x.shape)
    elif (
        options
        and x.numel()
        and not is_dynamo_compiling()
        and not any(_dispatch_isTensorSubclassLike(each) for each in (x, out))
    ):
        overlap_of(x, out)  # before options make another tensor of x
    _call(form, x, dim, dtype, out, options, kind)
    return out


def _call(
    form: str,
    x: torch.Tensor,
    dim: int,
    dtype: torch.dtype | None,
    out: torch.Tensor,
    options: Options | None,
    kind: Kind | None,
) -> None:
    """Writes past the dispatcher if nobody listens there, and remembers the call; or through it."""
    if options is None:
        asked = Asked(x, dim, dtype)
    else:
        x, out, kind = (x, out, kind) if x.dim() else (x.unsqueeze(0), out.unsqueeze(0), None)
        asked = read(form, x, dim, dtype or x.dtype, options)
    if kind and nobody_listens(out) and _takes(asked, out):
        check_writable(out)
        if directly(form, asked, is_batch_invariant(), kind) is not None:
            increment_version(out)
            return
    operator(f"{form}_out")(*asked, out=out)


def write(form: str, asked: Asked, out: torch.Tensor) -> None:
    """Computes what `launching.forward` does, into `out`; by a copy where a kernel cannot write there.

    Args:
        form: softmax or log_softmax.
        asked: what of.
        out: of the device and shape of x, and of the result's type; any strides. The input itself is computed in place.

    Raises:
        RuntimeError: elements of `out` lie under each other, or under others of x.
        IndexError, DtypeError, DeviceError, PlanError, CompileError: the cases of `launching.forward`.
    """
    if _takes(asked, out):
        launching.forward(form, asked, is_batch_invariant(), out)
    else:
        out.copy_(launching.forward(form, asked, is_batch_invariant()))


def _takes(asked: Asked, out: torch.Tensor) -> bool:
    """Tells whether a kernel can write to `out`, which is x itself or lies apart from all that is read.

    Raises:
        RuntimeError: elements of `out` lie under each other, or under others of x.
    """
    if not asked.x.numel():
        return False
    overlap_of(asked.x, out)
    return not by_torch(asked.x) and all(are_disjoint(each, out) for each in asked.tensors[1:])


def check_out(form: str, x: torch.Tensor, dtype: torch.dtype | None, out: torch.Tensor) -> None:
    """Checks type and device of `out`, in torch's words."""
    if out.is_nested or out.layout is not torch.strided:
        layout = "nested" if out.is_nested else f"of layout {out.layout}"
        raise LayoutError(f"{form} into a tensor that is {layout} was asked for; give a strided tensor as out=")
    if out.dtype is not (wanted := dtype or x.dtype):
        asked, given = (_TORCHS_NAMES.get(each, name_of(each)) for each in (wanted, out.dtype))
        raise RuntimeError(f"Expected out tensor to have dtype {asked}, but got {given} instead")
    if out.device != x.device:
        raise RuntimeError(f"Expected out tensor to have device {x.device}, but got {out.device} instead")


def check_writable(out: torch.Tensor) -> None:
    """Refuses a tensor of inference mode outside of it, as torch does."""
    if out.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed. "
            "You can make a clone to get a normal tensor before doing inplace update."
        )


def resize(out: torch.Tensor, shape: torch.Size) -> None:
    """Gives `out` another shape, with torch's warning if it has elements."""
    if out.numel():
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not match the "
            f"required output shape {list(shape)}. This behavior is deprecated, and in a future PyTorch release outputs will "
            "not be resized unless they have zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, "
            "to zero elements with t.resize_(0).",
            UserWarning,
            stacklevel=5,
        )
    out.resize_(shape)


def check_differentiable(form: str, *tensors: torch.Tensor) -> None:
    """Refuses what autograd or forward mode would have to follow."""
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
        raise RuntimeError(
            f"{form}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad."
        )
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(each).tangent is not None for each in tensors):
        raise NotImplementedError(f"Trying to use forward AD with {form}(out=...) that does not support it.")


def _define(form: str) -> None:
    name = f"{form}_out"
    _library.define(f"{name}{OUT_SCHEMA}")

    def check(*arguments: Any, out: torch.Tensor) -> None:
        asked = Asked(*arguments)
        check_layout(form, asked.x)
        wrap_dim(asked.dim, asked.x.dim())
        check_out(form, asked.x, asked.dtype, out)
        if out.shape != asked.x.shape:
            shapes = f"{tuple(asked.x.shape)} was to be written to a tensor of shape {tuple(out.shape)}"
            raise RuntimeError(f"{form} of shape {shapes}")

    def compute(*arguments: Any, out: torch.Tensor) -> None:
        check(*arguments, out=out)
        check_writable(out)
        write(form, Asked(*arguments), out)

    def autograd(keys: Any, *arguments: Any, out: torch.Tensor) -> None:
        check_differentiable(form, *Asked(*arguments).tensors, out)
        with torch._C._AutoDispatchBelowAutograd():
            operator(name).redispatch(keys & torch._C._after_autograd_keyset, *arguments, out=out)

    def written(keys: Any, *arguments: Any, out: torch.Tensor) -> None:
        increment_version(out)
        with torch._C._AutoDispatchBelowADInplaceOrView():
            operator(name).redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *arguments, out=out)

    def negated(*arguments: Any, out: torch.Tensor) -> None:
        resolved = [each.resolve_neg() if isinstance(each, torch.Tensor) else each for each in arguments]
        buffer = torch.empty(out.shape, dtype=out.dtype, device=out.device)
        operator(name)(*resolved, out=buffer)
        out.copy_(buffer)

    _library.impl(name, compute, "CompositeExplicitAutograd")
    _library.impl(name, autograd, "Autograd", with_keyset=True)
    _library.impl(name, written, "ADInplaceOrView", with_keyset=True)
    _library.impl(name, negated, "Negative")  # views whose elements have another sign than their memory
    torch.library.register_fake(f"portable_softmax::{name}", check, lib=_library)


for _form in FORMS:
    _define(_form)
