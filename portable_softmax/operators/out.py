"""The softmax written where a caller wants it, the input itself included: torch's `out=`.

The operators portable_softmax::softmax_out, ::log_softmax_out and ::softmin_out return nothing, so that compilers can follow
what they write. They are not differentiable.
"""

import warnings
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version
from torch.compiler import is_dynamo_compiling
from torch.overrides import has_torch_function

from portable_softmax.devices.detect import interpreting
from portable_softmax.errors import LayoutError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.arguments import KERNEL_DTYPES, check_layout, device_of, dtype_of, int_of, wrap_dim
from portable_softmax.operators.compute import forward
from portable_softmax.operators.kept import find, keep, nobody_listens, remember_into, repeated_into
from portable_softmax.operators.layout import AS_THEY_LIE, arranged, on_copies
from portable_softmax.operators.library import operator
from portable_softmax.operators.overlap import Overlap, overlap_of
from portable_softmax.planning.problem import FORMS, VECTOR_BYTES
from portable_softmax.runtime.guard import guard_of, launch_on
from portable_softmax.runtime.launch import bind, name_of

_TORCHS_NAMES = {  # of types, in its errors
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.float32: "float",
    torch.float64: "double",
    torch.int32: "int",
    torch.int64: "long",
}
_library = torch.library.Library("portable_softmax", "FRAGMENT")


def call_into(form: str, x: Any, dim: Any, dtype: Any, out: Any) -> torch.Tensor:
    """Writes a form of softmax to `out`, which is resized first if its shape is another one, and returns it.

    Arguments and errors are those of api.functional.softmax.
    """
    is_plain = type(dim) is int and (dtype is None or type(dtype) is torch.dtype) and not is_dynamo_compiling()
    if is_plain and repeated_into(form, dim, dtype, is_batch_invariant(), x, out):
        return out
    for name, given in (("input", x), ("out", out)):
        if not isinstance(given, torch.Tensor) and not has_torch_function((given,)):
            raise TypeError(f"{form}(): argument '{name}' must be Tensor, not {type(given).__name__}")
    dim, dtype = int_of(form, dim), dtype_of(form, dtype)
    if isinstance(x, torch.Tensor) and isinstance(out, torch.Tensor):
        check_layout(form, x)
        wrap_dim(dim, x.dim())
        check_differentiable(form, x, out)
        check_out(form, x, dtype, out)
        if out.shape != x.shape:
            resize(out, x.shape)
        elif is_plain and nobody_listens(x) and nobody_listens(out):
            _remember(form, x, dim, dtype, out)
    operator(f"{form}_out")(x, dim, dtype, out=out)
    return out


def _remember(form: str, x: torch.Tensor, dim: int, dtype: torch.dtype | None, out: torch.Tensor) -> None:
    """Lets the next call like this one be repeated, if this one is kept already."""
    if x.numel() and not (x.is_cpu and not interpreting()) and x.dtype in KERNEL_DTYPES:
        key = _key(out, x, dim, dtype, form, is_batch_invariant(), overlap_of(x, out))
        if kept := find(key):
            remember_into((form, dim, dtype, is_batch_invariant()), x, out, kept)


def write(out: torch.Tensor, x: torch.Tensor, dim: int, dtype: torch.dtype | None, form: str, batch_invariant: bool) -> None:
    """Computes what `compute.forward` does, into `out`.

    Args:
        out: of x's shape and device, and of the result's type; any strides. The input itself is computed in place.
        x, dim, dtype, form, batch_invariant: see `compute.forward`.

    Raises:
        RuntimeError: elements of `out` lie under each other, or under others of `x`.
        IndexError, DtypeError, DeviceError, PlanError, CompileError: the cases of `compute.forward`.
    """
    overlap = overlap_of(x, out) if x.numel() else "none"
    if not x.numel() or (x.is_cpu and not interpreting()):
        out.copy_(forward(x, dim, dtype, form, batch_invariant))
        return
    if dtype is not None and x.dtype not in KERNEL_DTYPES:
        x, form = (-x, "softmax") if form == "softmin" else (x, form)
        x = x.to(dtype)
    key = _key(out, x, dim, dtype, form, batch_invariant, overlap)
    if kept := find(key):
        kept(out, x)
        return
    device = device_of(x, x.dtype, out.dtype)
    dim = wrap_dim(dim, x.dim())
    way, taken, lines = arranged((out, x), dim, device, batch_invariant, n_read=2)
    guard, launch = guard_of(device), bind(taken, lines, form, False, device, batch_invariant)
    if way is not AS_THEY_LIE:
        launch = on_copies(launch, way, dim)

    def call(out: torch.Tensor, x: torch.Tensor) -> None:
        launch_on(guard, launch, out, x)

    if way is AS_THEY_LIE or all(each.data_ptr() % VECTOR_BYTES == 0 for each in (x, out)):
        keep(key, call)
    call(out, x)


def _key(
    out: torch.Tensor, x: torch.Tensor, dim: int, dtype: torch.dtype | None, form: str, batch_invariant: bool, overlap: Overlap
) -> tuple[Any, ...]:
    """Returns all that a call depends on."""
    aligned = x.data_ptr() % VECTOR_BYTES == 0, out.data_ptr() % VECTOR_BYTES == 0
    layouts = x.dtype, x.shape, x.stride(), out.stride(), x.get_device(), aligned, overlap
    return "out", form, dim, dtype, layouts, batch_invariant


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
    _library.define(f"{name}(Tensor input, int dim=-1, ScalarType? dtype=None, *, Tensor(a!) out) -> ()")

    def check(x: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, out: torch.Tensor) -> None:
        check_layout(form, x)
        wrap_dim(dim, x.dim())
        check_out(form, x, dtype, out)
        if out.shape != x.shape:
            raise RuntimeError(f"{form} of shape {tuple(x.shape)} was to be written to a tensor of shape {tuple(out.shape)}")

    def compute(x: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, out: torch.Tensor) -> None:
        check(x, dim, dtype, out=out)
        check_writable(out)
        write(out, x, dim, dtype, form, is_batch_invariant())

    def autograd(keys: Any, x: torch.Tensor, *given: Any, out: torch.Tensor) -> None:
        check_differentiable(form, x, out)
        with torch._C._AutoDispatchBelowAutograd():
            operator(name).redispatch(keys & torch._C._after_autograd_keyset, x, *given, out=out)

    def written(keys: Any, *given: Any, out: torch.Tensor) -> None:
        increment_version(out)
        with torch._C._AutoDispatchBelowADInplaceOrView():
            operator(name).redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *given, out=out)

    def negated(x: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, out: torch.Tensor) -> None:
        room = torch.empty(out.shape, dtype=out.dtype, device=out.device)
        operator(name)(x.resolve_neg(), dim, dtype, out=room)
        out.copy_(room)

    _library.impl(name, compute, "CompositeExplicitAutograd")
    _library.impl(name, autograd, "Autograd", with_keyset=True)
    _library.impl(name, written, "ADInplaceOrView", with_keyset=True)
    _library.impl(name, negated, "Negative")  # views whose elements have another sign than their memory
    torch.library.register_fake(f"portable_softmax::{name}", check, lib=_library)


for _form in FORMS:
    _define(_form)
