"""Errors of results relative to float64, for the probe, the benchmark and the tests.

The unit is the allowed error: above 1 a result is wrong.
"""

from typing import NamedTuple

import torch

# Of torch.testing.assert_close: relative, absolute.
TOLERANCES = {torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5), torch.float32: (1.3e-6, 1e-5)}
Terms = torch.Tensor | float


class Distance(NamedTuple):
    """The largest error, the largest one in units of the allowed error, and the index of the latter."""

    error: float
    worst: float
    at: tuple[int, ...]


def allowed_error(reference: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns the allowed error of the elements of a softmax or a gradient.

    It is 2 units in the last place of `dtype`, or 16 in float64. From float32 on the exponent, the logarithm of the result, is
    itself rounded: as many units are added. Results below the smallest normal number may be 0, but in float16.
    """
    limits = torch.finfo(dtype)
    units = 16 if dtype == torch.float64 else 2
    rounded = 2 * reference.abs().clamp_min(limits.tiny).log().abs() + 8 if dtype.itemsize > 2 else 0
    least = limits.tiny * (units * limits.eps if dtype == torch.float16 else 1)
    return (units + rounded) * limits.eps * reference.abs() + least


def allowed_of_terms(exact: torch.Tensor, dtype: torch.dtype, terms: Terms, rounded: torch.dtype | None = None) -> torch.Tensor:
    """Returns the allowed error of a sum in float64: its own rounding to `dtype`, and that of terms of a size that may cancel.

    The terms are rounded to the type `rounded`, by default that in which kernels compute.
    """
    size = (torch.zeros((), dtype=torch.float64, device=exact.device) + terms).abs()
    inner = rounded or torch.promote_types(dtype, torch.float32)
    return allowed_error(exact.nan_to_num(0, 0, 0), dtype) + allowed_error(size, inner)


def allowed_of_any(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns the error that torch.testing.assert_close allows, of a kernel that computes anything."""
    relative, absolute = TOLERANCES.get(dtype, (1e-7, 1e-7) if dtype.is_floating_point else (0, 0.5))
    return absolute + relative * exact.nan_to_num(0, 0, 0).abs()


def distance(result: torch.Tensor, exact: torch.Tensor, allowed: torch.Tensor) -> Distance:
    """Returns how far a result is from float64; inf where only one of the two is nan, or an infinity."""
    assert result.shape == exact.shape
    if not result.numel():
        return Distance(0.0, 0.0, ())
    error = torch.where(same(result.double(), exact), 0.0, (result.double() - exact).abs()).nan_to_num(torch.inf, torch.inf)
    units = (error / allowed).nan_to_num(torch.inf, torch.inf)
    at = torch.unravel_index(units.argmax().cpu(), units.shape)
    return Distance(error.max().item(), units.max().item(), tuple(int(index) for index in at))


def worst_error(result: torch.Tensor, exact: torch.Tensor, terms: Terms = 0.0) -> float:
    """Returns the largest error of a softmax, its logarithm or a gradient; see `distance` and `allowed_of_terms`."""
    return distance(result, exact, allowed_of_terms(exact, result.dtype, terms)).worst


def same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """True for the elements that are equal, or both nan."""
    return (one == other) | (one.isnan() & other.isnan())
