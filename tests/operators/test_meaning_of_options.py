"""Meaning of scale, temperature, mask, causal, softcap, sink and masked rows at their ends; test_calls.py has any of them."""

import pytest
import torch
from calls import gradients as gradients_of
from calls import normal, on, place
from closeness import INF, expected
from pairs import PAIRS

from portable_softmax import log_softmax, softmax

__all__ = ["place"]
NAN = float("nan")
LIKE_1 = torch.tensor([[0.0, 1.0, 2.0, -3.0]])
EXTREME = {  # numbers and rows at the ends of what a type holds: (x, what is given)
    "nan beside -inf": (torch.tensor([[NAN, -INF]]), {"masked_rows": "zero"}),
    "nan beside what a mask hides": (torch.tensor([[NAN, 1.0]]), {"mask": torch.tensor([True, False]), "sink": 0.0}),
    "nan alone in a causal row": (torch.tensor([[NAN, 1.0, 2.0]] * 3), {"causal": True, "sink": 0.0}),
    "a hidden nan": (torch.tensor([[NAN, 1.0]]), {"mask": torch.tensor([False, False]), "masked_rows": "zero"}),
    "a quotient too large": (LIKE_1, {"scale": 1e-3, "temperature": 1e38}),
    "a quotient too small": (LIKE_1, {"scale": 1e30, "temperature": 1e-30}),
    "a scale of inf by a temperature": (LIKE_1, {"scale": INF, "temperature": 2.0}),
    "scales of inf by temperatures": (LIKE_1, {"scale": torch.tensor([[-INF]]), "temperature": torch.tensor([[2.0]])}),
    "a scale of inf by temperatures": (LIKE_1, {"scale": INF, "temperature": torch.tensor([[2.0]])}),
    "a temperature without an inverse": (LIKE_1 * 1e-39, {"temperature": 1e-39}),
    "a negative one": (LIKE_1 * 1e-39, {"temperature": -1e-39, "mask": LIKE_1, "softcap": 2.0}),
    "one of bfloat16": ((LIKE_1 * 1e-39).bfloat16(), {"temperature": 1e-39}),
    "one of float16": ((LIKE_1 * 1e-7).half(), {"temperature": 1e-39}),
    "a double without an inverse": (LIKE_1.double() * 1e-309, {"temperature": 1e-309}),
    "a cap without an inverse": (LIKE_1, {"softcap": 1e-40}),
    "a cap of 0 in float32": (LIKE_1, {"softcap": 1e-60}),
    "a double cap without an inverse": (LIKE_1.double(), {"softcap": 1e-310}),
    "a scale too large for a float": (LIKE_1, {"scale": -(10**400)}),
    "a temperature too large for a float": (LIKE_1, {"temperature": 10**400}),
    "a sink too large for a float": (LIKE_1, {"sink": -(10**400)}),
}


