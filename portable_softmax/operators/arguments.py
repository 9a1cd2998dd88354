"""Arguments: the facts of tensors that a launch depends on, and the checks, with the types of torch's errors."""

import operator
from numbers import Integral, Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

# True of tensors under dispatch modes and functorch, of subclasses, sparse and meta tensors, in one call of 60 ns; modes and
# functorch have no public name (2.6 to 2.13). torch.jit.is_tracing is _is_tracing behind two calls of Python (2.6 to 2.13).
from torch._C import _dispatch_isTensorSubclassLike, _is_tracing
from torch.autograd import forward_ad  # _current_level takes 8 ns, the public unpack_dual 200 for each tensor (2.6 to 2.13)
from torch.compiler import is_compiling
from torch.nn import Parameter

from portable_softmax.errors import DtypeError, LayoutError
from portable_softmax.planning.problem import VECTOR_BYTES

# True under functorch, where Function.apply is refused, even of plain tensors that a transformed function closes over; it has
# no public name (2.6 to 2.13).
transforms_are_active = torch._C._are_functorch_transforms_active
DTYPES = frozenset((torch.float16, torch.bfloat16, torch.float32))  # of kernels
CAUSAL = {False: "", True: "upper_left", "upper_left": "upper_left", "lower_right": "lower_right"}
TINY, HUGE = 2.0**-60, 2.0**60  # kernels multiply by numbers between them, and by their quotients
_PYTHON_DTYPES = {float: torch.float64, int: torch.int64, bool: torch.bool, complex: torch.complex128}
Factor = Tensor | float | None


class Inputs(NamedTuple):
    """Tensors and numbers of a softmax, in the order in which all functions take them; those that its gradient requires."""

    x: Any
    mask: Any = None
    scale: Any = None
    temperature: Any = None
    sink: Any = None
    softcap: Any = None


class SpecialCallError(Exception):
    """A call that no launch computes: a tensor is not plain, or more than autograd's reverse mode observes the call."""


class Options(NamedTuple):
    """Options of a softmax, after checks.

    Args:
        log: log_softmax.
        dim: counted from 0.
        dtype: type of the result; x is rounded to it first.
        causal: "upper_left", "lower_right" or "".
        zero_rows: rows that are masked completely are 0, or -inf.
    """

    log: bool
    dim: int
    dtype: torch.dtype
    causal: str = ""
    zero_rows: bool = False


def facts(*arguments: Any) -> tuple[Any, ...]:
    """Returns the key of a call of tensors and floats: of a tensor everything but its elements, of a float its magnitude.

    Kernels multiply by numbers between TINY and HUGE, and by their inverses.

    Raises:
        SpecialCallError: there is a tensor that is not plain: its elements are not in strided memory of its own, or a mode, a
            functorch level or a subclass observes it; or the call is in forward mode, or under torch.jit.trace.
    """
    if forward_ad._current_level >= 0 or _is_tracing():
        raise SpecialCallError
    key: list[Any] = []
    for t in arguments:
        if t is None:
            key.append(None)
        elif (kind := type(t)) is Tensor or kind is Parameter:
            if not is_plain(t) or not (start := t.data_ptr()):  # without an address: empty, or a zero tensor of autograd
                raise SpecialCallError
            key += t.dtype, t.shape, t.stride(), start % VECTOR_BYTES == 0, t.get_device(), t.requires_grad
        elif kind is float:
            key += kind, TINY < t < HUGE
        else:  # a subclass, or a symbol of a compiler
            raise SpecialCallError
    return tuple(key)


def is_plain(t: Tensor) -> bool:
    """True if elements are in strided memory of the tensor's own, and no mode, functorch level or subclass observes it."""
    return not (_dispatch_isTensorSubclassLike(t) or t.is_nested or t.is_neg() or t.layout is not torch.strided)


def needs_of(inputs: Any) -> tuple[bool, ...]:
    """Returns which arguments require a gradient; () if autograd does not record the call."""
    needs = tuple(isinstance(t, Tensor) and t.requires_grad for t in inputs)
    return needs if torch.is_grad_enabled() and any(needs) else ()


def has_voids(inputs: Inputs, options: Options) -> bool:
    """True if elements may have no weight; their gradients are 0, whatever the gradient of the result is."""
    mask, sink = inputs.mask, inputs.sink
    return bool(options.causal) or options.zero_rows or sink is not None or hides(mask)


def hides(mask: Any) -> bool:
    """True for a mask of kept elements, boolean or in bits, of which others have no gradient; an added one has torch's rule."""
    return mask is not None and not mask.dtype.is_floating_point


def tensors_and_numbers(*factors: Any) -> tuple[list[Any], list[Any]]:
    """Returns (tensors, numbers), with None where the other one holds the value: schemas of operators have no unions."""
    tensors = [factor if isinstance(factor, Tensor) else None for factor in factors]
    return tensors, [None if isinstance(factor, Tensor) else factor for factor in factors]


