"""Options of a call in every strategy, hostile masks, odd layouts of masks, and words that are lost; see test_calls.py too."""

import functools

import pytest
import torch
from calls import calls, few
from closeness import INF, assert_close, with_terms
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import PAIRS
from scored import TOGETHER, choose, compare_gradient
from tilings import TILINGS

from portable_softmax import batch_invariant, softmax
from portable_softmax.operators import launch

pytestmark = pytest.mark.kernel
NAN = float("nan")


def random(*shape, where="cpu", dtype=torch.float32, seed=0, size=3.0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * size).to(where, dtype)


def some(*shape, where="cpu", seed=1, share=0.6):
    """Returns a boolean mask of which a share takes part."""
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share).to(where)


def added(*shape, where="cpu", dtype=torch.float32, seed=2):
    """Returns a mask to add, of numbers and -inf."""
    return random(*shape, seed=seed, size=2.0).masked_fill(~some(*shape, seed=seed), -INF).to(where, dtype)


def check(x, form="softmax", dim=-1, **given):
    """Compares with float64, and returns the result."""
    result = PAIRS[form][0](x, dim, **given)
    assert (result.shape, result.is_contiguous()) == (x.shape, True)
    assert_close(result, *with_terms(form, x, dim, **given))
    return result


@pytest.fixture
def planned(monkeypatch, device):
    """planned(tiling) makes all launches use a tiling, one program for each tile."""

    yield functools.partial(choose, monkeypatch)
    launch.calls.clear()


