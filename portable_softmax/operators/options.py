"""Reads scale, mask and what else a caller gives with a tensor, or refuses it, and returns the operator's arguments."""

import itertools
import math
from numbers import Real
from typing import Any, NamedTuple

import torch

from portable_softmax.errors import DtypeError
from portable_softmax.operators.arguments import KERNEL_DTYPES, autocast_dtype, converted
from portable_softmax.operators.call import Asked
from portable_softmax.planning.scores import Causal

CAUSAL: dict[Any, Causal | None] = {False: None, True: "upper_left", "upper_left": "upper_left", "lower_right": "lower_right"}
LIFT = 2.0**64
MASKED_ROWS = "nan", "zero"


class Options(NamedTuple):
    """Arguments that a caller gives beside the tensor, the dim and the type; api.functional.softmax describes it."""

    scale: Any = None
    temperature: Any = None
    mask: Any = None
    causal: Any = False
    softcap: Any = None
    sink: Any = None
    masked_rows: Any = "nan"

    @property
    def are_default(self) -> bool:
        """Tells whether nothing is given."""
        return (
            self.scale is None and self.temperature is None and self.mask is None and self.causal is False
            and self.softcap is None and self.sink is None and self.masked_rows == "nan"
        )  # fmt: skip


def check_local(form: str, **arguments: Any) -> None:
    """Raises a TypeError for an argument that is a DTensor."""
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor) and hasattr(value, "device_mesh"):
            raise TypeError(f"{form}(): argument '{name}' is a DTensor; give local tensors that hold whole rows")


def read(form: str, x: torch.Tensor, dim: int, dtype: torch.dtype | None, options: Options) -> Asked:
    """Returns what the form's operator is asked for.

    Args:
        form: softmax or log_softmax.
        x: a strided tensor of at least one dimension.
        dim: counted from 0.
        dtype: type of the result; None for that of x, but float32 under torch.autocast.
        options: as the caller gave it.

    Raises:
        TypeError, ValueError, RuntimeError, DtypeError: the cases of api.functional.softmax.
    """
    x = converted(x, dtype)
    dtype = dtype or autocast_dtype(x)
    if not {x.dtype, dtype} <= KERNEL_DTYPES:
        raise DtypeError(f"{form} of {x.dtype} as {dtype} was asked for; name a floating-point dtype of 16, 32 or 64 bits")
    compute = torch.promote_types(dtype, torch.float32)
    causal = _causal(form, x, dim, options.causal)
    mask = None if options.mask is None else _mask(form, x, options.mask)
    x, by, divides = factor_of(form, x, dim, dtype, options.scale, options.temperature)
    each_sink = None if options.sink is None else sinks(form, x, dim, options.sink, compute)
    check_masked_rows(form, options.masked_rows)
    return Asked(
        x=x, dim=dim, dtype=dtype, mask=mask,
        factors=by if isinstance(by, torch.Tensor) else None,
        factor=None if isinstance(by, torch.Tensor) else by,
        divides=divides, softcap=None if options.softcap is None else _cap(form, options.softcap, compute),
        causal=causal, sinks=each_sink, zero_rows=options.masked_rows == "zero",
    )  # fmt: skip


def factor_of(
    form: str, x: torch.Tensor, dim: int, dtype: torch.dtype, scale: Any, temperature: Any
) -> tuple[torch.Tensor, Any, bool]:
    """Returns (x, a number or one for each row, whether x is divided by it) for a scale and a temperature; None for neither."""
    compute = torch.promote_types(dtype, torch.float32)
    scale = None if scale is None else numbers("scale", form, x, dim, scale, compute)
    temperature = None if temperature is None else numbers("temperature", form, x, dim, temperature, compute)
    if isinstance(temperature, float) and dtype is not torch.float16 and 0 < abs(temperature) < 1 / torch.finfo(compute).max:
        x, temperature = x.to(dtype) * LIFT, temperature * LIFT  # which has an inverse
    if scale is not None and temperature is not None:
        x, temperature = _divided(x, dim, scale, temperature, compute)
        scale = None
    return x, scale if temperature is None else temperature, temperature is not None


