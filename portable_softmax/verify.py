"""Runs the kernel on a live device, or in the interpreter, and compares it with float64."""

from dataclasses import dataclass

import torch

from portable_softmax.device import Device
from portable_softmax.launch import softmax_rows

GUARD = 16  # elements after each row that must stay as they are


@dataclass(frozen=True)
class Verification:
    """How far a result is from torch's.

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
        return self.worst <= 1 and not self.overwritten


def verify(n_rows: int, n_cols: int, dtype: str, device: Device) -> Verification:
    """softmax of a random [n_rows, n_cols] matrix; its rows and those of the result lie apart, with nan in between."""
    kind = getattr(torch, dtype)
    where = device.vendor.torch_device_type + ("" if device.index is None else f":{device.index}")
    x, y = (torch.full((n_rows, n_cols + GUARD), float("nan"), dtype=kind, device=where) for _ in range(2))
    x[:, :n_cols] = torch.randn(n_rows, n_cols, device=where)
    softmax_rows(x[:, :n_cols], y[:, :n_cols], device)
    reference = softmax_in_float64(x[:, :n_cols])
    error = (y[:, :n_cols].double() - reference).abs()
    worst = (error / allowed_error(reference, kind)).nan_to_num(nan=float("inf")).max().item()
    return Verification(error.max().item(), worst, int((~y[:, n_cols:].isnan()).sum()))


def softmax_in_float64(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """From torch's exp and sum: torch.softmax of a long float64 row adds it up less exactly than the kernel does."""
    e = (x.double() - x.double().amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


def allowed_error(reference: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """2 units in the last place of `dtype`; 1e-6 of the value more in float32, whose exponents are themselves rounded;
    16 units in float64, which is no more exact than its reference."""
    limits = torch.finfo(dtype)
    units = 16 if dtype == torch.float64 else 2
    relative = units * limits.eps + (1e-6 if dtype == torch.float32 else 0)
    return relative * reference.abs() + units * limits.tiny * limits.eps
