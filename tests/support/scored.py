"""Calls of the kernels of scores, and cases of every step."""

from types import SimpleNamespace

import torch
from closeness import assert_close, with_terms

from portable_softmax.operators import launching, memory
from portable_softmax.operators.call import Asked, AskedGradient
from portable_softmax.planning.reading import as_read
from portable_softmax.planning.scores import Scores

INF = float("inf")


def expected(x, form, scores, mask=None, factor=None, sink=None, dim=-1):
    """Returns (the softmax of scores in float64, the size of its terms); factor and sink are numbers, or have 1 along dim."""
    steps = {"temperature" if scores.divides else "scale": factor, "softcap": scores.cap, "mask": mask, "causal": scores.causal}
    return with_terms(form, x, dim, sink=sink, masked_rows="zero" if scores.zero_rows else "nan", **steps)


def per_row(numbers, x, dim=-1):
    """Returns numbers that have 1 along dim as a kernel takes them: one of each row; numbers of Python as they are."""
    if not isinstance(numbers, torch.Tensor):
        return numbers
    shape = list(x.shape)
    shape[dim] = 1
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    return numbers.cpu().to(compute).expand(shape).contiguous().flatten().to(numbers.device)


def computed(x, form, scores, mask=None, factor=None, sink=None, dim=-1, dtype=None, invariant=False):
    """Returns the kernel's softmax of scores; arguments are those of `expected`."""
    asked = asked_of(x, scores, mask, factor, sink, dim, dtype)
    return launching.forward(form, asked, invariant)


def asked_of(x, scores, mask=None, factor=None, sink=None, dim=-1, dtype=None):
    """Returns what an operator is asked for; arguments are those of `expected`."""
    factors, number = (per_row(factor, x, dim), None) if isinstance(factor, torch.Tensor) else (None, factor)
    sinks = per_row(
        torch.full(x.sum(dim, keepdim=True).shape, sink, device=x.device) if isinstance(sink, float) else sink, x, dim
    )
    return Asked(x, dim, dtype, mask, factors, sinks, number, scores.divides, scores.cap, scores.causal, scores.zero_rows)


def computed_gradient(dy, y, form, scores, factor=None, dim=-1, dtype=torch.float32):
    """Returns the kernel's gradient of x, without the derivative of a cap."""
    factors, number = (per_row(factor, y, dim), None) if isinstance(factor, torch.Tensor) else (None, factor)
    asked = AskedGradient(
        dy, y, dim, dtype, factors, number, scores.divides, scores.mask, scores.causal, scores.sink, scores.zero_rows
    )
    return launching.backward(form, asked, False)


def random(*shape, where="cpu", dtype=torch.float32, seed=0, size=3.0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * size).to(where, dtype)


def some(*shape, where="cpu", seed=1, share=0.6):
    """Returns a boolean mask of which a share takes part."""
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share).to(where)


def added(*shape, where="cpu", dtype=torch.float32, seed=2):
    """Returns a mask to add, of numbers and -inf."""
    return random(*shape, seed=seed, size=2.0).masked_fill(~some(*shape, seed=seed), -INF).to(where, dtype)


def steps(batch, heads, rows, cols, where):
    """Returns arguments for `expected` and `computed` of each step, for x of these sizes, by name."""
    temperature = random(batch, heads, rows, 1, seed=5).abs() + 0.3
    temperature[0, 0, 0] = 0.0
    return {
        "scale": ({"factor": "number"}, {"factor": 0.37}),
        "scales": ({"factor": "rows"}, {"factor": random(batch, heads, rows, 1, seed=4).to(where)}),
        "temperature": ({"factor": "number", "divides": True}, {"factor": 0.7}),
        "temperatures": ({"factor": "rows", "divides": True}, {"factor": temperature.to(where)}),
        "cap": ({"cap": 2.5}, {}),
        "bool": ({"mask": "bool"}, {"mask": some(batch, 1, 1, cols, where=where)}),
        "added": ({"mask": "float32"}, {"mask": added(batch, 1, rows, cols, where=where)}),
        "upper left": ({"causal": "upper_left"}, {}),
        "lower right": ({"causal": "lower_right"}, {}),
        "sink": ({"sink": True}, {"sink": random(1, heads, 1, 1, seed=6).to(where)}),
        "zero rows": ({"zero_rows": True}, {}),
    }