def joined(scale: Any, temperature: Any, scale_number: Any, temperature_number: Any) -> tuple[Any, Any]:
    """Returns (scale, temperature), the inverse of tensors_and_numbers.

    Raises:
        ValueError: one of them is both a tensor and a number.
    """
    for argument, tensor, number in (("scale", scale, scale_number), ("temperature", temperature, temperature_number)):
        if tensor is not None and number is not None:
            raise ValueError(f"'{argument}' and '{argument}_number' exclude each other: pass a tensor or a number")
    return scale_number if scale is None else scale, temperature_number if temperature is None else temperature


def as_float(name: str, argument: str, number: Any, kinds: str = "a number or Tensor") -> Any:
    """Returns a number as a float; None, tensors and symbols of compilers as they are.

    Raises:
        TypeError: it is none of these.
        ValueError: it is beyond the range of float64.
    """
    if number is None or type(number) is float or isinstance(number, (Tensor, torch.SymFloat, torch.SymInt)):
        return number
    if isinstance(number, bool) or not isinstance(number, Real):
        raise TypeError(f"{name}(): argument '{argument}' must be {kinds}, not {type(number).__name__}")
    try:
        return float(number)
    except OverflowError:
        raise ValueError(f"{name}(): argument '{argument}' is beyond the range of float64") from None


def normalized(name: str, inputs: Inputs) -> Inputs:
    """Returns the inputs with numbers as floats, and a sink as a tensor that broadcasts.

    Raises:
        TypeError, ValueError: an option has another type, or a softcap is not positive and finite.
    """
    x, mask, scale, temperature, sink, softcap = inputs
    scale, temperature = as_float(name, "scale", scale), as_float(name, "temperature", temperature)
    sink = as_float(name, "sink", sink)
    if isinstance(sink, Tensor):
        sink = sink.view(-1, 1, 1) if sink.dim() == 1 and x.dim() > 2 else sink  # one for each head
    elif sink is not None:
        sink = x.new_full((1,) * x.dim(), sink, dtype=torch.float32)
    return Inputs(x, mask, scale, temperature, sink, softcap_of(name, softcap))


def wrap_dim(name: str, dim: Any, rank: int) -> int:
    """Returns dim counted from 0.

    Raises:
        TypeError: it is not an integer.
        IndexError: there is no such dim.
    """
    if type(dim) is not int:
        if isinstance(dim, bool) or not isinstance(dim, (Integral, torch.SymInt)):
            raise TypeError(f"{name}(): argument 'dim' must be int, not {type(dim).__name__}")
        dim = operator.index(dim)
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {dim})")
    return dim % limit