@pytest.mark.parametrize("name", TILINGS)
@settings(few, max_examples=8)
@given(call=calls(plain=False, shapes=st.sampled_from([(2, 1, 2, 45), (4, 45)])))
def test_any_options_in_every_strategy(where, planned, name, call):
    planned(TILINGS[name])
    call._replace(dim=-1, layout="contiguous").check(where)


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
        check(x, "log_softmax", mask=torch.zeros(rows, 45, device=where).masked_fill(~mask, -INF))
        return
    x[~mask] = NAN
    if more == "sink":
        check(x, "log_softmax", mask=mask, sink=random(rows, 1, where=where, seed=9))
    elif more == "temperatures":
        check(x, "softmin", mask=mask, temperature=torch.tensor([1.0, 0.0], device=where).repeat(rows // 2).unsqueeze(1))
    else:
        check(x, mask=mask, masked_rows="zero" if more == "zero rows" else "nan")


@pytest.mark.each_value
@pytest.mark.parametrize("name", TILINGS)
@pytest.mark.parametrize(("causal", "rows"), [("upper_left", 1), ("upper_left", 6), ("lower_right", 1), ("lower_right", 6)])
def test_what_is_ahead_is_not_read_in_every_strategy(where, planned, name, causal, rows):
    planned(TILINGS[name])
    x = random(2, rows, 45, where=where)
    x[:, ~torch.ones(rows, 45, dtype=torch.bool, device=where).tril(45 - rows if causal == "lower_right" else 0)] = NAN
    check(x, causal=causal)


NUMBERS = [2.0, -0.5, 0.0, NAN, INF, -INF, 3e38, -1e-30, 1e30, 1e-3, 1e-45, -0.0]


@pytest.mark.parametrize("name", TILINGS)
@pytest.mark.parametrize("option", ["temperature", "scale", "sink"])
def test_numbers_of_any_size_beside_each_other(where, planned, name, option):
    """The last split of a row, which no number may let in, lies past its end; no probability exceeds 1, and equals share."""
    planned(TILINGS[name])
    x = random(len(NUMBERS), 45, where=where)
    x[:, [3, 40]] = 50.0
    result = check(x, **{option: torch.tensor(NUMBERS, device=where).unsqueeze(1)})
    assert not (result > 1).any()
    if option == "temperature":
        assert (result[2, [3, 40]] == 0.5).all()
    for number in NUMBERS if name == "tile" else ():
        check(x[:1], "log_softmax", **{option: number})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("cap", [0.3, 5.0, 50.0])
def test_caps_of_small_and_large_scores(where, dtype, cap):
    x = torch.cat([torch.logspace(-12, 4, 100), -torch.logspace(-12, 4, 100), torch.zeros(5)]).to(where, dtype)
    check(torch.stack([x, x / 1e3, x * 10]), "log_softmax", softcap=cap)


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


def expanded(mask):
    return mask.expand(2, 3, 5, 48)


@pytest.mark.parametrize(
    "sizes", [(2, 1, 1, 48), (1, 3, 5, 48), (2, 1, 5, 48), (1, 1, 5, 1), (2, 3, 1, 1), (2, 3, 5, 48)], ids=str
)
@pytest.mark.parametrize("lie", [torch.Tensor.contiguous, transposed, sparse, padded, expanded], ids=lambda lie: lie.__name__)
def test_masks_broadcast_along_any_dimensions_with_any_strides(where, sizes, lie):
    x = random(2, 3, 5, 48, where=where)
    check(x, mask=lie(some(*sizes, where=where)))
    check(x, mask=lie(added(*sizes, where=where, dtype=torch.float16)), causal="lower_right")


@pytest.mark.parametrize("sizes", [(2, 1, 3, 1, 48), (1, 2, 1, 5, 48), (2, 1, 3, 5, 1)], ids=str)
def test_masks_of_more_levels_than_a_kernel_has(where, sizes):
    given = {"scale": random(2, 2, 3, 5, 1, where=where, seed=7), "sink": random(2, 2, 3, 5, 1, where=where, seed=8)}
    x = random(2, 2, 3, 5, 48, where=where)
    check(x, mask=some(*sizes, where=where), **given)
    check(x, mask=some(*sizes, where=where), causal="upper_left")


@pytest.mark.each_value
@pytest.mark.parametrize("dim", [0, 1, 2, 3])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 2, 0), (0, 2, 1, 3), (0, 1, 3, 2)], ids=str)
def test_other_dims_and_layouts(where, dim, order):
    x = random(*(((4, 3, 18, 16))[at] for at in order), where=where).permute(*(order.index(at) for at in range(4)))
    rows = [1 if at == dim else size for at, size in enumerate(x.shape)]
    given = {"scale": random(*rows, where=where, seed=7), "sink": random(*rows, where=where, seed=8)}
    check(x, dim=dim, mask=some(4, 1, 18, 16, where=where, share=0.9), **given)
    check(x, "log_softmax", dim, mask=random(1, 3, 1, 16, where=where, seed=9))


@pytest.mark.parametrize("causal", ["upper_left", "lower_right"])
def test_one_row_whose_elements_are_apart(where, causal):
    check(random(2, 45, 4, where=where)[..., :1].transpose(1, 2), causal=causal)


@pytest.mark.parametrize("cols", [33, 48, 197, 1023])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_rows_of_odd_lengths_do_not_depend_on_their_neighbours(where, cols, dtype):
    """Each batch alone, and all together, have the same bits."""
    x, mask = random(3, 2, 5, cols, where=where, dtype=dtype), some(3, 1, 1, cols + 3, where=where)[..., 1 : cols + 1]
    check(x, mask=mask)
    with batch_invariant():
        whole = check(x, mask=mask, scale=0.3, causal="lower_right")
        for at in range(3):
            alone = softmax(x[at : at + 1].clone(), mask=mask[at : at + 1], scale=0.3, causal="lower_right")
            assert torch.equal(whole[at : at + 1].nan_to_num(nan=-2), alone.nan_to_num(nan=-2))


@pytest.mark.each_value
@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize(("strategy", "cols"), [(None, 197), *((strategy, 45) for strategy in ("tile", "online", "shared"))])
def test_gradients(where, form, planned, name, strategy, cols):
    if strategy:
        planned(TILINGS[strategy])
    compare_gradient(where, name, form, torch.float32, cols)