def check_masked_rows(name: str, masked_rows: Any) -> None:
    """Raises a ValueError unless a function is given one of the words."""
    if masked_rows not in MASKED_ROWS:
        raise ValueError(f"{name}(): argument 'masked_rows' must be 'nan' or 'zero', not {masked_rows!r}")


def _divided(x: torch.Tensor, dim: int, scale: Any, temperature: Any, compute: torch.dtype) -> tuple[torch.Tensor, Any]:
    """Returns x and what it is divided by to be multiplied by a scale and divided by a temperature.

    A temperature of 0 has no sign that could be that of the scale, so x takes the sign; a scale of 0 or inf leaves no quotient,
    so x takes the scale.
    """
    if isinstance(scale, torch.Tensor):
        taken = (scale == 0) | scale.isinf()
        sign = torch.where(taken, scale, scale.sign())  # at 0 it is the scale, so that this has its gradient there too
        return x * sign.unsqueeze(dim).to(x.dtype), temperature / torch.where(taken, 1.0, scale.abs())
    if scale == 0 or abs(scale) == math.inf:
        return x * scale, temperature
    if scale < 0:
        x, scale = -x, -scale
    quotient = temperature / scale
    return x, quotient if isinstance(quotient, torch.Tensor) else _within(quotient, compute)


def _causal(form: str, x: torch.Tensor, dim: int, causal: Any) -> Causal | None:
    if not isinstance(causal, bool | str) or causal not in CAUSAL:
        raise ValueError(f"{form}(): argument 'causal' must be True, False, 'upper_left' or 'lower_right', not {causal!r}")
    if CAUSAL[causal] and x.dim() < 2:
        raise ValueError(f"{form}(): causal is of the last two dimensions, and input has {x.dim()}; leave causal out")
    if CAUSAL[causal] and dim != x.dim() - 1:
        raise ValueError(
            f"{form}(): causal is of rows along the last dimension, and dim is {dim} of {x.dim()}; "
            "give input.movedim(dim, -1), or a mask"
        )
    return CAUSAL[causal]


def _cap(form: str, softcap: Any, compute: torch.dtype) -> float:
    cap: float = _number("softcap", form, softcap, compute)
    if not 0 < cap < math.inf:
        raise ValueError(f"{form}(): argument 'softcap' must be positive and finite, not {softcap!r:.24}; None is no cap")
    least = torch.finfo(compute).tiny  # of smaller ones there is no inverse, and to the softmax all of them are 0
    return least if cap < least else cap


def _number(name: str, form: str, given: Any, compute: torch.dtype) -> Any:
    """Returns a number; an infinity if the type that is computed in holds none so large."""
    if not isinstance(given, torch.SymFloat | torch.SymInt) and (
        isinstance(given, bool) or not isinstance(given, int | float | Real)
    ):
        wanted = "a number" if name == "softcap" else "a number or Tensor"
        raise TypeError(f"{form}(): argument '{name}' must be {wanted}, not {type(given).__name__}")
    return _within(given, compute)


def _within(number: Any, compute: torch.dtype) -> Any:
    """Returns a number as a float; an infinity if the type that is computed in holds none so large."""
    if isinstance(number, torch.SymFloat | torch.SymInt):
        return number
    try:
        given = float(number)
    except OverflowError:  # an int or a fraction
        given = math.inf if number > 0 else -math.inf
    return math.copysign(math.inf, given) if abs(given) > torch.finfo(compute).max else given


def _mask(form: str, x: torch.Tensor, mask: Any) -> torch.Tensor:
    """Returns a mask of x's rank."""
    if not isinstance(mask, torch.Tensor):
        raise TypeError(f"{form}(): argument 'mask' must be Tensor, not {type(mask).__name__}")
    if mask.dtype is not torch.bool and not mask.dtype.is_floating_point:
        raise DtypeError(
            f"{form}(): argument 'mask' must be boolean, or floating to be added, not {mask.dtype}; "
            "give mask.bool(), which is True for what takes part"
        )
    if mask.dtype.is_floating_point and mask.dtype not in KERNEL_DTYPES:
        mask = mask.to(torch.bfloat16)  # holds all numbers of 8 bits
    return _aligned("mask", form, x, mask)


