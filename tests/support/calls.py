"""Calls of public functions by name, in float64 too, and what they launch."""

import contextlib

import torch

from portable_softmax import log_softmax, softmax, token_log_probs
from portable_softmax.operators import launch
from portable_softmax.runtime import layout


def seen(call, dictionary, launched):
    """Returns results with a dictionary of launches, their types, their bits, and what was launched."""
    launched.clear()
    kept, launch.calls = launch.calls, dictionary
    try:
        ys = call()
    finally:
        launch.calls = kept
    return ys, [(y.dtype, y.shape, y.requires_grad) for y in ys], [y.detach().clone() for y in ys], list(launched)


def assert_same(seen, first):
    """Raises AssertionError unless (types, results, launches) are those of a first call, bit for bit."""
    (kinds, ys, launched), (first_kinds, first_ys, first_launched) = seen, first
    assert kinds == first_kinds, f"{kinds}, and at first {first_kinds}"
    assert launched == first_launched, f"launched {launched}, and first {first_launched}"
    for y, again in zip(ys, first_ys, strict=True):
        assert torch.equal(y.nan_to_num(7e37), again.nan_to_num(7e37)), "other bits than at first"


@contextlib.contextmanager
def recording(launched):
    """Makes a context in which launches are appended to a list: what they compute, and sizes."""
    bound = layout.Launch

    class Recorded(bound):
        def __init__(self, plan, *rest, sizes=None, **named):
            super().__init__(plan, *rest, sizes=sizes, **named)
            self.computed = plan.problem, sizes

        def __call__(self, *operands):
            launched.append(self.computed)
            super().__call__(*operands)

    layout.Launch = Recorded
    launch.calls.clear()
    try:
        yield
    finally:
        layout.Launch = bound


def results(function, x, dim, ids=None, **options):
    """Returns the results of a function, as a tuple."""
    if function == "log_probs":
        ys = token_log_probs(x, ids, dim=dim, **options)
        return ys if isinstance(ys, tuple) else (ys,)
    return ((softmax if function == "softmax" else log_softmax)(x, dim, **options),)


def in_double(function, x, dim, options):
    """Returns the results in float64, of an input that the result's type rounds first."""
    options = {n: o.double() if isinstance(o, torch.Tensor) and o.is_floating_point() else o for n, o in options.items()}
    rounded = options.pop("dtype", None)
    return results(function, (x.to(rounded) if rounded else x).double(), dim, **options)


def close(actual, exact, error, what):
    """Raises AssertionError unless results are close; float16 has no numbers beyond 65504."""
    actual, exact = actual.double(), exact.double()
    compared = (exact.abs() < 6e4) | exact.isnan()
    actual, exact = torch.where(compared, actual, 0.0), torch.where(compared, exact, 0.0)
    torch.testing.assert_close(actual, exact, rtol=error, atol=error, equal_nan=True, msg=lambda text: f"{what}: {text}")


def gradients_of(pairs, leaves):
    """Returns gradients of results, of which some need none; zeros for None."""
    used = [(y, dy) for y, dy in pairs if y.requires_grad]
    grads = torch.autograd.grad([y for y, _ in used], leaves, [dy for _, dy in used], allow_unused=True)
    return [torch.zeros_like(leaf) if dx is None else dx for dx, leaf in zip(grads, leaves, strict=True)]


def laid_out(x, layout):
    """Returns a tensor in a layout."""
    if layout == "transposed" and x.dim() > 1:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "unaligned":
        return torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)[1:].view(x.shape).copy_(x)
    return torch.stack([x, x], -1)[..., 0] if layout == "stepped" else x
