"""Compares a softmax with float64: rows like those of models, and memory around them."""

import torch

from portable_probe.closeness import Distance, Terms, allowed_of_terms, distance
from portable_probe.schema import Verified

GUARD = 16  # elements after each row that must stay as they are
PEAK, PEAK_OF_FLOAT64 = 200.0, 800.0  # exp of it is more than float32 holds, or float64
GOLDEN = (5**0.5 - 1) / 2  # its multiples, modulo 1, are spread evenly, however many there are


def guarded(values: torch.Tensor, gap: int = GUARD) -> torch.Tensor:
    """Copies a matrix into memory of its own, with `gap` elements between rows, GUARD behind the last, and nan in them."""
    n_rows, n_cols = values.shape
    memory = torch.full((n_rows * (n_cols + gap) + GUARD,), torch.nan, dtype=values.dtype, device=values.device)
    return memory.as_strided((n_rows, n_cols), (n_cols + gap, 1)).copy_(values)


def compared(result: torch.Tensor, exact: torch.Tensor, terms: Terms = 0.0) -> Verified:
    """Compares what a kernel wrote into memory of `guarded` with float64; see `allowed_of_terms`."""
    found = distance(result, exact, allowed_of_terms(exact, result.dtype, terms))
    whole = result.as_strided((result.untyped_storage().nbytes() // result.element_size(),), (1,), 0)
    around = torch.ones_like(whole, dtype=torch.bool)
    around.as_strided(result.shape, result.stride()).fill_(False)
    return outcome(found, int((~whole[around].isnan()).sum()))


def outcome(found: Distance, overwritten: int) -> Verified:
    """Returns what a report says: every element should be within the allowed error, and nothing else written."""
    right = found.worst <= 1 and not overwritten
    return Verified(max_error=found.error, worst=found.worst, overwritten=overwritten, right=right)


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
