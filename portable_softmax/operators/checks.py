"""Checks of arguments, with the types of torch's errors."""

import operator
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from portable_softmax.errors import DtypeError, LayoutError

FACTORS = "scale", "temperature", "sink", "min_p"  # a number, or one number per row
INTEGERS = "seed", "position"


def wrong(name: str, argument: str, requirement: str, actual: object) -> str:
    """Returns the message of an error: what an argument must be, have or hold, and what it is."""
    return f"{name}(): argument '{argument}' must {requirement}, not {actual}"


def mistyped(name: str, argument: str, kinds: str, value: object) -> TypeError:
    """Returns the error of an argument of another type."""
    return TypeError(wrong(name, argument, f"be {kinds}", type(value).__name__))


def as_float(name: str, argument: str, number: Any, kinds: str = "a number or Tensor") -> Any:
    """Returns a number as a float; None, tensors and symbols of compilers as they are; raises TypeError or ValueError."""
    if number is None or type(number) is float or isinstance(number, (Tensor, torch.SymFloat, torch.SymInt)):
        return number
    if isinstance(number, bool) or not isinstance(number, Real):
        raise mistyped(name, argument, kinds, number)
    try:
        return float(number)
    except OverflowError:
        raise ValueError(f"{name}(): argument '{argument}' is beyond the range of float64") from None


def as_integer(name: str, argument: str, value: Any, kinds: str = "int") -> Any:
    """Returns an integer of 64 bits, or a symbol of compilers; raises TypeError or ValueError for others."""
    if isinstance(value, torch.SymInt):
        return value
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise mistyped(name, argument, kinds, value)
    if not -(2**63) <= (value := operator.index(value)) < 2**63:
        raise ValueError(wrong(name, argument, "be an integer of 64 bits", value))
    return value


def normalized(name: str, args: Any) -> Any:
    """Returns the arguments with numbers as floats, seed and position as integers, and a sink as a tensor that broadcasts."""
    values, x = args._asdict(), args[0]
    for argument, value in args._asdict().items():
        if isinstance(value, Tensor):
            if argument == "sink" and value.dim() == 1 and x.dim() > 2:
                values[argument] = value.view(-1, 1, 1)  # one for each head
        elif argument in INTEGERS:
            values[argument] = as_integer(name, argument, value, "an integer or Tensor of integers")
        elif argument in FACTORS and value is not None:
            values[argument] = as_float(name, argument, value)
            if argument == "sink":
                values[argument] = x.new_full((1,) * x.dim(), values[argument], dtype=torch.float32)
    return type(args)(**values)


def softcap_of(name: str, softcap: Any) -> Any:
    """Returns a softcap as a float, or None; raises TypeError or ValueError unless it is positive and finite."""
    softcap = as_float(name, "softcap", softcap, "a number")
    if isinstance(softcap, Tensor):
        raise mistyped(name, "softcap", "a number", softcap)
    if type(softcap) is float and not 0 < softcap < float("inf"):
        raise ValueError(wrong(name, "softcap", "be positive and finite", f"{softcap!r}; pass None for no softcap"))
    return softcap


def wrap_dim(name: str, dim: Any, rank: int) -> int:
    """Returns dim counted from 0; raises TypeError unless it is an integer, IndexError if there is no such dim."""
    dim = operator.index(as_integer(name, "dim", dim))
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {dim})")
    return dim % limit


def dtype_of(x: Tensor, dtype: Any = None) -> torch.dtype:
    """Returns the result's type: the requested one, or that of x, but float32 for 16 bits under torch.autocast."""
    if dtype is not None:
        return torch.empty(0, dtype=dtype).dtype  # torch takes types of Python too, or raises TypeError
    is_half = x.dtype in (torch.float16, torch.bfloat16)
    return torch.float32 if is_half and not x.is_meta and torch.is_autocast_enabled(x.device.type) else x.dtype


def check_masked_rows(name: str, masked_rows: Any) -> None:
    """Raises ValueError unless it is 'nan' or 'zero'."""
    if not isinstance(masked_rows, str) or masked_rows not in ("nan", "zero"):
        raise ValueError(wrong(name, "masked_rows", "be 'nan' or 'zero'", repr(masked_rows)))


def check_real(name: str, argument: str, dtype: torch.dtype) -> None:
    """Raises DtypeError unless a dtype is floating-point of 16 bits or more."""
    if not dtype.is_floating_point or dtype.itemsize < 2:
        raise DtypeError(wrong(name, argument, "have a floating-point dtype of 16 bits or more", dtype))


