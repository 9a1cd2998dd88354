"""The softmax of scores, and its gradient, against float64: every step, hostile masks, temperatures and sinks, odd layouts."""

import dataclasses
import functools

import msgspec
import pytest
import torch
from closeness import assert_close
from faults import publish_by
from scored import INF, added, choose, computed, computed_gradient, expected, expected_gradient, joined, random, some, steps
from shared_rows import assert_same
from tilings import TILINGS
from together import Together

from portable_softmax.devices.policy import Polls
from portable_softmax.operators import memory
from portable_softmax.planning.scores import Scores
from portable_softmax.runtime.kernel_form import constexprs_of, kernel_of

pytestmark = pytest.mark.kernel
NAN = float("nan")


def check(x, form, scores, dim=-1, invariant=False, **given):
    """Compares with float64, and returns the result."""
    result = computed(x, form, scores, dim=dim, invariant=invariant, **given)
    exact, terms = expected(x, form, scores, dim=dim, **given)
    assert result.shape == x.shape
    assert result.is_contiguous()
    assert_close(result, exact, terms)
    return result


@pytest.fixture
def planned(monkeypatch, device):
    """planned(tiling) makes all launches use a tiling, one program for each tile."""

    yield functools.partial(choose, monkeypatch)
    memory.forget()


@pytest.mark.parametrize("name", steps(1, 1, 1, 1, "cpu"))
@pytest.mark.parametrize(
    ("form", "dtype"),
    [("softmax", torch.float16), ("log_softmax", torch.bfloat16), ("softmin", torch.float32), ("log_softmax", torch.float64)],
    ids=str,
)
def test_each_step(where, form, name, dtype):
    scores, given = joined(steps(2, 1, 3, 40, where)[name])
    check(random(2, 1, 3, 40, where=where, dtype=dtype), form, scores, **given)


def test_all_steps_at_once(where, form):
    x = random(2, 3, 5, 33, where=where)
    scores = Scores(factor="rows", divides=True, cap=2.0, mask="bool", causal="lower_right", sink=True, zero_rows=True)
    given = steps(2, 3, 5, 33, where)
    check(x, form, scores, mask=given["bool"][1]["mask"], **given["temperatures"][1], **given["sink"][1])


HOSTILE = {  # columns of x that take part, of 45
    "none": slice(0, 0),
    "the first": slice(0, 1),
    "the last": slice(44, 45),
    "one inside": slice(20, 21),
    "the first split": slice(0, 16),
    "all but the first split": slice(16, 45),
    "a split in the middle": slice(16, 32),
    "all": slice(0, 45),
}


