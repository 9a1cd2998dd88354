"""Compares a softmax with float64: rows like those of models, memory around them, and the error that is allowed."""

from dataclasses import dataclass

import torch

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


def guarded(values: torch.Tensor, gap: int = GUARD) -> torch.Tensor:
    """Copies a matrix into memory of its own, with `gap` elements between rows, GUARD behind the last, and nan in them."""
    n_rows, n_cols = values.shape
    memory = torch.full((n_rows * (n_cols + gap) + GUARD,), torch.nan, dtype=values.dtype, device=values.device)
    return memory.as_strided((n_rows, n_cols), (n_cols + gap, 1)).copy_(values)


def compared(result: torch.Tensor, exact: torch.Tensor, terms: "torch.Tensor | float" = 0.0) -> Verification:
    """Compares what a kernel wrote into memory of `guarded` with float64.

    Args:
        result: a matrix of `guarded`.
        exact: what it should hold; nan is right where it is nan.
        terms: the size of what is added up, in the type that is computed in, if it may cancel.
    """
    found = result.double()
    allowed = allowed_error(exact.nan_to_num(0.0), result.dtype)
    if isinstance(terms, torch.Tensor):
        allowed = allowed + allowed_error(terms, torch.promote_types(result.dtype, torch.float32))
    error = torch.where((found == exact) | (found.isnan() & exact.isnan()), 0.0, (found - exact).abs())
    worst = (error / allowed).nan_to_num(nan=float("inf")).max().item()
    whole = result.as_strided((result.untyped_storage().nbytes() // result.element_size(),), (1,), 0)
    around = torch.ones_like(whole, dtype=torch.bool)
    around.as_strided(result.shape, result.stride()).fill_(False)
    return Verification(error.max().item(), worst, int((~whole[around].isnan()).sum()))


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
