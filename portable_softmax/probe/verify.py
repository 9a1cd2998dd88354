"""Runs the kernel on a live device, or in the interpreter, and compares it with float64."""

from dataclasses import dataclass

import torch

from portable_softmax.devices.device import Device
from portable_softmax.runtime.launch import softmax_rows

GUARD = 16  # elements after each row that must stay as they are
PEAK, PEAK_OF_FLOAT64 = 200.0, 800.0  # exp of it is more than float32 holds, or float64
GOLDEN = (5**0.5 - 1) / 2  # its multiples, modulo 1, are spread evenly, however many there are


@dataclass(frozen=True)
class Verification:
    """Distance of a result from the reference.

    Args:
        max_error: the largest |result - reference|.
        worst: the largest error in units of what is allowed; above 1, or an element never written, is wrong.
        overwritten: elements next to the result that the kernel changed.
    """

    max_error: float
    worst: float
    overwritten: int

    @property
    def right(self) -> bool:
        """Tells whether every element is within the allowed error, and nothing else was written."""
        return self.worst <= 1 and not self.overwritten


def verify(n_rows: int, n_cols: int, dtype: str, device: Device) -> Verification:
    """Compares the softmax of an [n_rows, n_cols] matrix of `wide_rows` with float64; nan lies between rows.

    Raises:
        DtypeError, PlanError, CompileError: the kernel cannot run on the device.
    """
    where = device.vendor.torch_device_type + ("" if device.index is None else f":{device.index}")
    x, y = guarded(n_rows, n_cols, getattr(torch, dtype), where)
    softmax_rows(x[:, :n_cols], y[:, :n_cols], device)
    return compared(x, y, n_cols)


def guarded(n_rows: int, n_cols: int, dtype: torch.dtype, where: "torch.device | str") -> tuple[torch.Tensor, torch.Tensor]:
    """Makes `wide_rows` and a place for their softmax, [n_rows, n_cols + GUARD] each, with nan in all other elements."""
    x, y = (torch.full((n_rows, n_cols + GUARD), float("nan"), dtype=dtype, device=where) for _ in range(2))
    x[:, :n_cols] = wide_rows(n_rows, n_cols, dtype, where)
    return x, y


def compared(x: torch.Tensor, y: torch.Tensor, n_cols: int) -> Verification:
    """Compares what a kernel made of the tensors of `guarded` with float64."""
    reference = softmax_in_float64(x[:, :n_cols])
    error = (y[:, :n_cols].double() - reference).abs()
    worst = (error / allowed_error(reference, x.dtype)).nan_to_num(nan=float("inf")).max().item()
    return Verification(error.max().item(), worst, int((~y[:, n_cols:].isnan()).sum()))


def wide_rows(n_rows: int, n_cols: int, dtype: torch.dtype, where: "torch.device | str") -> torch.Tensor:
    """Makes random rows like those of models, [n_rows, n_cols]; the same on every call on a device.

    Every second one spans a range of about 100, every third one is far from 0, and every fifth one is masked (-inf) but for
    its last quarter. Each of the others of every two has one element so far above the rest that a result without it in the
    maximum is inf or nan; it stands in another column in each row.
    """
    x = torch.randn(n_rows, n_cols, dtype=dtype, device=where, generator=torch.Generator(where).manual_seed(0))
    x[1::2] *= 12
    x[2::3] -= 300
    x[4::5, : n_cols * 3 // 4] = -float("inf")
    rows = torch.arange(0, n_rows, 2, device=where)
    x[rows, (rows * GOLDEN % 1 * n_cols).long()] = PEAK_OF_FLOAT64 if dtype == torch.float64 else PEAK
    return x


def softmax_in_float64(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Computes the reference by torch's exp and sum; torch.softmax adds a long float64 row up less exactly than the kernel."""
    e = (x.double() - x.double().amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


def allowed_error(reference: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns the error that each element may have.

    It is 2 units in the last place of `dtype`, or 16 in float64, which is no more exact than its reference. From float32 on
    the exponent, the logarithm of the result, is itself rounded, in x - max and where no multiply-add is fused, and as many
    units are added. Results below the smallest normal number may be flushed to zero, but for float16, whose subnormal numbers
    are normal in float32.
    """
    limits = torch.finfo(dtype)
    units = 16 if dtype == torch.float64 else 2
    rounded = 2 * reference.abs().clamp_min(limits.tiny).log().abs() + 8 if dtype.itemsize > 2 else 0
    least = limits.tiny * (units * limits.eps if dtype == torch.float16 else 1)
    return (units + rounded) * limits.eps * reference.abs() + least