@pytest.mark.each_value
@pytest.mark.parametrize("name", TILINGS)
@pytest.mark.parametrize("more", ["alone", "added", "sink", "zero rows", "temperatures"])
def test_hostile_masks_in_every_strategy(where, planned, name, more):
    """Each row has one of the masks; what a boolean one hides is nan."""
    planned(TILINGS[name])
    rows = len(HOSTILE)
    x, mask = random(rows, 45, where=where, size=30.0), torch.zeros(rows, 45, dtype=torch.bool, device=where)
    for row, cols in enumerate(HOSTILE.values()):
        mask[row, cols] = True
    if more == "added":
        check(x, "log_softmax", Scores(mask="float32"), mask=torch.zeros(rows, 45, device=where).masked_fill(~mask, -INF))
        return
    x[~mask] = NAN
    if more == "sink":
        check(x, "log_softmax", Scores(mask="bool", sink=True), mask=mask, sink=random(rows, 1, where=where, seed=9))
    elif more == "temperatures":
        temperature = torch.tensor([1.0, 0.0], device=where).repeat(rows // 2).unsqueeze(1)
        check(x, "softmin", Scores(mask="bool", factor="rows", divides=True), mask=mask, factor=temperature)
    else:
        check(x, "softmax", Scores(mask="bool", zero_rows=more == "zero rows"), mask=mask)


@pytest.mark.each_value
@pytest.mark.parametrize("name", TILINGS)
@pytest.mark.parametrize(("batch", "heads", "rows"), [(2, 3, 5), (1, 4, 1), (3, 2, 4)])
def test_a_mask_that_heads_share_in_every_strategy(where, planned, name, batch, heads, rows):
    planned(TILINGS[name])
    x, mask = random(batch, heads, rows, 45, where=where), added(batch, 1, rows, 45, where=where)
    check(x, "softmax", Scores(mask="float32", factor="number"), mask=mask, factor=0.5)


@pytest.mark.each_value
@pytest.mark.parametrize("name", TILINGS)
@pytest.mark.parametrize(("causal", "rows"), [("upper_left", 1), ("upper_left", 6), ("lower_right", 1), ("lower_right", 6)])
def test_causal_in_every_strategy(where, planned, name, causal, rows):
    planned(TILINGS[name])
    x = random(2, rows, 45, where=where)
    x[:, ~torch.ones(rows, 45, dtype=torch.bool, device=where).tril(45 - rows if causal == "lower_right" else 0)] = NAN
    check(x, "softmax", Scores(causal=causal))


@pytest.mark.parametrize("causal", ["upper_left", "lower_right"])
@pytest.mark.parametrize("zero_rows", [False, True])
def test_causal_of_more_rows_than_columns(where, form, causal, zero_rows):
    check(random(20, 16, where=where), form, Scores(causal=causal, zero_rows=zero_rows))


@pytest.mark.parametrize("value", [INF, NAN])
def test_masks_that_add_no_number(where, value):
    x, mask = random(4, 40, where=where), torch.zeros(4, 40, device=where)
    mask[1, 7] = value
    result = check(x, "softmax", Scores(mask="float32"), mask=mask)
    assert result[1].isnan().all()
    assert not result[[0, 2, 3]].isnan().any()


@pytest.mark.parametrize(("name", "dtype"), [(name, torch.float32) for name in TILINGS] + [("tile", torch.bfloat16)], ids=str)
def test_extreme_temperatures_beside_each_other(where, planned, name, dtype):
    form = "log_softmax" if name == "online" else "softmax"
    planned(TILINGS[name])
    x = random(6, 45, where=where, dtype=dtype)
    x[4, [3, 40]] = 50.0 if form != "softmin" else -50.0  # equals share
    temperature = torch.tensor([1e-30, 1e30, 0.0, 1.0, 0.0, 1e-3], device=where).unsqueeze(1)
    result = check(x, form, Scores(factor="rows", divides=True), factor=temperature).double()
    if form == "log_softmax":
        result = result.exp()
    assert result[2].max() == 1
    assert (
        torch.equal(result[4, [3, 40]].float(), torch.full((2,), 0.5, device=where).log().to(dtype).exp().float())
        or (result[4, [3, 40]] == 0.5).all()
    )
    assert (result <= 1).all()


@pytest.mark.parametrize("name", TILINGS)
def test_greedy_rows_heed_masks_and_nothing_else(where, planned, name):
    form = "softmin" if name == "online" else "softmax"
    planned(TILINGS[name])
    x = random(3, 45, where=where)
    mask = random(3, 45, where=where, seed=3, size=100.0)
    mask[:, 10:] = -INF
    x[:, 20] = 90.0 if form != "softmin" else -90.0  # hidden
    scores = Scores(factor="number", divides=True, cap=0.1, mask="float32", sink=True)
    result = check(x, form, scores, mask=mask, factor=0.0, sink=torch.full((3, 1), 500.0, device=where))
    sign = -1 if form == "softmin" else 1
    assert torch.equal(result.argmax(1), (x * sign)[:, :10].argmax(1))


@pytest.mark.parametrize("name", TILINGS)
@pytest.mark.parametrize("divides", [True, False], ids=["temperature", "scale"])
def test_factors_of_any_sign_beside_each_other(where, planned, name, divides):
    """The last split of a row, which no factor may let in, lies past its end."""
    planned(TILINGS[name])
    factor = torch.tensor([2.0, -0.5, 0.0, NAN, INF, -INF, 3e38, -1e-30], device=where).unsqueeze(1)
    check(random(8, 45, where=where), "softmax", Scores(factor="rows", divides=divides), factor=factor)


@pytest.mark.parametrize("temperature", [-0.5, NAN, INF, 0.0, 1e-45, 3e38])
def test_other_temperatures_do_what_the_formula_says(where, temperature):
    check(random(3, 40, where=where), "softmax", Scores(factor="number", divides=True), factor=temperature)


@pytest.mark.parametrize("temperature", [0.001, 0.0101, 0.013])
def test_no_probability_exceeds_1(where, temperature):
    x = random(64, 200, where=where)
    result = computed(x, "softmax", Scores(factor="number", divides=True), factor=temperature)
    scaled = computed(x, "softmax", Scores(factor="number"), factor=1 / temperature)
    assert result.max() <= 1
    assert scaled.max() <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("cap", [0.3, 5.0, 50.0])
def test_caps_of_small_and_large_scores(where, dtype, cap):
    x = torch.cat([torch.logspace(-12, 4, 100), -torch.logspace(-12, 4, 100), torch.zeros(5)]).to(where, dtype)
    check(torch.stack([x, x / 1e3, x * 10]), "log_softmax", Scores(cap=cap))


@pytest.mark.parametrize("name", ["tile", "shared"])
@pytest.mark.parametrize("size", [-1e4, 0.0, 60.0, 87.0, 100.0, -INF])
def test_sinks_far_above_and_below(where, planned, name, size):
    planned(TILINGS[name])
    for form in ("softmax", "log_softmax"):
        check(random(2, 45, where=where), form, Scores(sink=True), sink=torch.full((2, 1), size, device=where))


def transposed(mask):
    return mask.transpose(2, 3).contiguous().transpose(2, 3)


def sparse(mask):
    """Returns the mask as every third element of another, at an odd place."""
    room = torch.zeros(*mask.shape[:3], 3 * mask.shape[3] + 1, dtype=mask.dtype, device=mask.device)
    room[..., 1::3] = mask
    return room[..., 1::3]


def padded(mask):
    """Returns the mask with gaps behind its rows, off every alignment."""
    room = torch.zeros(*mask.shape[:3], mask.shape[3] + 3, dtype=mask.dtype, device=mask.device)
    room[..., 1:-2] = mask
    return room[..., 1:-2]


@pytest.mark.parametrize(
    "sizes", [(2, 1, 1, 48), (1, 3, 5, 48), (2, 1, 5, 48), (1, 1, 5, 1), (2, 3, 1, 1), (2, 3, 5, 48)], ids=str
)
@pytest.mark.parametrize("lie", [torch.Tensor.contiguous, transposed, sparse, padded], ids=lambda lie: lie.__name__)
def test_masks_broadcast_along_any_dimensions_with_any_strides(where, sizes, lie):
    x = random(2, 3, 5, 48, where=where)
    check(x, "softmax", Scores(mask="bool"), mask=lie(some(*sizes, where=where)))
    check(x, "softmax", Scores(mask="float16", causal="lower_right"), mask=lie(added(*sizes, where=where, dtype=torch.float16)))


def test_masks_that_are_expanded(where):
    check(
        random(2, 3, 5, 48, where=where),
        "softmax",
        Scores(mask="bool"),
        mask=some(2, 1, 1, 48, where=where).expand(2, 3, 5, 48),
    )


@pytest.mark.parametrize("sizes", [(2, 1, 3, 1, 48), (1, 2, 1, 5, 48), (2, 1, 3, 5, 1)], ids=str)
def test_masks_of_more_levels_than_a_kernel_has(where, sizes):
    given = {"factor": random(2, 2, 3, 5, 1, where=where, seed=7), "sink": random(2, 2, 3, 5, 1, where=where, seed=8)}
    x = random(2, 2, 3, 5, 48, where=where)
    check(x, "softmax", Scores(mask="bool", factor="rows", sink=True), mask=some(*sizes, where=where), **given)
    check(x, "softmax", Scores(mask="bool", causal="upper_left"), mask=some(*sizes, where=where))


@pytest.mark.each_value
@pytest.mark.parametrize("dim", [0, 1, 2, 3])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 2, 0), (0, 2, 1, 3), (0, 1, 3, 2)], ids=str)
def test_other_dims_and_layouts(where, dim, order):
    x = random(*(((4, 3, 18, 16))[at] for at in order), where=where).permute(*(order.index(at) for at in range(4)))
    rows = [1 if at == dim else size for at, size in enumerate(x.shape)]
    given = {"factor": random(*rows, where=where, seed=7), "sink": random(*rows, where=where, seed=8)}
    scores = Scores(mask="bool", factor="rows", sink=True)
    check(x, "softmax", scores, dim, mask=some(4, 1, 18, 16, where=where, share=0.9), **given)
    check(x, "log_softmax", Scores(mask="float32"), dim, mask=random(1, 3, 1, 16, where=where, seed=9))


