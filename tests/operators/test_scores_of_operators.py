"""Scale, temperature, mask, causal, softcap, sink and masked rows: alone, and any two together, against float64."""

import itertools

import pytest
import torch
from pairs import PAIRS
from scores_reference import ALONE, INF, TWO, names, on, reference, together

from portable_softmax import batch_invariant, log_softmax, softmax, softmin

SHAPE = 2, 3, 4, 7
NAN = float("nan")
FORMS = tuple(PAIRS)
TABLE = [(each,) for each in ALONE] + TWO
IN_TURN = list(zip(TABLE[::6], itertools.cycle(FORMS)))


def random(*shape, seed=3):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2


def assert_right(device, form, ways, dtype=torch.float32):
    given = together(ways, SHAPE)
    x = random(*SHAPE).to(dtype)
    x[0, 0, 0, :3] = torch.tensor([1.0, 1.0, -INF])
    result = PAIRS[form][0](x.to(device), **on(device, given)).cpu()
    expected = reference(form, x, **given)
    assert result.dtype == dtype
    assert result.is_contiguous()
    tolerance = {"rtol": 2e-5, "atol": 2e-6} if dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-3}
    torch.testing.assert_close(result.double(), expected.to(dtype).double(), equal_nan=True, **tolerance)
    if form != "log_softmax":
        assert result.nan_to_num(0).max() <= 1


def milder(given):
    """The same with temperatures whose gradients float32 holds."""
    temperature = given.get("temperature")
    if not isinstance(temperature, torch.Tensor):
        return given
    extreme = (temperature.abs() == 1e30) | (temperature.abs() == torch.tensor(1e-30))
    return given | {"temperature": torch.where(extreme, 1.5, temperature)}


def gradients(function, x, given, dy, dtype):
    """The gradient of x, and of everything given that has one."""
    leaves = {"x": x.to(dtype)} | {
        name: each.to(dtype) if dtype == torch.float64 else each.clone()
        for name, each in given.items()
        if isinstance(each, torch.Tensor) and each.is_floating_point()
    }
    leaves = {name: leaf.detach().requires_grad_() for name, leaf in leaves.items()}
    numbers = {name: each for name, each in given.items() if name not in leaves}
    y = function(leaves["x"], **numbers, **{name: leaf for name, leaf in leaves.items() if name != "x"})
    return dict(zip(leaves, torch.autograd.grad(y, list(leaves.values()), dy.to(y.dtype)), strict=True))


def assert_right_gradients(device, form, ways):
    given, x, dy = milder(together(ways, SHAPE)), random(*SHAPE), random(*SHAPE, seed=4)
    found = gradients(PAIRS[form][0], x.to(device), on(device, given), dy.to(device), torch.float32)
    expected = gradients(lambda x, **given: reference(form, x, **given), x, given, dy, torch.float64)
    for name, each in expected.items():
        loose = found[name].dtype == torch.bfloat16
        tolerance = {"rtol": 1e-2, "atol": 1e-2} if loose else {"rtol": 1e-4, "atol": 2e-5}
        torch.testing.assert_close(found[name].cpu().double(), each, msg=lambda text, name=name: f"{name}: {text}", **tolerance)


@pytest.mark.parametrize("ways", TABLE, ids=names)
def test_by_torch(by_torch, form, ways):
    assert_right(by_torch, form, ways)
    assert_right_gradients(by_torch, form, ways)


@pytest.mark.kernel
@pytest.mark.parametrize(("ways", "form"), IN_TURN, ids=lambda each: each if isinstance(each, str) else names(each))
def test_by_the_kernel(where, form, ways):
    assert_right(where, form, ways)
    assert_right_gradients(where, form, ways)


@pytest.mark.kernel
@pytest.mark.slow
@pytest.mark.parametrize("ways", TABLE, ids=names)
def test_the_whole_table_by_the_kernel(where, form, ways):
    assert_right(where, form, ways)
    assert_right_gradients(where, form, ways)


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


