"""The reference beside compositions in float64 that share nothing with it, and finite differences; batch_invariant."""

import itertools

import pytest
import torch
from exact import BIAS, IGNORED, OPTIONS, ROWS, X, expected, log_probs
from torch.autograd import gradcheck, gradgradcheck

from portable_softmax import batch_invariant, is_batch_invariant, log_softmax, set_batch_invariant, softmax, token_log_probs

FUNCTIONS = {"softmax": softmax, "log_softmax": log_softmax}
INF = float("inf")


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "plain")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_an_independent_composition(name, options):
    torch.testing.assert_close(FUNCTIONS[name](X, **options), expected(name, X, **options), equal_nan=True)


def test_greedy_rows_share_among_equals_and_nothing_else():
    x = torch.tensor([[1.0, 3.0, 3.0, -INF], [0.0, 1e-40, 0.0, 0.0], [-INF] * 4])
    torch.testing.assert_close(softmax(x, temperature=torch.zeros(3, 1))[:2], torch.tensor([[0, 0.5, 0.5, 0], [0, 1, 0, 0]]))
    assert log_softmax(x, temperature=0.0)[0, 0] == -INF
    assert softmax(x, temperature=0)[2].isnan().all()
    large = torch.tensor([[100.0, 200.0, 150.0]])  # a cap of 5 rounds all of them to 5
    assert softmax(large, temperature=0.0, softcap=5.0).tolist() == [[0, 1, 0]]
    chosen, lse = token_log_probs(large, torch.tensor([1]), temperature=0.0, softcap=5.0, return_lse=True)
    assert (chosen.item(), lse.item()) == (0, 5)
    for row in (torch.full((1, 3), -INF), torch.empty(1, 0)):
        assert token_log_probs(row, torch.tensor([1]), temperature=torch.zeros(1, 1)).isnan().all()


@pytest.mark.parametrize("function", FUNCTIONS.values())
def test_derivatives_are_those_of_finite_differences(function):
    tensors = [t.clone().requires_grad_() for t in (X, ROWS, BIAS, torch.randn(3, 1).double())]

    def call(x, rows, bias, sink):
        return function(x, scale=rows, mask=bias, sink=sink, softcap=2.0, temperature=rows + 1)

    assert gradcheck(call, tensors, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(call, tensors)


def test_log_probs_and_their_derivatives():
    ids, tensors = torch.tensor([[0, 4, IGNORED], [1, 2, 3]]), (X.clone().requires_grad_(), ROWS.clone().requires_grad_())

    def call(x, rows):
        return token_log_probs(x, ids, temperature=rows, softcap=2.0, entropy=True, return_lse=True, ignore_index=IGNORED)

    assert gradcheck(call, tensors, check_forward_ad=True)
    assert gradgradcheck(call, tensors)
    exact = [values for values, _ in log_probs(X, ids[..., None], temperature=ROWS, softcap=2.0)]
    torch.testing.assert_close(call(X, ROWS), (exact[0][..., 0], *exact[1:]))


def test_masked_logits_add_nothing_to_gradients_of_entropies():
    x, ids = torch.tensor([[1.0, -INF, 2.0]]), torch.tensor([-100])
    leaves = [x.requires_grad_(), x[:, ::2].detach().requires_grad_()]
    whole, part = (torch.autograd.grad(1e6 * token_log_probs(x, ids, entropy=True)[1], x)[0] for x in leaves)
    assert whole[0, 1] == 0
    torch.testing.assert_close(whole[:, ::2], part)


@pytest.mark.kernel
@pytest.mark.parametrize("options", [{"sink": 0.3}, {"causal": True}, {"masked_rows": "zero"}, {"mask": bool}], ids=str)
def test_elements_without_weight_have_gradients_of_0(where, options):
    seen, x = torch.tensor([[True, False, True], [False] * 3, [True] * 3]), torch.tensor([[1.0, 2, 0], [1, 2, 3], [1, INF, 2]])
    mask = (seen if "mask" in options else torch.where(seen, 0.0, -INF)).to(where)
    for dtype in (torch.float32, torch.float64):  # by a kernel, and by the reference
        leaf = x.to(where, dtype, copy=True).requires_grad_()
        log_softmax(leaf, **{**options, "mask": mask}).sum().backward()
        assert (leaf.grad != 0).tolist() == [
            [True, False, "causal" not in options],
            [False] * 3,
            [False] * 3,
        ]  # the last is nan


def test_what_has_no_elements():
    assert softmax(torch.empty(0, 3)).shape == (0, 3)
    assert softmax(torch.empty(3, 0), scale=2.0).shape == (3, 0)
    assert token_log_probs(torch.empty(3, 0), torch.zeros(3, dtype=torch.long)).isnan().all()
    assert token_log_probs(torch.empty(2, 4), torch.zeros(2, 0, dtype=torch.long)).shape == (2, 0)
    assert softmax(torch.tensor(3.0), 0, scale=2.0) == 1
    assert log_softmax(torch.tensor(3.0)) == 0
    assert softmax(torch.tensor(0.0), scale=torch.tensor(2.0), sink=0.0) == 0.5


@pytest.mark.kernel
@pytest.mark.parametrize("n_cols", [7, 782, 5000])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_row_is_the_same_in_any_batch(where, n_cols, dtype):
    x, ids = torch.randn(300, n_cols, device=where).to(dtype), torch.zeros(300, dtype=torch.long, device=where)
    unaligned = torch.empty(300 * n_cols + 1, dtype=dtype, device=where)[1:].view(300, n_cols).copy_(x)
    with batch_invariant():
        for call in (softmax, log_softmax, lambda x: token_log_probs(x, ids[: len(x)])):
            whole = call(x)
            for part in (x[5:6], x[5:6].clone(), x[3:10][2:3], unaligned[5:6], x.t().contiguous().t()[5:6]):
                assert torch.equal(call(part), whole[5:6])


@pytest.mark.kernel
def test_a_gradient_follows_its_forward(where):
    x = torch.randn(64, 5000, device=where)
    dy = torch.randn_like(x)

    def gradient(at):
        leaf = x[at].clone().requires_grad_()
        with batch_invariant():
            y = softmax(leaf)
        return torch.autograd.grad(y, leaf, dy[at])[0]  # outside of the context

    assert torch.equal(gradient(slice(5, 6)), gradient(slice(None))[5:6])


def test_the_flag_and_its_context():
    with batch_invariant():
        with batch_invariant(False):
            assert not is_batch_invariant()
        assert is_batch_invariant()
    for flag in (True, False):
        set_batch_invariant(flag)
        assert is_batch_invariant() is flag
    assert batch_invariant()(is_batch_invariant)()
    for setter, wrong in itertools.product((batch_invariant, set_batch_invariant), (1, None, "yes")):
        with pytest.raises(TypeError, match="batch_invariant"):
            setter(wrong)
