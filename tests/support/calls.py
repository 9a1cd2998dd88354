"""Calls of softmax, log_softmax and softmin that hypothesis draws: any view, dim, type, values and options.

A call is compared with float64, in its result and in the gradients of all its tensors.
"""

import itertools
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from closeness import INF, assert_close, expected, with_terms
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from pairs import FLOATS, PAIRS, assert_like_torch

few = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
TOLERANCES = {torch.float32: (1e-4, 2e-5), torch.bfloat16: (1e-2, 1e-2), torch.float64: (1e-6, 1e-8)}  # of gradients


@pytest.fixture(params=["torch", pytest.param("kernel", marks=pytest.mark.kernel)])
def place(request):
    """The torch.device of a call that torch's operators compute, and of one that a kernel does."""
    return request.getfixturevalue("by_torch" if request.param == "torch" else "where")


def normal(*shape, seed=3, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


LAYOUTS = {  # of values: the same ones in other memory
    "contiguous": lambda x: x.contiguous(),
    "transposed": lambda x: x.permute(tuple(reversed(range(x.dim())))).contiguous().permute(tuple(reversed(range(x.dim())))),
    "padded": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]] if x.dim() else x,
    "every second": lambda x: torch.stack([x, x], -1)[..., 0],
    "unaligned": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
    "expanded": lambda x: x[:1].expand(x.shape) if x.dim() and x.shape[0] else x,
}


def _visible(*shape, seed=1):
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) > 0.4
    if mask.dim():
        mask[..., :1] = True
    return mask


def _temperatures(*shape):
    of = torch.tensor([0.0, 1e-30, 0.5, 1.0, -2.0, 1e30, -0.0])
    return of[torch.randint(len(of), shape, generator=torch.Generator().manual_seed(2))]


def _holes(*shape):
    return torch.where(_visible(*shape), normal(*shape, seed=4), -INF)


# Ways to give each option for an x of a shape, where `row` is that of one number for each row.
OPTIONS = {
    "scale": {"number": lambda shape, row: -0.3, "rows": lambda shape, row: normal(*row, seed=5)},
    "temperature": {
        "number": lambda shape, row: 0.7,
        "zero": lambda shape, row: 0.0,
        "rows": lambda shape, row: _temperatures(*row),
    },
    "mask": {
        "boolean": lambda shape, row: _visible(*shape),
        "one for the first dim": lambda shape, row: _visible(*(1 if at == 0 else size for at, size in enumerate(shape))),
        "added": lambda shape, row: LAYOUTS["transposed"](_holes(*shape)),
        "of bfloat16": lambda shape, row: LAYOUTS["every second"](normal(*shape[1:], seed=6, dtype=torch.bfloat16)),
    },
    "causal": {"upper left": lambda shape, row: True, "lower right": lambda shape, row: "lower_right"},
    "softcap": {"cap": lambda shape, row: 1.5},
    "sink": {"number": lambda shape, row: 0.5, "rows": lambda shape, row: normal(*row, seed=7) * 3},
    "masked_rows": {"zero": lambda shape, row: "zero"},
}
ALONE = [(name, way) for name, ways in OPTIONS.items() for way in ways]
TWO = [(a, b) for a, b in itertools.combinations(ALONE, 2) if a[0] != b[0]]