def assert_extreme(device, form, x, given):
    """Compares with float64, for which a number too large for a float is an infinity."""
    result = PAIRS[form][0](x.to(device), **on(device, given)).cpu()
    given = {name: each // 10**399 * INF if isinstance(each, int) and abs(each) > 1 else each for name, each in given.items()}
    expected = reference(form, x, **given).to(result.dtype)
    torch.testing.assert_close(result, expected, equal_nan=True, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("x", "given"), EXTREME.values(), ids=EXTREME)
def test_extreme_numbers(by_torch, form, x, given):
    assert_extreme(by_torch, form, x, given)


@pytest.mark.kernel
@pytest.mark.parametrize(("x", "given"), EXTREME.values(), ids=EXTREME)
def test_extreme_numbers_by_the_kernel(where, form, x, given):
    assert_extreme(where, form, x, given)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_types_by_torch(by_torch, form, dtype):
    for ways in TABLE[::5]:
        if dtype != torch.float16 or "added" not in str(ways):
            assert_right(by_torch, form, ways, dtype)


def test_other_dims(by_torch, form):
    x = random(3, 5, 4)
    given = {"temperature": random(3, 1, 4).abs(), "mask": random(5, 4) > -1, "sink": random(1, 1, 4), "softcap": 2.0}
    torch.testing.assert_close(PAIRS[form][0](x, 1, **given).double(), reference(form, x, 1, **given), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(PAIRS[form][0](x, -2, torch.float64, scale=2.0), reference(form, x, 1, scale=2.0))


def test_numbers_and_empty_tensors(by_torch, form):
    ours = PAIRS[form][0]
    assert ours(torch.tensor(3.0), sink=3.0).item() == pytest.approx(reference(form, torch.tensor([3.0]), sink=3.0).item())
    for shape in ((0, 4), (3, 0)):
        x = torch.zeros(shape, requires_grad=True)
        y = ours(x, scale=2.0, temperature=torch.ones(shape[0], 1), causal=True, sink=0.0)
        y.sum().backward()
        assert y.shape == x.grad.shape == shape
    integers = torch.tensor([[1, 5, 5]])
    assert torch.equal(softmax(integers, dtype=torch.float32, temperature=0), torch.tensor([[0, 0.5, 0.5]]))


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


def assert_greedy(device, x, given, expected):
    given, x = on(device, given), torch.tensor([x], device=device)
    for temperature in (0, -0.0, torch.tensor([[0.0]]), torch.tensor([[-0.0]])):
        each = {"temperature": temperature.to(device) if isinstance(temperature, torch.Tensor) else temperature}
        leaf = x.clone().requires_grad_()
        y = softmax(leaf, **given, **each)
        assert torch.equal(y.nan_to_num(7).cpu(), torch.tensor([expected]).float().nan_to_num(7))
        y.square().sum().backward()
        assert not leaf.grad.nan_to_num(0).any()
        logarithm = log_softmax(x, **given, **each)
        torch.testing.assert_close(logarithm, y.detach().log(), equal_nan=True)


@pytest.mark.parametrize(("x", "given", "expected"), GREEDY.values(), ids=GREEDY)
def test_greedy_rows(by_torch, x, given, expected):
    assert_greedy(by_torch, x, given, expected)


@pytest.mark.kernel
@pytest.mark.parametrize(("x", "given", "expected"), GREEDY.values(), ids=GREEDY)
def test_greedy_rows_by_the_kernel(where, x, given, expected):
    assert_greedy(where, x, given, expected)


def assert_masked_rows(device, given):
    """Row 1 is wholly masked: nan as torch has it, or 0 and gradients of 0, and other rows are as ever."""
    x = random(2, 3, 5).to(device)
    x[0, 1, 2] = NAN if given["mask"].dtype == torch.bool else 0.0
    given = on(device, given)
    for more, number in (({}, NAN), ({"masked_rows": "zero"}, 0.0), ({"sink": torch.zeros(2, device=device)}, 0.0)):
        for function in (softmax, log_softmax):
            leaf = x.clone().requires_grad_()
            y = function(leaf, **given, **more)
            y.nan_to_num(0, 0, 0).backward(torch.ones_like(y))
            nothing = number - INF if function is log_softmax and number == 0 else number
            assert torch.equal(y[:, 1].nan_to_num(7, 8, 9), torch.full_like(y[:, 1], nothing).nan_to_num(7, 8, 9))
            assert number != 0 or not leaf.grad[:, 1].any()
            assert y[:, ::2].exp().sum().isfinite()
            assert leaf.grad[:, ::2].isfinite().all()


MASKS = {
    "boolean": torch.arange(3).view(3, 1).expand(3, 5) != 1,
    "added": torch.where(torch.arange(3).view(3, 1).expand(3, 5) != 1, 0.0, -INF),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("temperature", [None, 0.5, 0.0])
def test_masked_rows(by_torch, mask, temperature):
    assert_masked_rows(by_torch, {"mask": mask, "temperature": temperature})


@pytest.mark.kernel
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("temperature", [None, 0.0])
def test_masked_rows_by_the_kernel(where, mask, temperature):
    assert_masked_rows(where, {"mask": mask, "temperature": temperature})


def test_sinks_of_wholly_masked_rows_have_no_gradient(by_torch):
    for function in (softmax, log_softmax):
        sink = torch.ones(3, 1, requires_grad=True)
        function(random(3, 5), mask=MASKS["boolean"], sink=sink).backward(torch.ones(3, 5))
        assert [bool(each) for each in sink.grad] == [True, False, True]


def assert_hidden_has_no_influence(device, causal):
    """nan and inf in hidden places change no result and no gradient."""
    mask = torch.rand(4, 5, generator=torch.Generator().manual_seed(1)) > 0.4
    mask[:, 0] = True
    hidden = ~mask | (torch.ones(4, 5).triu(2) > 0 if causal else False)
    given = {
        "temperature": torch.tensor([[0.0], [1.0], [-2.0], [0.5]]), "scale": torch.tensor([[2.0]]), "mask": mask,
        "softcap": 2.0, "sink": torch.ones(4, 1),
    } | ({"causal": "lower_right"} if causal else {})  # fmt: skip
    x = random(4, 5)
    for function in (softmax, log_softmax):
        dy = random(4, 5, seed=8).masked_fill(hidden, 0).to(device)
        worst = torch.where(hidden, torch.tensor([NAN, INF, -INF, NAN, INF]), x)
        found = gradients(function, worst.to(device), on(device, given), dy, torch.float32)
        expected = gradients(function, torch.where(hidden, 0.0, x).to(device), on(device, given), dy, torch.float32)
        for name, each in expected.items():
            assert each.isfinite().all()
            assert torch.equal(found[name], each), name
        assert not found["x"].cpu()[hidden].any()


@pytest.mark.parametrize("causal", [False, True])
def test_what_is_hidden_has_no_influence(by_torch, causal):
    assert_hidden_has_no_influence(by_torch, causal)


@pytest.mark.kernel
@pytest.mark.parametrize("causal", [False, True])
def test_what_is_hidden_has_no_influence_by_the_kernel(where, causal):
    assert_hidden_has_no_influence(where, causal)


def test_rows_that_causal_masks_wholly(by_torch):
    y = softmax(random(4, 2), causal="lower_right", masked_rows="zero")
    torch.testing.assert_close(y.sum(1), torch.tensor([0.0, 0, 1, 1]))
    assert softmax(random(4, 2), causal="lower_right")[:2].isnan().all()


def assert_rows_masked_wholly_have_torchs_gradient(where):
    """Results of such rows are nan, gradients 0: so a loss that leaves these rows out can be learned."""
    x, mask = random(4, 40).to(where).requires_grad_(), (random(4, 40, seed=3) > 0).to(where)
    mask[1:3] = False
    dy = random(4, 40, seed=4).to(where)
    dy[1] = 0.0
    for ours, torchs in (
        (softmax, torch.softmax),
        (log_softmax, torch.log_softmax),
        (softmin, lambda x, dim: torch.softmax(x, dim)),
    ):
        sign = -1 if ours is softmin else 1
        y = ours(x, mask=mask, temperature=0.5)
        assert y[1:3].isnan().all()
        (expected,) = torch.autograd.grad(torchs((sign * x / 0.5).masked_fill(~mask, -INF), -1), x, dy)
        torch.testing.assert_close(torch.autograd.grad(y, x, dy)[0], expected)
    y = softmax(x[:, :2], causal="lower_right")
    assert y[:2].isnan().all()
    assert not torch.autograd.grad(y, x, torch.ones_like(y))[0].isnan().any()


def test_rows_masked_wholly_have_torchs_gradient(by_torch):
    assert_rows_masked_wholly_have_torchs_gradient(by_torch)


@pytest.mark.kernel
def test_rows_masked_wholly_have_torchs_gradient_by_the_kernel(where):
    assert_rows_masked_wholly_have_torchs_gradient(where)


def test_rows_that_are_all_minus_infinity_count_as_masked(by_torch):
    x = torch.tensor([[-INF, -INF], [0.0, -INF]], requires_grad=True)
    y = softmax(x, masked_rows="zero")
    assert torch.equal(y, torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    y.sum().backward()
    assert not x.grad.any()


def test_nan_of_a_factor_is_that_of_its_row_alone(by_torch):
    x, mask = random(3, 4), torch.arange(4) < 3
    for name in ("scale", "temperature"):
        y = softmax(x, mask=mask, **{name: torch.tensor([[1.0], [NAN], [-1.0]])})
        assert y[1].isnan().all()
        torch.testing.assert_close(y[2], softmax(-x[2], mask=mask))


def test_no_probability_exceeds_1(by_torch):
    """The quotient is rounded before its maximum is subtracted."""
    y = softmax(random(64, 33) * 1e4, temperature=random(64, 1).abs() * 1e-3)
    assert y.max() <= 1


def test_gradients_of_scales_beside_a_temperature(by_torch):
    """A scale of 0 has one too, and -inf that a mask hides leaves all finite."""
    x, dy, mask = random(4, 5), random(4, 5, seed=4), torch.arange(5) < 4
    x[:, 4] = -INF
    found = []
    for function, dtype in ((softmax, torch.float32), (lambda x, **given: reference("softmax", x, **given), torch.float64)):
        scale = torch.tensor([[0.0], [-0.5], [2.0], [-0.0]], dtype=dtype, requires_grad=True)
        given = {"temperature": torch.full((4, 1), 0.7, dtype=dtype)}
        y = function(x.nan_to_num(neginf=0).to(dtype), scale=scale, mask=mask, **given)
        found.append(torch.autograd.grad(y, scale, dy.to(y.dtype))[0].double())
        if dtype == torch.float32:
            hidden = torch.autograd.grad(function(x, scale=scale, mask=mask, **given), scale, dy)[0]
            torch.testing.assert_close(hidden[1:3].double(), found[0][1:3])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_that_float32_does_not_hold(by_torch, dtype):
    x = random(2, 3).to(dtype)
    torch.testing.assert_close(softmax(x, temperature=1e300), torch.full_like(x, 1 / 3))
    torch.testing.assert_close(softmax(x, scale=1e-300), torch.full_like(x, 1 / 3))
    if dtype == torch.float32:
        with pytest.raises(ValueError, match="'softcap' must be positive and finite, not 1e\\+300"):
            softmax(x, softcap=1e300)


@pytest.mark.kernel
def test_rows_are_batch_invariant(where):
    """A row alone has the bits that it has among others."""
    x, t = random(9, 3000).to(where), random(9, 1, seed=5).abs().to(where)
    with batch_invariant():
        whole = softmax(x, temperature=t, softcap=9.0)
        for row in (0, 4, 8):
            assert torch.equal(softmax(x[row : row + 1], temperature=t[row : row + 1], softcap=9.0), whole[row : row + 1])