@pytest.mark.parametrize("causal", ["upper_left", "lower_right"])
def test_one_row_whose_elements_are_apart(where, causal):
    x = random(2, 45, 4, where=where)[..., :1].transpose(1, 2)
    check(x, "softmax", Scores(causal=causal))


@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (3, 1), (1, 1), (2, 1, 3)], ids=str)
def test_sizes_of_0_and_1(where, shape):
    x = random(*shape, where=where)
    if x.numel():
        check(x, "softmax", Scores(mask="bool", causal="upper_left"), mask=torch.ones(shape, dtype=torch.bool, device=where))
    else:
        assert computed(x, "softmax", Scores(factor="number"), factor=2.0).shape == shape


@pytest.mark.parametrize("cols", [33, 197, 1023])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_rows_of_odd_lengths(where, cols, dtype):
    x = random(2, 3, 5, cols, where=where, dtype=dtype)
    check(x, "softmax", Scores(mask="bool"), mask=some(2, 1, 1, cols, where=where))
    check(x, "softmax", Scores(mask="float32", causal="lower_right"), mask=added(2, 1, 5, cols, where=where))


def test_another_type_of_result(where):
    x = random(4, 40, where=where, dtype=torch.bfloat16)
    given = {"factor": random(4, 1, where=where).abs()}
    result = computed(x, "softmax", Scores(factor="rows", divides=True), dtype=torch.float32, **given)
    exact, terms = expected(x.float(), "softmax", Scores(factor="rows", divides=True), **given)
    assert result.dtype == torch.float32
    assert_close(result, exact, terms)