def sinks(form: str, x: torch.Tensor, dim: int, sink: Any, compute: torch.dtype) -> torch.Tensor:
    """Returns one sink for each row."""
    if isinstance(sink, torch.Tensor):
        if sink.dim() != 1 or x.dim() < 3:
            return _of_rows("sink", form, x, dim, sink, compute)
        heads = x.shape[-3]
        if len(sink) not in (1, heads):
            raise RuntimeError(
                f"{form}(): argument 'sink' of shape {tuple(sink.shape)} is of one number for each head, and input of shape "
                f"{tuple(x.shape)} has {heads} heads; give it the shape ({heads},), or one for each row: {_by_row(x, dim)}"
            )
        return _of_rows("sink", form, x, dim, sink.view(-1, 1, 1), compute)
    rows = [*x.shape[:dim], *x.shape[dim + 1 :]]
    return torch.full(rows, _number("sink", form, sink, compute), dtype=compute, device=x.device)


def numbers(name: str, form: str, x: torch.Tensor, dim: int, given: Any, compute: torch.dtype) -> Any:
    """Returns a number, or one for each row."""
    return (
        _of_rows(name, form, x, dim, given, compute) if isinstance(given, torch.Tensor) else _number(name, form, given, compute)
    )


def _of_rows(name: str, form: str, x: torch.Tensor, dim: int, given: torch.Tensor, compute: torch.dtype) -> torch.Tensor:
    """Returns one number for each row, contiguous; a view of a tensor that holds as many, of the type that is computed in."""
    if given.dtype is torch.bool or given.dtype.is_complex:
        raise DtypeError(f"{form}(): argument '{name}' must hold real numbers, not {given.dtype}; convert it to {compute}")
    aligned = _aligned(name, form, x, given, dim)
    if aligned.shape[dim] != 1:
        raise RuntimeError(
            f"{form}(): argument '{name}' has one number for each row, so its size along dim {dim} must be 1, and its shape is "
            f"{tuple(given.shape)}; {_advice(x, dim, given.shape)}"
        )
    return aligned.squeeze(dim).to(compute).expand([*x.shape[:dim], *x.shape[dim + 1 :]]).contiguous()


def _advice(x: torch.Tensor, dim: int | None, given: torch.Size) -> str:
    """Returns which shape suits x: one that holds the sizes given, or that of one number for each row along `dim`."""
    for places in reversed([*itertools.combinations(range(x.dim()), len(given))]):
        if dim not in places and all(size in (1, x.shape[at]) for size, at in zip(given, places, strict=True)):
            sizes = dict(zip(places, given, strict=True))
            return f"give it a shape like {tuple(sizes.get(at, 1) for at in range(x.dim()))}"
    if dim is None:
        return "each of its last sizes must be 1 or that of input"
    return f"give it a shape like {_by_row(x, dim)}"


def _by_row(x: torch.Tensor, dim: int) -> tuple[int, ...]:
    return (*x.shape[:dim], 1, *x.shape[dim + 1 :])


def _aligned(name: str, form: str, x: torch.Tensor, given: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """Returns a view of x's rank of a tensor that broadcasts against x; `dim` is that of one number for each row."""
    if given.layout is not torch.strided or given.is_nested:
        raise TypeError(f"{form}(): argument '{name}' must be a strided tensor; use {name}.to_dense()")
    if given.device != x.device:
        raise RuntimeError(
            f"{form}(): Expected all tensors to be on the same device, but input is on {x.device} and argument '{name}' on "
            f"{given.device}; use {name}.to(input.device)"
        )
    missing = x.dim() - given.dim()
    aligned = given[(None,) * missing] if missing > 0 else given
    if missing < 0 or any(size != 1 and size != whole for size, whole in zip(aligned.shape, x.shape, strict=True)):
        raise RuntimeError(
            f"{form}(): argument '{name}' of shape {tuple(given.shape)} does not broadcast against input of shape "
            f"{tuple(x.shape)}; {_advice(x, dim, given.shape)}"
        )
    return aligned
