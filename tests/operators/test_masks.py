"""Masks of kept tokens, boolean, added, in bits, and as ids: results and gradients beside float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from portable_softmax import linear_token_log_probs, log_softmax, softmax, token_log_probs

pytestmark = [pytest.mark.kernel, pytest.mark.xdist_group("compilers")]
SIZES = 5, 32, 70, 257, 1024


def bits_of(mask):
    """Returns words of a boolean mask; bits behind its end are set."""
    mask = torch.nn.functional.pad(mask, (0, -mask.shape[-1] % 32), value=True).unflatten(-1, (-1, 32))
    return (mask.long() << torch.arange(32, device=mask.device)).sum(-1).to(torch.int32)


def outcome(x, ids, weights, **options):
    """Returns log-probabilities, logsumexp, entropies, and the gradient of their weighted sum, for finite ones."""
    leaf = x.detach().requires_grad_()
    ys = token_log_probs(leaf, ids, entropy=True, return_lse=True, **options)
    loss = sum(torch.where(y.isfinite(), y * w, 0.0).sum() for y, w in zip(ys, weights, strict=True))
    return *ys, torch.autograd.grad(loss, leaf)[0]


@settings(deadline=None, max_examples=10)
@given(
    size=st.sampled_from(SIZES), share=st.sampled_from((0.02, 0.5, 1.0)), temperature=st.sampled_from((None, 0.7, 0.0)),
    masked_rows=st.sampled_from(("nan", "zero")), shared=st.booleans(), seed=st.integers(0, 9),
)  # fmt: skip
def test_kept_tokens_have_the_probabilities(where, size, share, temperature, masked_rows, shared, seed):
    torch.manual_seed(seed)
    x, ids = torch.randn(2, 3, size, device=where) * 2, torch.randint(size, (2, 3, 2), device=where)
    keeps = (torch.rand(1 if shared else 2, 3, size, device=where) < share).expand(x.shape)
    weights = torch.randn(2, 3, 2, device=where), *torch.randn(2, 2, 3, device=where)
    options = {"temperature": temperature, "masked_rows": masked_rows}
    few = torch.where(keeps, torch.arange(size, device=where), -1)
    exact = outcome(x.double(), ids, weights, mask=keeps, **options)
    for kind in ({"mask": keeps}, {"mask": bits_of(keeps)}, {"kept": torch.cat([few, few.flip(-1)], -1)}, {"kept": few.int()}):
        actual = outcome(x, ids, weights, **kind, **options)
        assert (actual[3][~keeps] == 0).all()
        torch.testing.assert_close([y.double() for y in actual], list(exact), rtol=1e-4, atol=1e-4, equal_nan=True)
    for function in (softmax, log_softmax):
        actual, exact = function(x, mask=bits_of(keeps), **options), function(x.double(), mask=keeps, **options)
        torch.testing.assert_close(actual.double(), exact, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_bits_along_another_dimension_and_hidden_states(where):
    x, keeps = torch.randn(3, 70, 4, device=where), torch.rand(3, 1, 4, 70, device=where)[:, 0] < 0.5
    ids, words = torch.randint(70, (3, 4), device=where), bits_of(keeps).movedim(-1, 1)
    for call in (lambda mask: softmax(x, 1, mask=mask), lambda mask: token_log_probs(x, ids, dim=1, mask=mask)):
        torch.testing.assert_close(call(words), call(keeps.movedim(-1, 1)), equal_nan=True)
    hidden, weight = torch.randn(3, 4, 8, device=where), torch.randn(70, 8, device=where)
    for mask in (bits_of(keeps), keeps[:1, :1]):
        whole = token_log_probs(hidden @ weight.t(), ids, mask=mask)
        parts = linear_token_log_probs(hidden, weight, ids, mask=mask, chunk_rows=5)
        torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_compiled_and_mapped_ids_are_a_mask(where):
    ids = torch.tensor([[3, 31, 32, 3, -1], [69, 0, 0, -1, -1]], device=where)
    keeps = torch.zeros(2, 70, dtype=torch.bool, device=where)
    keeps[0, [3, 31, 32]], keeps[1, [0, 69]] = True, True
    x = torch.randn(2, 70, device=where)
    torch._dynamo.reset()
    packed = torch.compile(lambda x, ids: token_log_probs(x, ids[:, 0], kept=ids), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(packed(x, ids), token_log_probs(x, ids[:, 0], mask=keeps))
    mapped = torch.func.vmap(lambda x, ids: token_log_probs(x, ids[0], kept=ids))(x, ids)
    torch.testing.assert_close(mapped, token_log_probs(x, ids[:, 0], mask=keeps))