def check_tensor(name: str, argument: str, t: Any, x: Tensor | None = None) -> None:
    """Raises TypeError unless t is a tensor, LayoutError unless it is strided, RuntimeError if x is on another device."""
    if not isinstance(t, Tensor):
        raise mistyped(name, argument, "Tensor", t)
    if t.layout is not torch.strided or t.is_nested:
        raise LayoutError(wrong(name, argument, "be strided; use to_dense() or to_padded_tensor()", t.layout))
    if x is not None and t.device != x.device:
        raise RuntimeError(wrong(name, argument, f"be on the same device as the input, {x.device}", t.device))


def check_alike(name: str, argument: str, t: Tensor, x: Tensor, shape: Any, dtype: torch.dtype) -> None:
    """Raises LayoutError or RuntimeError unless t is strided, of this shape and dtype, and on the device of x."""
    check_tensor(name, argument, t, x)
    if t.dtype != dtype or differ(t.shape, shape):
        raise RuntimeError(wrong(name, argument, f"be {dtype} of shape {tuple(shape)}", f"{t.dtype} of {tuple(t.shape)}"))


def is_known(condition: Any) -> bool:
    """True if a comparison of sizes is known to hold; what a compiler leaves open, the operator decides when it runs."""
    if not is_compiling() and not isinstance(condition, torch.SymBool):
        return bool(condition)
    from torch.fx.experimental import symbolic_shapes  # imported late: it takes half a second

    return bool(getattr(symbolic_shapes, "guard_or_false", bool)(condition))  # in torch from 2.7 on


def differ(shape: Any, other: Any) -> bool:
    """True if shapes are known to differ."""
    return len(shape) != len(other) or any(is_known(size != wanted) for size, wanted in zip(shape, other, strict=True))


def with_size(x: Tensor, dim: int, *sizes: int) -> tuple[int, ...]:
    """Returns the shape of x with other sizes in place of that along dim."""
    return *x.shape[:dim], *sizes, *x.shape[dim + 1 :]


def check_broadcast(name: str, argument: str, x: Tensor, shape: tuple[int, ...], t: Any) -> None:
    """Raises TypeError, LayoutError or RuntimeError unless t is a tensor on the device of x that broadcasts against a shape."""
    check_tensor(name, argument, t, x)
    last = shape[len(shape) - t.dim() :]
    if t.dim() > len(shape) or any(is_known(a != 1) and is_known(a != b) for a, b in zip(t.shape, last, strict=True)):
        raise RuntimeError(wrong(name, argument, f"broadcast against the shape {shape}", tuple(t.shape)))


def check_scores(name: str, x: Tensor, args: Any, dim: int) -> None:
    """Raises an error unless a mask broadcasts against x, and factors do, with one number per row along dim."""
    for argument, t in zip(args._fields, args, strict=True):
        if argument == "mask" and t is not None:
            _check_mask(name, x, t, dim)
        elif argument in FACTORS and isinstance(t, Tensor):
            check_broadcast(name, argument, x, with_size(x, dim, 1), t)
            if t.dtype is torch.bool or t.dtype.is_complex:
                raise DtypeError(wrong(name, argument, "hold real numbers", t.dtype))


def _check_mask(name: str, x: Tensor, mask: Any, dim: int) -> None:
    """Raises an error unless a mask broadcasts: boolean, floating-point, or int32 with bits along dim."""
    check_tensor(name, "mask", mask, x)
    shape, remedy = tuple(x.shape), "mask.bool() keeps elements where it is True"
    if mask.dtype is torch.int32:
        n_words, at = -(-shape[dim] // 32), dim - len(shape)
        if mask.dim() < -at or is_known(mask.shape[at] != n_words):
            words = f"have {n_words} words along dim {dim} in int32, with a bit for each of {shape[dim]} elements"
            raise RuntimeError(wrong(name, "mask", words, f"the shape {tuple(mask.shape)}; {remedy}"))
        shape = with_size(x, dim, n_words)
    elif mask.dtype is not torch.bool and not mask.dtype.is_floating_point:
        kinds = "be boolean, int32 with a bit for each element, or floating to be added"
        raise DtypeError(wrong(name, "mask", kinds, f"{mask.dtype}; {remedy}"))
    check_broadcast(name, "mask", x, shape, mask)