@pytest.mark.parametrize("cols", [48, 33])
def test_rows_do_not_depend_on_their_neighbours(where, cols):
    """Each head alone, and all together, have the same bits."""
    x, mask = random(3, 2, 5, cols, where=where), some(3, 1, 1, cols + 3, where=where)[..., 1 : cols + 1]
    scores = Scores(mask="bool", factor="number", causal="lower_right")
    whole = computed(x, "softmax", scores, mask=mask, factor=0.3, invariant=True)
    for at in range(3):
        alone = computed(x[at : at + 1].clone(), "softmax", scores, mask=mask[at : at + 1], factor=0.3, invariant=True)
        assert torch.equal(whole[at : at + 1].nan_to_num(nan=-2), alone.nan_to_num(nan=-2))


GRADIENTS = {
    "scale": ({"factor": "number"}, 0.37),
    "scales": ({"factor": "rows"}, "rows"),
    "temperature": ({"factor": "number", "divides": True}, 0.7),
    "temperatures": ({"factor": "rows", "divides": True}, "rows"),
    "mask": ({"mask": "bool", "causal": "upper_left"}, None),
}


@pytest.mark.each_value
@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize(("strategy", "cols"), [(None, 197), *((strategy, 45) for strategy in ("tile", "online", "shared"))])
def test_gradients(where, form, planned, name, strategy, cols):
    if strategy:
        planned(TILINGS[strategy])
    fields, factor = GRADIENTS[name]
    scores = Scores(**fields)
    dy = random(1, 4, cols, where=where, seed=3)
    y, _ = expected(random(1, 4, cols, where=where), form, Scores(mask=scores.mask), some(1, 1, cols, where=where))
    y = y.float()
    numbers = factor
    if factor == "rows":
        numbers = random(1, 4, 1, where=where, seed=4).abs() + 0.5
        numbers[0, 2] = 0.0  # greedy rows have no gradient
    dx = computed_gradient(dy, y, form, scores, numbers)
    assert_close(dx, *expected_gradient(form, dy, y, scores, numbers))


LOST = {
    "scale": "scale",
    "temperatures": "temperatures",
    "cap": "cap",
    "mask": "bool",
    "added": "added",
    "a mask of heads": "added",
    "causal": "lower right",
    "sink": "sink",
}


@pytest.mark.each_value
@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize(("tiling", "form"), [("shared", "softmax"), ("shared blocks", "log_softmax")])
def test_words_that_are_lost_change_no_bit(device, where, form, planned, monkeypatch, name, tiling):
    if device.backend != "interpreter":
        pytest.skip("programs run at once in the interpreter")
    planned(TILINGS[tiling])
    heads = 2 if name == "a mask of heads" else 1
    scores, given = joined(steps(1, heads, 3, 45, where)[LOST[name]])
    x = random(1, heads, 3, 45, where=where)

    def together(spec, device, grid, sizes, polls):
        launch = msgspec.structs.replace(device.profile.launch, polls=Polls(polls, "a test"))
        looking = dataclasses.replace(device, profile=msgspec.structs.replace(device.profile, launch=launch))
        n_operands = next(at for at, kind in enumerate(spec.signature().values()) if not kind.startswith("*"))

        def run(*operands):
            arguments = *operands[:n_operands], *sizes, *operands[n_operands:]
            arguments = tuple(
                each.view(torch.uint8) if isinstance(each, torch.Tensor) and each.dtype == torch.bool else each
                for each in arguments
            )
            named = dict(zip(spec.signature(), arguments, strict=True)) | constexprs_of(spec, looking)
            Together(1).launch(kernel_of(spec), grid[0], **named)

        return run

    with monkeypatch.context() as patched:
        patched.setattr("portable_softmax.runtime.launch.prepare", functools.partial(together, polls=10**6))
        untroubled = check(x, form, scores, **given)
    memory.forget()
    publish_by(monkeypatch, lambda *arguments: None)
    monkeypatch.setattr("portable_softmax.runtime.launch.prepare", functools.partial(together, polls=2))
    assert_same(computed(x, form, scores, **given), untroubled)
