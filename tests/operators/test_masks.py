"""Masks of kept tokens, boolean, added, in bits, and as ids: results and gradients beside float64; errors."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from portable_softmax import linear_token_log_probs, log_softmax, softmax, token_log_probs
from portable_softmax.operators import reference, tokens

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


@settings(deadline=None, max_examples=12)
@given(
    size=st.sampled_from(SIZES), share=st.sampled_from((0.02, 0.5, 1.0)), temperature=st.sampled_from((None, 0.7, 0.0)),
    masked_rows=st.sampled_from(("nan", "zero")), shared=st.booleans(), seed=st.integers(0, 9),
)  # fmt: skip
def test_kept_tokens_have_the_probabilities(where, size, share, temperature, masked_rows, shared, seed):
    torch.manual_seed(seed)
    x, ids = torch.randn(2, 3, size, device=where) * 2, torch.randint(size, (2, 3, 2), device=where)
    keeps = torch.rand(1 if shared else 2, 3, size, device=where) < share
    weights = torch.randn(2, 3, 2, device=where), *torch.randn(2, 2, 3, device=where)
    options = {"temperature": temperature, "masked_rows": masked_rows}
    few = torch.where(keeps, torch.arange(size, device=where), -1).expand(2, 3, size)
    exact = outcome(x.double(), ids, weights, mask=keeps, **options)
    assert (exact[3][~keeps.expand(x.shape)] == 0).all()
    kinds = [{"mask": keeps}, {"mask": bits_of(keeps)}, {"kept": torch.cat([few, few.flip(-1)], -1)}]
    kinds += [{"mask": torch.where(keeps, 0.0, -torch.inf)}] * bool(keeps.any(-1).all())  # else torch's rule
    for kind in kinds:
        actual = outcome(x, ids, weights, **kind, **options)
        hidden = ~keeps.expand(x.shape)
        if "kept" in kind or not kind["mask"].is_floating_point():
            assert (actual[3][hidden] == 0).all()
        else:
            actual[3][hidden], _ = 0.0, None
        for y, z in zip(actual, exact, strict=True):
            torch.testing.assert_close(y.double(), z.double(), rtol=1e-4, atol=1e-4, equal_nan=True)
    for function in (softmax, log_softmax):
        actual, exact = (function(t, mask=bits_of(keeps), **options) for t in (x, x.double()))
        torch.testing.assert_close(actual.double(), exact, rtol=1e-4, atol=1e-4, equal_nan=True)
        torch.testing.assert_close(exact, function(x.double(), mask=keeps, **options), equal_nan=True)


def test_bits_along_another_dimension_and_hidden_states(where):
    x, keeps = torch.randn(3, 70, 4, device=where), torch.rand(3, 1, 4, 70, device=where)[:, 0] < 0.5
    words = bits_of(keeps).movedim(-1, 1)
    torch.testing.assert_close(softmax(x, 1, mask=words), softmax(x, 1, mask=keeps.movedim(-1, 1)), equal_nan=True)
    ids = torch.randint(70, (3, 4), device=where)
    torch.testing.assert_close(
        token_log_probs(x, ids, dim=1, mask=words), token_log_probs(x, ids, dim=1, mask=keeps.movedim(-1, 1)), equal_nan=True
    )
    hidden, weight = torch.randn(3, 4, 8, device=where), torch.randn(70, 8, device=where)
    for mask in (bits_of(keeps), keeps[:1, :1]):
        whole = token_log_probs(hidden @ weight.t(), ids, mask=mask)
        parts = linear_token_log_probs(hidden, weight, ids, mask=mask, chunk_rows=5)
        torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_ids_are_packed_into_bits(where):
    ids = torch.tensor([[3, 31, 32, 3, -1], [69, 0, 0, -1, -1]], device=where)
    keeps = torch.zeros(2, 70, dtype=torch.bool, device=where)
    keeps[0, [3, 31, 32]], keeps[1, [0, 69]] = True, True
    for words in (tokens.pack(ids, 70), tokens.pack(ids.int(), 70), reference.packed(ids, 70)):
        assert torch.equal(reference.unpacked(words, 70, -1), keeps)
    x = torch.randn(2, 70, device=where)
    torch._dynamo.reset()
    packed = torch.compile(lambda x, ids: token_log_probs(x, ids[:, 0], kept=ids), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(packed(x, ids), token_log_probs(x, ids[:, 0], mask=keeps))
    mapped = torch.func.vmap(lambda x, ids: token_log_probs(x, ids[0], kept=ids))(x, ids)
    torch.testing.assert_close(mapped, token_log_probs(x, ids[:, 0], mask=keeps))
