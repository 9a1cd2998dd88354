"""Log-probabilities of chosen tokens, entropies and their gradient, of launches and calls, compared with float64."""

import pytest
import torch
from closeness import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from log_probs import IGNORED, assert_picked, both, expected, expected_gradient, hostile, random

from portable_softmax import batch_invariant, log_softmax, token_log_probs
from portable_softmax.planning.plan import Tiling

pytestmark = pytest.mark.kernel
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
TILINGS = {
    "several rows": Tiling(2, 128, 1),
    "blocks": Tiling(1, 32, 1, blocks=4),
    "read again": Tiling(1, 16, 1, held=False),
    "splits": Tiling(1, 32, 1, splits=4),
    "splits in blocks": Tiling(1, 16, 1, splits=2, blocks=4),
    "splits read again": Tiling(1, 16, 1, splits=2, blocks=4, held=False),
}


@pytest.mark.each_value
@pytest.mark.parametrize("n_ids", [1, 3])
@pytest.mark.parametrize("temperature", [False, True], ids=["", "temperature"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("tiling", TILINGS.values(), ids=TILINGS)
def test_every_tiling(device, where, tiling, dtype, temperature, n_ids):
    x = hostile(100).to(where, dtype)
    ids = torch.randint(0, 100, (9, n_ids), generator=torch.Generator().manual_seed(3)).to(where)
    ids[0, -1], ids[2, 0], ids[1] = IGNORED, 0, 50
    steepest = 1e-4 if dtype == torch.float16 else 1e-6  # whose gradients are at most 65504
    temperatures = torch.tensor([1, 0.5, 2, steepest, 30, 0.7, 1, 1, 1]).to(where, torch.promote_types(dtype, torch.float32))
    both(device, x, ids, tiling, temperatures if temperature else None)


@pytest.mark.parametrize("tiling", TILINGS.values(), ids=TILINGS)
def test_programs_that_walk(device, where, tiling):
    ids = torch.tensor([[5], [IGNORED], [0], [99], [7]], device=where)
    both(device, random(5, 100).to(where), ids, tiling, entropy=False, num_programs=2 * tiling.splits)


@pytest.mark.parametrize("tiling", [TILINGS[name] for name in ("blocks", "splits in blocks", "splits read again")])
def test_unaligned_rows(device, where, tiling):
    memory = random(6, 103).to(where)  # each row starts elsewhere between two multiples of 16 bytes
    memory[1, 0] = memory[2, 96] = 9.0  # the largest are at edges
    ids = torch.tensor([[0], [96], [95], [1], [50], [IGNORED]], device=where)
    both(device, memory[:, :97], ids, tiling, vector=4)


LAYOUTS = {
    "rows": lambda x: x,
    "a shifted slice": lambda x: x[:, :-1],
    "every second row": lambda x: x[:, ::2],
    "side by side": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "one element after another is far": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "off a multiple of 16 bytes": lambda x: x.flatten()[1:-2].unfold(0, 37, 37).unflatten(0, (1, -1)),
}


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_logits_that_lie_anywhere(where, layout, dtype):
    x = layout(random(3, 6, 40).to(where, dtype))
    ids = torch.randint(0, x.shape[-1], x.shape[:-1], generator=torch.Generator().manual_seed(3)).to(where)
    leaf = x.detach().requires_grad_()
    found = token_log_probs(leaf, ids, entropy=True)
    assert_picked(found, x, ids.unsqueeze(-1))
    grads = [random(*each.shape, seed=4).to(each) for each in found[:2]]
    (dx,) = torch.autograd.grad(found[:2], leaf, grads)
    exact, size = expected_gradient(expected(x, ids.unsqueeze(-1))[2], ids.unsqueeze(-1), grads[0].unsqueeze(-1), grads[1])
    assert_close(dx, exact, 10 * size)


@pytest.mark.parametrize("dim", [0, 1])
def test_other_dims(where, dim):
    x = random(20, 30, 17).to(where).requires_grad_()
    ids = torch.randint(0, 17, (30, 17) if dim == 0 else (20, 17)).to(where)
    rows = x.movedim(dim, -1)
    for one, other in zip(
        token_log_probs(x, ids, dim=dim, entropy=True), token_log_probs(rows, ids, entropy=True), strict=True
    ):
        torch.testing.assert_close(one, other)
        ours, theirs = (torch.autograd.grad(each.sin().sum(), x, retain_graph=True) for each in (one, other))
        torch.testing.assert_close(ours, theirs)


@settings(max_examples=30, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(range(9)), min_size=1, max_size=5),
    n_cols=st.sampled_from([1, 2, 7, 64, 130, 1500]),
    n_ids=st.sampled_from([None, 1, 2]),
    dtype=st.sampled_from(DTYPES),
    temperature=st.sampled_from([None, 1e-6, 0.6, 1.0, 40.0]),
    seed=st.integers(0, 100),
)
def test_hostile_rows(where, kinds, n_cols, n_ids, dtype, temperature, seed):
    x = hostile(n_cols)[kinds].to(where, dtype)
    ids = torch.randint(0, n_cols, (len(kinds), n_ids or 1), generator=torch.Generator().manual_seed(seed)).to(where)
    ids[seed % len(kinds), 0] = IGNORED
    by = None if temperature is None else torch.full((len(kinds), 1), temperature, device=where)
    given = {"temperature": by, "ignore_index": IGNORED, "entropy": True}
    found = token_log_probs(x, ids if n_ids else ids[:, 0], **given)
    assert_picked(found, x, ids, by)


@pytest.mark.parametrize("temperature", [None, 0.7])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("n_cols", [1000, 12_000])
def test_a_row_is_the_same_in_any_batch(where, n_cols, dtype, temperature):
    x, ids = (3 * random(7, n_cols)).to(where, dtype), torch.arange(7, device=where) * 3
    with batch_invariant():
        whole = torch.stack(token_log_probs(x, ids, entropy=True, temperature=temperature))
        logs = log_softmax(x, dtype=torch.float32, temperature=temperature).gather(-1, ids.unsqueeze(-1))
        alone = [token_log_probs(x[at], ids[at], entropy=True, temperature=temperature) for at in range(7)]
        chunks = [token_log_probs(x[at : at + 3], ids[at : at + 3], entropy=True, temperature=temperature) for at in (0, 3, 6)]
        order = torch.tensor([3, 0, 6, 1, 5, 2, 4], device=where)
        shuffled = torch.stack(token_log_probs(x[order], ids[order], entropy=True, temperature=temperature))
    assert torch.equal(whole[0], logs.squeeze(-1))
    assert torch.equal(whole, torch.stack([torch.stack(each) for each in alone], 1))
    assert torch.equal(whole, torch.cat([torch.stack(each) for each in chunks], 1))
    assert torch.equal(whole[:, order], shuffled)


def test_ids_out_of_range_give_nan_and_no_gradient(where):
    x, ids = random(4, 50).to(where).requires_grad_(), torch.tensor([50, -1, 2**40, 3], device=where)
    found = token_log_probs(x, ids)
    assert found.isnan().tolist() == [True, True, True, False]
    (dx,) = torch.autograd.grad(found[3] + found[:3].nan_to_num().sum(), x)
    assert not dx[:3].any()
    assert dx[3].any()


def test_ignored_rows_have_no_gradient_whatever_they_hold(where):
    x = hostile(60).to(where).requires_grad_()
    found = token_log_probs(x, torch.full((9,), -100, device=where))
    found.sum().backward()
    assert not found.any()
    assert not x.grad.any()


def test_a_gradient_in_place_of_logits(where):
    logits, ids = random(5, 300).to(where), torch.arange(5, device=where)
    (dx,) = torch.autograd.grad(token_log_probs(leaf := logits.clone().requires_grad_(), ids).sum(), leaf)
    x = logits.clone().requires_grad_()
    (found,) = torch.autograd.grad(token_log_probs(x, ids, grad_inplace=True).sum(), x)
    assert torch.equal(found, dx)
    assert found.data_ptr() == x.data_ptr()
    with pytest.raises(RuntimeError, match="more than one element"):
        token_log_probs(logits[:1].expand(5, 300).requires_grad_(), ids, grad_inplace=True).sum().backward()
