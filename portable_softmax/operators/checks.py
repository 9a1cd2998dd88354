"""Checks of arguments, with the types of torch's errors."""

import operator
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from portable_softmax.errors import DtypeError, LayoutError

Factor = Tensor | float | None
FACTORS = "scale", "temperature", "sink", "min_p"  # a number, or one number per row
INTEGERS = "seed", "position"


def require(condition: Any, error: type[Exception], name: str, argument: str, requirement: str, *values: Any) -> None:
    """Raises an error unless a condition holds; the requirement has a {} for each of the values, the actual one last."""
    if not condition:
        raise error(f"{name}(): argument '{argument}' must {requirement.format(*values)}")


def as_float(name: str, argument: str, number: Any, kinds: str = "a number or Tensor") -> Any:
    """Returns a number as a float; None, tensors and symbols of compilers as they are; raises TypeError or ValueError."""
    if number is None or type(number) is float or isinstance(number, (Tensor, torch.SymFloat, torch.SymInt)):
        return number
    is_real = isinstance(number, Real) and not isinstance(number, bool)
    require(is_real, TypeError, name, argument, "be {}, not {}", kinds, type(number).__name__)
    try:
        return float(number)
    except OverflowError:
        raise ValueError(f"{name}(): argument '{argument}' is beyond the range of float64") from None


def as_integer(name: str, argument: str, value: Any, kinds: str = "int") -> Any:
    """Returns an integer of 64 bits, or a symbol of compilers; raises TypeError or ValueError for others."""
    if isinstance(value, torch.SymInt) or (type(value) is int and abs(value) < 2**63):
        return value
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    require(is_integer, TypeError, name, argument, "be {}, not {}", kinds, type(value).__name__)
    value = operator.index(value)
    require(-(2**63) <= value < 2**63, ValueError, name, argument, "be an integer of 64 bits, not {}", value)
    return value


def normalized(name: str, args: Any) -> Any:
    """Returns the arguments with numbers as floats, seed and position as integers, and a sink as a tensor that broadcasts."""
    values, x = args._asdict(), args[0]
    for argument, value in args._asdict().items():
        if argument in INTEGERS and not isinstance(value, Tensor):
            values[argument] = as_integer(name, argument, value, "an integer or Tensor of integers")
        elif argument in FACTORS:
            values[argument] = as_float(name, argument, value)
    sink = values.get("sink")
    if isinstance(sink, Tensor) and sink.dim() == 1 and x.dim() > 2:
        values["sink"] = sink.view(-1, 1, 1)  # one for each head
    elif sink is not None and not isinstance(sink, Tensor):
        values["sink"] = x.new_full((1,) * x.dim(), sink, dtype=torch.float32)
    return type(args)(**values)


def softcap_of(name: str, softcap: Any) -> Any:
    """Returns a softcap as a float, or None; raises TypeError or ValueError unless it is positive and finite."""
    require(not isinstance(softcap, Tensor), TypeError, name, "softcap", "be a number, not Tensor")
    softcap = as_float(name, "softcap", softcap, "a number")
    is_valid = not isinstance(softcap, float) or 0 < softcap < float("inf")
    require(is_valid, ValueError, name, "softcap", "be positive and finite, not {}; pass None for no softcap", softcap)
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
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype is not None:
        return torch.empty(0, dtype=dtype).dtype  # torch takes types of Python too, or raises TypeError
    is_half = x.dtype in (torch.float16, torch.bfloat16)
    return torch.float32 if is_half and not x.is_meta and torch.is_autocast_enabled(x.device.type) else x.dtype


def zero_rows_of(name: str, masked_rows: Any) -> bool:
    """Returns whether masked rows are 0; raises ValueError unless the argument is 'nan' or 'zero'."""
    if not isinstance(masked_rows, str) or masked_rows not in ("nan", "zero"):
        raise ValueError(f"{name}(): argument 'masked_rows' must be 'nan' or 'zero', not {masked_rows!r}")
    return masked_rows == "zero"


def check_real(name: str, argument: str, dtype: torch.dtype) -> None:
    """Raises DtypeError unless a dtype is floating-point of 16 bits or more."""
    is_real = dtype.is_floating_point and dtype.itemsize >= 2
    require(is_real, DtypeError, name, argument, "have a floating-point dtype of 16 bits or more, not {}", dtype)


def check_tensor(name: str, argument: str, t: Any, x: Tensor | None = None) -> None:
    """Raises TypeError unless t is a tensor, LayoutError unless it is strided, RuntimeError if x is on another device."""
    require(isinstance(t, Tensor), TypeError, name, argument, "be Tensor, not {}", type(t).__name__)
    is_strided = t.layout is torch.strided and not t.is_nested
    require(is_strided, LayoutError, name, argument, "be strided, not {}; use to_dense() or to_padded_tensor()", t.layout)
    where = getattr(x, "device", t.device)
    require(t.device == where, RuntimeError, name, argument, "be on the same device as the input, {}, not {}", where, t.device)


def check_alike(name: str, argument: str, t: Tensor | None, x: Tensor, shape: Any, dtype: torch.dtype) -> None:
    """Raises LayoutError or RuntimeError unless t is None, or strided, of this shape and dtype, and on the device of x."""
    if t is not None:
        check_tensor(name, argument, t, x)
        is_alike, actual = t.dtype == dtype and not differ(t.shape, shape), (tuple(t.shape), t.dtype)
        require(is_alike, RuntimeError, name, argument, "be of shape {} in {}, not {} in {}", tuple(shape), dtype, *actual)


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
    sizes = zip(reversed(t.shape), reversed(shape), strict=False)
    fits = t.dim() <= len(shape) and not any(is_known(a != 1) and is_known(a != b) for a, b in sizes)
    require(fits, RuntimeError, name, argument, "broadcast against the shape {}, not {}", shape, tuple(t.shape))


def check_scores(name: str, x: Tensor, args: Any, dim: int) -> None:
    """Raises an error unless factors have one number per row along dim, and a mask keeps elements, or is added."""
    for argument in FACTORS:
        if isinstance(t := getattr(args, argument, None), Tensor):
            check_broadcast(name, argument, x, with_size(x, dim, 1), t)
            is_real = t.dtype is not torch.bool and not t.dtype.is_complex
            require(is_real, DtypeError, name, argument, "hold real numbers, not {}", t.dtype)
    mask, shape, remedy = getattr(args, "mask", None), tuple(x.shape), "; mask.bool() keeps elements where it is True"
    if mask is None:
        return
    check_tensor(name, "mask", mask, x)
    if mask.dtype is torch.int32:
        n_words, at = -(-shape[dim] // 32), dim - len(shape)
        fits = mask.dim() >= -at and not is_known(mask.shape[at] != n_words)
        words = "have {} words along dim {} in int32, with a bit for each of {} elements, not the shape {}" + remedy
        require(fits, RuntimeError, name, "mask", words, n_words, dim, shape[dim], tuple(mask.shape))
        shape = with_size(x, dim, n_words)
    else:
        kinds = "be boolean, int32 with a bit for each element, or floating to be added, not {}" + remedy
        require(mask.dtype is torch.bool or mask.is_floating_point(), DtypeError, name, "mask", kinds, mask.dtype)
    check_broadcast(name, "mask", x, shape, mask)
