"""Calls of public functions by name, in float64 too, and what they launch."""

import contextlib

import torch

from portable_softmax import log_softmax, softmax, token_log_probs
from portable_softmax.operators import launch


@contextlib.contextmanager
def recording(launched):
    """Makes a context in which launches are appended to a list: what they compute, and sizes."""
    bind = launch.bind

    def bound(plan, kernels, where, sizes):
        run = bind(plan, kernels, where, sizes)
        return lambda *operands: (launched.append((plan.problem, sizes)), run(*operands))

    launch.bind = bound
    launch.calls.clear()
    try:
        yield
    finally:
        launch.bind = bind


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
