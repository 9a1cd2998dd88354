"""Launches with a tiling that a test chooses, and cases of options that meet in models, with the gradient of x."""

from types import SimpleNamespace

import torch
from calls import Call, normal, on
from closeness import INF, assert_close, expected, with_terms
from offline import read_widely

from portable_softmax.operators import launch
from portable_softmax.operators.softmax import launched_gradient


def choose(patch, tiling):
    """Makes all launches use a tiling, one program for each tile; forget the launches that are kept behind the test."""
    launch.calls.clear()

    def plan(problem, device):
        read = read_widely(problem, device)
        programs = read.tiles(tiling.tile_rows) * tiling.splits
        return SimpleNamespace(problem=read, tiling=tiling, num_programs=programs)

    patch.setattr("portable_softmax.runtime.launch.plan_problem", plan)


SCALE, BOOLEAN, ADDED = ("scale", "number"), ("mask", "one for the first dim"), ("mask", "added")
TOGETHER = {  # options that meet in models; of temperatures, some are 0
    "boolean mask": (SCALE, BOOLEAN),
    "added mask": (("scale", "rows"), ADDED),
    "causal": (SCALE, ("causal", "lower right")),
    "temperatures": (("temperature", "rows"),),
    "sink": (BOOLEAN, ("sink", "rows")),
    "all": (
        ("temperature", "rows"),
        ("softcap", "cap"),
        ADDED,
        ("causal", "upper left"),
        ("sink", "rows"),
        ("masked_rows", "zero"),
    ),
}


def compare(where, name, form, dtype, cols, check=assert_close):
    """Compares a case of TOGETHER on a device with float64, for 2 heads of 3 rows."""
    call = Call(form, (1, 2, 3, cols), dtype=dtype, ways=TOGETHER[name])
    check(call.run(where).cpu(), *with_terms(form, call.x(), **call.options()))


def compare_gradient(where, name, form, dtype, cols, check=assert_close):
    """Does the same for the gradient of x: dy is random, and y the result in float64, rounded."""
    call = Call(form, (1, 2, 3, cols), dtype=dtype, ways=TOGETHER[name])
    dy, given = normal(*call.shape, seed=3, dtype=dtype), call.options()
    y = expected(form, call.x(), **given).to(dtype)
    by = on(where, {name: given.get(name) for name in ("scale", "temperature")})
    voids = "causal" in given or "sink" in given or "masked_rows" in given or given.get("mask", y).dtype is torch.bool
    factors = call.x().to(where), by["scale"], by["temperature"], given.get("softcap")
    dx = launched_gradient(dy.to(where), y.to(where), factors, form == "log_softmax", 3, voids, dtype, False)
    check(dx.cpu(), *expected_gradient(form, dy, y, given, call.x()))


def expected_gradient(form, dy, y, given, x):
    """Returns (the gradient of x in float64, the size of its terms); numbers of rows have 1 along them."""
    d, p = dy.double(), y.double().exp() if form == "log_softmax" else y.double()
    weighed = d if form == "log_softmax" else d * p
    total, size = weighed.sum(-1, keepdim=True), weighed.abs().sum(-1, keepdim=True)
    exact = d - p * total if form == "log_softmax" else p * (d - total)
    terms = d.abs() + p * size if form == "log_softmax" else p * (d.abs() + size)
    if form == "log_softmax" and ("causal" in given or given.get("mask", y).dtype is torch.bool):
        exact = exact.masked_fill(y == -INF, 0.0)
    if {"scale", "temperature"} & given.keys():
        scale, t = (torch.as_tensor(given.get(name, 1.0), dtype=torch.float64) for name in ("scale", "temperature"))
        exact = torch.where(t == 0, 0.0, exact * scale / t)
        terms = terms * scale.abs() / t.abs().clamp_min(1e-3)
    if "softcap" in given:
        exact = exact * (1 - torch.tanh(x.double() * given.get("scale", 1.0) / given["softcap"]).square())
    return exact, terms