def dtype_of(name: str, x: Tensor, dtype: Any = None) -> torch.dtype:
    """Returns the result's type: the requested one, or that of x, but float32 for 16 bits under torch.autocast."""
    if dtype is None:
        dtype = x.dtype
        if dtype in (torch.float16, torch.bfloat16) and not x.is_meta and torch.is_autocast_enabled(x.device.type):
            dtype = torch.float32
    elif not isinstance(dtype, torch.dtype):
        if dtype not in _PYTHON_DTYPES:
            raise TypeError(f"{name}(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
        dtype = _PYTHON_DTYPES[dtype]
    return dtype


def check_tensor(name: str, argument: str, x: Any) -> None:
    """Raises TypeError unless x is a tensor, and LayoutError, a NotImplementedError, unless it is strided."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): argument '{argument}' must be Tensor, not {type(x).__name__}")
    if x.layout is not torch.strided or x.is_nested:
        raise LayoutError(
            f"{name}(): argument '{argument}' is nested or of layout {x.layout}; use to_dense() or to_padded_tensor()"
        )


def is_real(*dtypes: torch.dtype) -> bool:
    """True for floating-point types of 16 bits or more."""
    return all(dtype.is_floating_point and dtype.itemsize > 1 for dtype in dtypes)


def check_alike(name: str, argument: str, t: Tensor, shape: Any, dtype: torch.dtype, device: torch.device) -> None:
    """Raises LayoutError or RuntimeError unless t is strided, and of this shape, dtype and device."""
    check_tensor(name, argument, t)
    if t.dtype != dtype or t.device != device or differ(t.shape, shape):
        required = f"{dtype} of shape {tuple(shape)} on {device}"
        raise RuntimeError(
            f"{name}(): argument '{argument}' must be {required}, not {t.dtype} of {tuple(t.shape)} on {t.device}"
        )


def is_known(condition: Any) -> bool:
    """True if a comparison of sizes is known to hold; what a compiler leaves open, the operator decides when it runs."""
    if not is_compiling() and not isinstance(condition, torch.SymBool):
        return bool(condition)
    from torch.fx.experimental import symbolic_shapes  # imported late: it takes half a second

    return bool(getattr(symbolic_shapes, "guard_or_false", bool)(condition))  # in torch from 2.7 on


def differ(shape: Any, other: Any) -> bool:
    """True if shapes are known to differ."""
    return len(shape) != len(other) or any(is_known(size != wanted) for size, wanted in zip(shape, other, strict=True))


def check_broadcast(name: str, argument: str, x: Tensor, t: Any) -> None:
    """Raises TypeError, LayoutError or RuntimeError unless t is a tensor that broadcasts against x."""
    check_tensor(name, argument, t)
    if t.device != x.device:
        places = f"input is on {x.device} and argument '{argument}' on {t.device}"
        raise RuntimeError(f"{name}(): Expected all tensors to be on the same device, but {places}")
    last = x.shape[x.dim() - t.dim() :] if t.dim() <= x.dim() else ()
    if len(last) != t.dim() or any(is_known(a != 1) and is_known(a != b) for a, b in zip(t.shape, last, strict=True)):
        shapes = f"of shape {tuple(t.shape)} does not broadcast against input of shape {tuple(x.shape)}"
        raise RuntimeError(f"{name}(): argument '{argument}' {shapes}")


def check_mask(name: str, x: Tensor, mask: Any, dim: int) -> None:
    """Raises an error unless a mask is None, or broadcasts: boolean, floating-point, or int32 with bits along dim."""
    if isinstance(mask, Tensor) and mask.dtype is torch.int32 and mask.dim() >= x.dim() - dim:
        n_words, at = -(-x.shape[dim] // 32), dim - x.dim()
        if is_known(mask.shape[at] != n_words):
            raise RuntimeError(
                f"{name}(): argument 'mask' of int32 must have {n_words} words along dim {dim}, with a bit for each of "
                f"{x.shape[dim]} elements, not the shape {tuple(mask.shape)}; mask.bool() keeps elements where it is True"
            )
        x, mask = x.narrow(dim, 0, 1), mask.narrow(at, 0, 1)
    if mask is None:
        return
    check_broadcast(name, "mask", x, mask)
    if mask.dtype not in (torch.bool, torch.int32) and not mask.dtype.is_floating_point:
        raise DtypeError(
            f"{name}(): argument 'mask' must be boolean, int32 with a bit for each element, or floating to be added, not "
            f"{mask.dtype}; mask.bool() keeps elements where it is True"
        )


def check_factor(name: str, argument: str, x: Tensor, factor: Any, dim: int) -> None:
    """Raises an error if factor is a tensor but not of one number for each row along dim."""
    if not isinstance(factor, Tensor):
        return
    check_broadcast(name, argument, x, factor)
    if factor.dtype is torch.bool or factor.dtype.is_complex:
        raise DtypeError(f"{name}(): argument '{argument}' must hold real numbers, not {factor.dtype}")
    at = dim - x.dim() + factor.dim()
    if 0 <= at < factor.dim() and is_known(factor.shape[at] != 1):
        rows = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
        raise RuntimeError(
            f"{name}(): argument '{argument}' of shape {tuple(factor.shape)} must have size 1 along dim {dim}, as in {rows}"
        )


def softcap_of(name: str, softcap: Any) -> Any:
    """Returns a softcap as a float, or None; raises TypeError or ValueError unless it is positive and finite."""
    softcap = as_float(name, "softcap", softcap, "a number")
    if isinstance(softcap, Tensor):
        raise TypeError(f"{name}(): argument 'softcap' must be a number, not {type(softcap).__name__}")
    if type(softcap) is float and not 0 < softcap < float("inf"):
        raise ValueError(f"{name}(): argument 'softcap' must be positive and finite, not {softcap!r}; pass None for no softcap")
    return softcap


def read(name: str, inputs: Inputs, dim: Any, dtype: Any, causal: Any, masked_rows: Any) -> Options:
    """Returns the options of a softmax, after checks of all arguments, which are normalized.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError, LayoutError, DtypeError: the cases of api.functional.softmax.
    """
    x, mask, scale, temperature, sink, _ = inputs
    check_tensor(name, "input", x)
    dim, dtype = wrap_dim(name, dim, x.dim()), dtype_of(name, x, dtype)
    if not isinstance(causal, (bool, str)) or causal not in CAUSAL:
        raise ValueError(f"{name}(): argument 'causal' must be True, False, 'upper_left' or 'lower_right', not {causal!r}")
    if causal and (x.dim() < 2 or dim != x.dim() - 1):
        raise ValueError(f"{name}(): causal masks the last two dimensions, and dim must be the last; use mask= instead")
    check_masked_rows(name, masked_rows)
    check_mask(name, x, mask, dim)
    for argument, factor in (("scale", scale), ("temperature", temperature), ("sink", sink)):
        check_factor(name, argument, x, factor, dim)
    options = Options(name == "log_softmax", dim, dtype, CAUSAL[causal], masked_rows == "zero")
    plain = all(other is None for other in inputs[1:]) and not causal and not options.zero_rows
    if not is_real(dtype) and not plain:
        raise DtypeError(f"{name}(): options require a floating-point dtype of 16 bits or more, not {dtype}; pass dtype=")
    return options


def check_masked_rows(name: str, masked_rows: Any) -> None:
    """Raises ValueError unless it is 'nan' or 'zero'."""
    if not isinstance(masked_rows, str) or masked_rows not in ("nan", "zero"):
        raise ValueError(f"{name}(): argument 'masked_rows' must be 'nan' or 'zero', not {masked_rows!r}")