class Call(NamedTuple):
    """One call; the type of its result is that of x if `wanted` is None."""

    form: str = "softmax"
    shape: tuple[int, ...] = (2, 3, 4, 7)
    layout: str = "contiguous"
    dim: int = -1
    dtype: torch.dtype = torch.float32
    wanted: torch.dtype | None = None
    ways: tuple[tuple[str, str], ...] = ()
    special: tuple[tuple[int, float], ...] = ()

    @property
    def ours(self) -> Any:
        """Returns this package's function."""
        return PAIRS[self.form][0]

    def x(self, where="cpu") -> torch.Tensor:
        """Returns the input, on a device."""
        x = normal(*self.shape) * 2
        for at, value in self.special if x.numel() else ():
            x.view(-1)[at % x.numel()] = value
        x = x.to(self.dtype)
        return LAYOUTS[self.layout](x.to(where))

    def options(self, where="cpu") -> dict[str, Any]:
        """Returns what is given beside the input, the dim and the type, with tensors on a device."""
        row = [1 if at == self.dim % max(len(self.shape), 1) else size for at, size in enumerate(self.shape)]
        given = {name: OPTIONS[name][way](self.shape, row) for name, way in self.ways}
        return on(where, given)

    def run(self, where="cpu", **more) -> torch.Tensor:
        """Returns the result."""
        return self.ours(self.x(where), self.dim, self.wanted, **self.options(where), **more)

    def check(self, where) -> None:
        """Compares the result with float64, and a plain one with torch's type, strides and nan."""
        if not self.ways:
            return assert_like_torch(self.form, self.x(where), self.dim, self.wanted)
        y, x = self.run(where).cpu(), self.x().to(self.wanted or self.dtype)
        assert (y.dtype, y.shape, y.is_contiguous()) == (x.dtype, x.shape, True)
        assert_close(y, *with_terms(self.form, x, self.dim, **self.options()))
        assert self.form == "log_softmax" or not (y > 1).any()
        return None

    def check_gradients(self, where) -> None:
        """Compares the gradient of x, and of each floating tensor that is given, with those of float64."""
        x, given, dy = self.x(), milder(self.options()), normal(*self.shape, seed=8)
        found = gradients(self.ours, self.dim, x.to(where), on(where, given), dy.to(where))
        exact = gradients(partial(expected, self.form), self.dim, x.double(), given, dy.double())
        assert found.keys() == exact.keys()
        for name, each in exact.items():
            assert found[name].dtype == (x if name == "x" else given[name]).dtype
            rtol, atol = TOLERANCES[found[name].dtype]
            atol *= max(1.0, each.nan_to_num(0, 0, 0).abs().max().item() / 10)  # a row's number gathers those of the row
            told = partial("{}: {}".format, name)
            torch.testing.assert_close(found[name].cpu().double(), each, rtol=rtol, atol=atol, equal_nan=True, msg=told)


def on(where, given, dtype=None):
    """Returns the same options with their tensors on a device; floating ones of a type."""

    def moved(each):
        each = each.to(where) if isinstance(each, torch.Tensor) else each
        return each.to(dtype) if dtype and isinstance(each, torch.Tensor) and each.is_floating_point() else each

    return {name: moved(each) for name, each in given.items()}


def milder(given):
    """Returns the same with temperatures whose gradients float32 holds."""
    of = given.get("temperature")
    if not isinstance(of, torch.Tensor):
        return given
    extreme = (of.abs() == 1e30) | (of.abs() == torch.tensor(1e-30, device=of.device))
    return given | {"temperature": torch.where(extreme, 1.5, of)}


def gradients(function, dim, x, given, dy):
    """Returns the gradient of x, and of everything given that has one."""
    double = x.dtype == torch.float64
    leaves = {"x": x} | {n: each for n, each in given.items() if isinstance(each, torch.Tensor) and each.is_floating_point()}
    leaves = {name: (each.double() if double else each).detach().clone().requires_grad_() for name, each in leaves.items()}
    others = {name: each for name, each in given.items() if name not in leaves}
    y = function(leaves["x"], dim, **others, **{name: leaf for name, leaf in leaves.items() if name != "x"})
    return dict(zip(leaves, torch.autograd.grad(y, [*leaves.values()], dy.to(y.dtype)), strict=True))


@st.composite
def calls(draw, plain=True, scored=True, shapes=None, dtypes=FLOATS, special=True):
    """Draws a Call, plain or with any options, or only the one or the other."""
    shape = tuple(draw(st.lists(st.integers(0, 3) | st.integers(1, 20), max_size=4) if shapes is None else shapes))
    dim = draw(st.integers(-max(len(shape), 1), max(len(shape), 1) - 1))
    options = []
    if scored and shape:
        names = st.lists(st.sampled_from([*OPTIONS]), min_size=0 if plain else 1, unique=True)
        allowed = [name for name in draw(names) if name != "causal" or (len(shape) > 1 and dim in (-1, len(shape) - 1))]
        options = [(name, draw(st.sampled_from([*OPTIONS[name]]))) for name in sorted(allowed)]
        options = options or ([] if plain else [("softcap", "cap")])
    value = st.sampled_from([0.0, 1.0, -1.0, 5.0, -80.0, 80.0, 1e4, INF, -INF, float("nan")])
    values = draw(st.lists(st.tuples(st.integers(0, 10**6), value), max_size=5)) if special else ()
    dtype, wanted = draw(st.sampled_from(dtypes)), draw(st.sampled_from([None, None, *dtypes]))
    form, layout = draw(st.sampled_from(sorted(PAIRS))), draw(st.sampled_from([*LAYOUTS]))
    return Call(form, shape, layout, dim, dtype, wanted, tuple(options), tuple(values))


def names(ways):
    """Returns a test's name for options that are given."""
    return "-".join(f"{name}:{way}".replace(" ", "_") for name, way in ways)
