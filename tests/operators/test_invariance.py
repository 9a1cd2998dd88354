"""batch_invariant: a row has the same bits in any batch, order or chunk; one flag of the process."""

import pytest
import torch

from portable_softmax import batch_invariant, is_batch_invariant, log_softmax, set_batch_invariant, softmax, token_log_probs


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
    set_batch_invariant(True)
    assert is_batch_invariant()
    set_batch_invariant(False)
    assert batch_invariant()(is_batch_invariant)()
    assert not is_batch_invariant()
    for wrong in (1, None, "yes"):
        with pytest.raises(TypeError, match="batch_invariant"):
            batch_invariant(wrong)
        with pytest.raises(TypeError, match="batch_invariant"):
            set_batch_invariant(wrong)