@pytest.mark.parametrize(("x", "given"), EXTREME.values(), ids=EXTREME)
def test_extreme_numbers(place, form, x, given):
    """A number too large for a float is an infinity."""
    result = PAIRS[form][0](x.to(place), **on(place, given)).cpu()
    given = {name: each // 10**399 * INF if isinstance(each, int) and abs(each) > 1 else each for name, each in given.items()}
    exact = expected(form, x, **given).to(result.dtype)
    torch.testing.assert_close(result, exact, equal_nan=True, rtol=1e-5, atol=1e-6)


GREEDY = {
    "the largest": ([1.0, 3.0, 2.0], {}, [0, 1, 0]),
    "equals": ([3.0, 3.0, 2.0], {}, [0.5, 0.5, 0]),
    "of what a mask leaves": ([1.0, 3.0, 2.0], {"mask": torch.tensor([True, False, True])}, [0, 0, 1]),
    "of what -inf leaves": ([1.0, 3.0, 2.0], {"mask": torch.tensor([9.0, -INF, 0.0])}, [0, 0, 1]),
    "whatever is added": ([1.0, 3.0, 2.0], {"mask": torch.tensor([1e9, 0.0, 0.0])}, [0, 1, 0]),
    "whatever the cap": ([1e9, 2e9, 1e9], {"softcap": 1.0}, [0, 1, 0]),
    "whatever the sink": ([1.0, 3.0, 2.0], {"sink": 99.0}, [0, 1, 0]),
    "of a negative scale": ([1.0, 3.0, 2.0], {"scale": -2.0}, [1, 0, 0]),
    "of negative scales": ([1.0, 3.0, 2.0], {"scale": torch.tensor([[-2.0]])}, [1, 0, 0]),
    "of a scale of 0": ([1.0, 3.0, 2.0], {"scale": 0.0}, [1 / 3] * 3),
    "of scales of 0": ([1.0, 3.0, 2.0], {"scale": torch.tensor([[0.0]])}, [1 / 3] * 3),
    "nan": ([1.0, NAN, 2.0], {}, [NAN] * 3),
    "nan that is hidden": ([1.0, NAN, 2.0], {"mask": torch.tensor([True, False, True])}, [0, 0, 1]),
    "-inf alone": ([-INF] * 3, {}, [NAN] * 3),
    "+inf": ([1.0, INF, 2.0], {}, [NAN] * 3),
    "nothing": ([1.0, 3.0, 2.0], {"mask": torch.tensor([False] * 3)}, [NAN] * 3),
    "nothing, of zeros": ([1.0, 3.0, 2.0], {"mask": torch.tensor([False] * 3), "masked_rows": "zero"}, [0, 0, 0]),
    "nothing but a sink": ([1.0, 3.0, 2.0], {"mask": torch.tensor([False] * 3), "sink": 1.0}, [0, 0, 0]),
}


@pytest.mark.parametrize(("x", "given", "exact"), GREEDY.values(), ids=GREEDY)
def test_greedy_rows(place, x, given, exact):
    given, x = on(place, given), torch.tensor([x], device=place)
    for temperature in (0, -0.0, torch.tensor([[0.0]], device=place), torch.tensor([[-0.0]], device=place)):
        leaf = x.clone().requires_grad_()
        y = softmax(leaf, **given, temperature=temperature)
        assert torch.equal(y.nan_to_num(7).cpu(), torch.tensor([exact]).float().nan_to_num(7))
        y.square().sum().backward()
        assert not leaf.grad.nan_to_num(0).any()
        torch.testing.assert_close(log_softmax(x, **given, temperature=temperature), y.detach().log(), equal_nan=True)


MASKS = {
    "boolean": torch.arange(3).view(3, 1).expand(3, 5) != 1,
    "added": torch.where(torch.arange(3).view(3, 1).expand(3, 5) != 1, 0.0, -INF),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("temperature", [None, 0.5, 0.0])
def test_rows_that_are_masked_wholly(place, mask, temperature):
    """They are nan as torch has it, or 0 with gradients of 0 if asked; other rows are as ever, and a sink has theirs."""
    x = normal(2, 3, 5).to(place)
    x[0, 1, 2] = NAN if mask.dtype == torch.bool else 0.0
    sink = torch.zeros(2, device=place, requires_grad=True)
    given = {"mask": mask.to(place), "temperature": temperature}
    for more, number in (({}, NAN), ({"masked_rows": "zero"}, 0.0), ({"sink": sink}, 0.0)):
        for function in (softmax, log_softmax):
            leaf, sink.grad = x.clone().requires_grad_(), None
            y = function(leaf, **given, **more)
            y.nan_to_num(0, 0, 0)[:, 1 if more else 0 :].backward(torch.ones_like(y[:, 1 if more else 0 :]))
            nothing = number - INF if function is log_softmax and number == 0 else number
            assert torch.equal(y[:, 1].nan_to_num(7, 8, 9), torch.full_like(y[:, 1], nothing).nan_to_num(7, 8, 9))
            assert number != 0 or not leaf.grad[:, 1].any()
            assert y[:, ::2].exp().sum().isfinite()
            assert leaf.grad[:, ::2].isfinite().all()
            assert "sink" not in more or bool(sink.grad.any()) == (temperature != 0.0)


@pytest.mark.parametrize("given", [{"causal": "lower_right"}, {}], ids=["causal", "of -inf"])
def test_rows_that_nothing_but_a_mask_hides(place, given):
    x = normal(4, 2).to(place) if given else torch.tensor([[-INF] * 2] * 2 + [[0.0, -INF]] * 2, device=place)
    leaf = x.clone().requires_grad_()
    y = softmax(leaf, masked_rows="zero", **given)
    torch.testing.assert_close(y.sum(1), torch.tensor([0.0, 0, 1, 1], device=place))
    y.sum().backward()
    torch.testing.assert_close(leaf.grad, torch.zeros_like(leaf), atol=1e-6, rtol=0)
    assert softmax(x, **given)[:2].isnan().all()


@pytest.mark.parametrize("causal", [False, True])
def test_what_is_hidden_has_no_influence(place, causal):
    """Numbers that are nan or inf in hidden places change no result and no gradient."""
    mask = torch.rand(4, 5, generator=torch.Generator().manual_seed(1)) > 0.4
    mask[:, 0] = True
    hidden = ~mask | (torch.ones(4, 5).triu(2) > 0 if causal else False)
    given = {
        "temperature": torch.tensor([[0.0], [1.0], [-2.0], [0.5]]), "scale": torch.tensor([[2.0]]), "mask": mask,
        "softcap": 2.0, "sink": torch.ones(4, 1),
    } | ({"causal": "lower_right"} if causal else {})  # fmt: skip
    x, dy = normal(4, 5), normal(4, 5, seed=8).masked_fill(hidden, 0).to(place)
    worst = torch.where(hidden, torch.tensor([NAN, INF, -INF, NAN, INF]), x)
    for function in (softmax, log_softmax):
        found, exact = (
            gradients_of(function, -1, each.to(place), on(place, given), dy) for each in (worst, x.masked_fill(hidden, 0.0))
        )
        for name, each in exact.items():
            assert each.isfinite().all()
            assert torch.equal(found[name], each), name
        assert not found["x"].cpu()[hidden].any()


def test_rows_masked_wholly_have_torchs_gradient(place, form):
    """Their results are nan, gradients 0: so a loss that leaves these rows out can be learned."""
    x, mask = normal(4, 40).to(place).requires_grad_(), (normal(4, 40, seed=4) > 0).to(place)
    mask[1:3] = False
    dy = normal(4, 40, seed=5).to(place)
    dy[1] = 0.0
    y = PAIRS[form][0](x, mask=mask, temperature=0.5)
    assert y[1:3].isnan().all()
    theirs = torch.log_softmax if form == "log_softmax" else torch.softmax
    (exact,) = torch.autograd.grad(theirs((x / 0.5).masked_fill(~mask, -INF), -1), x, dy)
    torch.testing.assert_close(torch.autograd.grad(y, x, dy)[0], exact)


def test_nan_of_a_factor_is_that_of_its_row_alone(place):
    x, mask = normal(3, 4).to(place), torch.arange(4, device=place) < 3
    for name in ("scale", "temperature"):
        y = softmax(x, mask=mask, **{name: torch.tensor([[1.0], [NAN], [-1.0]], device=place)})
        assert y[1].isnan().all()
        torch.testing.assert_close(y[2], softmax(-x[2], mask=mask))


def test_no_probability_exceeds_1(place):
    """The quotient is rounded before its maximum is subtracted."""
    assert softmax(normal(64, 33).to(place) * 1e4, temperature=normal(64, 1).abs().to(place) * 1e-3).max() <= 1


def test_gradients_of_scales_beside_a_temperature(by_torch):
    """A scale of 0 has one too, and -inf that a mask hides leaves all finite."""
    x, dy, mask = normal(4, 5), normal(4, 5, seed=4), torch.arange(5) < 4
    given = {"scale": torch.tensor([[0.0], [-0.5], [2.0], [-0.0]]), "temperature": torch.full((4, 1), 0.7), "mask": mask}
    found = gradients_of(softmax, -1, x, given, dy)["scale"]
    exact = gradients_of(lambda x, dim, **given: expected("softmax", x, dim, **given), -1, x.double(), given, dy.double())
    torch.testing.assert_close(found.double(), exact["scale"], rtol=1e-4, atol=1e-5)
    x[:, 4] = -INF
    torch.testing.assert_close(gradients_of(softmax, -1, x, given, dy)["scale"][1:3], found[1:3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_that_float32_does_not_hold(place, dtype):
    x = normal(2, 3, dtype=dtype).to(place)
    torch.testing.assert_close(softmax(x, temperature=1e300), torch.full_like(x, 1 / 3))
    torch.testing.assert_close(softmax(x, scale=1e-300), torch.full_like(x, 1 / 3))


def test_numbers_of_no_dim_and_integers(place, form):
    given = torch.tensor(3.0, device=place)
    exact = expected(form, given.view(1), sink=3.0).item()
    assert PAIRS[form][0](given, sink=3.0).item() == pytest.approx(exact)
    y = softmax(torch.tensor([[1, 5, 5]], device=place), dtype=torch.float32, temperature=0)
    assert torch.equal(y.cpu(), torch.tensor([[0, 0.5, 0.5]]))