def joined(*chosen):
    """Returns (Scores, arguments) of several steps together; None if they exclude each other."""
    fields, arguments = {}, {}
    for field, argument in chosen:
        if fields.keys() & field.keys() or arguments.keys() & argument.keys():
            return None
        fields |= field
        arguments |= argument
    return Scores(**fields), arguments


def choose(patch, tiling):
    """Makes all launches use a tiling, one program for each tile; forget the launches that are kept behind the test."""
    memory.forget()

    def plan(problem, device):
        read = as_read(problem, device)
        programs = read.tiles(tiling.tile_rows) * tiling.splits
        return SimpleNamespace(problem=read, tiling=tiling, num_programs=programs)

    patch.setattr("portable_softmax.runtime.launch.plan_problem", plan)


TOGETHER = {  # steps that meet in models; of temperatures, one is 0
    "boolean mask": ("scale", "bool"),
    "added mask": ("scales", "added"),
    "causal": ("scale", "lower right"),
    "temperatures": ("temperatures",),
    "sink": ("bool", "sink"),
    "all": ("temperatures", "cap", "added", "upper left", "sink", "zero rows"),
}


def compare(where, name, form, dtype, cols, check=assert_close):
    """Compares a case of TOGETHER on a device with float64, for 2 heads of 3 rows."""
    every = steps(1, 2, 3, cols, "cpu")
    scores, given = joined(*(every[each] for each in TOGETHER[name]))
    x = random(1, 2, 3, cols, dtype=dtype)
    result = computed(x.to(where), form, scores, *(on(where, given.get(each)) for each in ("mask", "factor", "sink")))
    check(result.cpu(), *expected(x, form, scores, **given))


def compare_gradient(where, name, form, dtype, cols, check=assert_close):
    """Does the same for the gradient: dy is random, and y the result in float64, rounded."""
    every = steps(1, 2, 3, cols, "cpu")
    scores, given = joined(*(every[each] for each in TOGETHER[name]))
    x, factor = random(1, 2, 3, cols), given.get("factor")
    dy, y = random(1, 2, 3, cols, seed=3, dtype=dtype), expected(x, form, scores, **given)[0].to(dtype)
    dx = computed_gradient(dy.to(where), y.to(where), form, scores, on(where, factor), dtype=dtype)
    check(dx.cpu(), *expected_gradient(form, dy, y, scores, factor))


def on(where, given):
    """Returns a tensor on a device; a number as it is."""
    return given.to(where) if isinstance(given, torch.Tensor) else given


def expected_gradient(form, dy, y, scores, factor=None):
    """Returns (the gradient of x but for the cap's derivative, in float64, the size of its terms); factor has 1 along rows."""
    d, p = dy.double(), y.double().exp() if form == "log_softmax" else y.double()
    weighed = d if form == "log_softmax" else d * p
    total, size = weighed.sum(-1, keepdim=True), weighed.abs().sum(-1, keepdim=True)
    exact = d - p * total if form == "log_softmax" else p * (d - total)
    terms = d.abs() + p * size if form == "log_softmax" else p * (d.abs() + size)
    if form == "log_softmax" and scores.hides:
        exact = exact.masked_fill(y == -INF, 0.0)
    exact = -exact if form == "softmin" else exact
    if factor is not None:
        given = torch.as_tensor(factor, dtype=torch.float64, device=y.device)
        exact = torch.where(given == 0, 0.0, exact / given) if scores.divides else exact * given
        terms = terms / given.abs().clamp_min(1e-3) if scores.divides else terms * given.abs()
    return exact, terms
