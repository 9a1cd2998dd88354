"""sample_token: tokens that depend on scores, seed and position alone; their distribution and log-probabilities."""

import pytest
import torch

from portable_softmax import batch_invariant, sample_token, token_log_probs
from portable_softmax.api.tokens import SAMPLE
from portable_softmax.operators import reference

pytestmark = [pytest.mark.kernel, pytest.mark.xdist_group("compilers")]

ONES = 0xFFFFFFFF
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
KNOWN = {  # Random123, tests/kat_vectors: (rounds, counter, key) and the words
    (7, (0,) * 4, (0,) * 2): "5f6fb709 0d893f64 4f121f81 4f730a48",
    (7, (ONES,) * 4, (ONES,) * 2): "5207ddc2 45165e59 4d8ee751 8c52f662",
    (7, *PI): "4dfccaba 190a87f0 c47362ba b6b5242a",
    (10, (0,) * 4, (0,) * 2): "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    (10, (ONES,) * 4, (ONES,) * 2): "408f276d 41c83b0e a20bc7c6 6d5451fd",
    (10, *PI): "d16cfe09 94fdcceb 5001e420 24126ea1",
}
# Of rows(); they may not change within a major version.
IDS = [337, 877, 647, 885, 855, 206, 596, 239, 896, 564, 705, 465, 129, 230, 492, 220, 549, 792, 110, 839]


def rows(where):
    """Returns 20 rows of exact scores, their seeds and positions."""
    scores = (torch.arange(20)[:, None] * 7919 + torch.arange(1000) * 104729) % 1009
    seeds = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63)]).repeat_interleave(4)
    positions = torch.tensor([0, 1, 2**32, 2**63 - 1]).repeat(5)
    return (scores / 128).to(where), seeds.to(where), positions.to(where)


def test_random_words_are_those_of_random123():
    for (rounds, counter, key), words in KNOWN.items():
        values = [[torch.tensor(word) for word in part] for part in (counter, key)]
        assert " ".join(f"{int(word):08x}" for word in reference.philox(*values, rounds)) == words


def test_tokens_are_those_of_this_major_version(where):
    x, seed, position = rows(where)
    assert sample_token(x, seed=seed, position=position)[0].tolist() == IDS


def test_a_token_depends_on_scores_seed_and_position_alone(where):
    x, seed, position = rows(where)
    temperature = torch.linspace(0.0, 1.5, 20, device=where)[:, None]
    for t in (None, 0.8, temperature):
        ids, log_probs = sample_token(x, temperature=t, seed=seed, position=position)
        of_reference = reference.sample(SAMPLE.Args(x, None, t, None, seed, position), SAMPLE.Options(None))
        assert torch.equal(ids, of_reference[0])
        torch.testing.assert_close(log_probs, of_reference[1], rtol=1e-5, atol=1e-5)
        order = torch.randperm(20, device=where)
        factors = {"temperature": t[order] if isinstance(t, torch.Tensor) else t}
        assert torch.equal(sample_token(x[order], seed=seed[order], position=position[order], **factors)[0], ids[order])
        for at in (0, 7, 19):
            factors = {"temperature": t[at : at + 1] if isinstance(t, torch.Tensor) else t}
            key = {"seed": int(seed[at]), "position": int(position[at])}
            assert torch.equal(sample_token(x[at : at + 1], **key, **factors)[0], ids[at : at + 1])
        memory = torch.zeros(20, 1003, device=where)
        memory[:, 1:1001] = x
        lies = memory[:, 1:1001], x.t().contiguous().t(), x.double(), x.half()
        words = torch.full((1, 32), -1, dtype=torch.int32, device=where)
        for other in lies:
            key = {"seed": seed.to(where), "position": position}
            assert torch.equal(sample_token(other, temperature=t, **key)[0], ids)
            assert torch.equal(sample_token(other, temperature=t, mask=words, **key)[0], ids)


def test_log_probabilities_have_the_bits_of_token_log_probs(where):
    x, seed, position = rows(where)
    words = torch.randint(-(2**31), 2**31, (20, 32), dtype=torch.int32, device=where)
    temperature = torch.linspace(0.0, 1.5, 20, device=where)[:, None]
    for options in ({}, {"temperature": 0.7, "softcap": 5.0}, {"temperature": temperature, "mask": words}):
        for dtype in (torch.float32, torch.bfloat16):
            with batch_invariant():
                ids, log_probs = sample_token(x.to(dtype), seed=seed, position=position, **options)
                assert torch.equal(log_probs, token_log_probs(x.to(dtype), ids, **options))
                part = {n: o[:3] if isinstance(o, torch.Tensor) else o for n, o in options.items()}
                some = sample_token(x[:3].to(dtype), seed=seed[:3], position=position[:3], **part)
                assert torch.equal(some[1], log_probs[:3])
    assert not sample_token(x.requires_grad_(), seed=0)[1].requires_grad


@pytest.mark.parametrize(("size", "temperature", "min_p"), [(5, 1.0, None), (37, 0.7, None), (203, 1.3, None), (37, 1.0, 0.2)])
def test_frequencies_are_probabilities(where, size, temperature, min_p):
    """z of a chi-square by Wilson and Hilferty; in the interpreter of few draws, of which the reference makes more."""
    scores = torch.randn(size, generator=torch.Generator().manual_seed(size))
    p = (scores.double() / temperature).softmax(-1)
    p = torch.where(p < (min_p or 0) * p.max(), 0.0, p)
    n = 100_000
    ids, _ = reference.sample(
        SAMPLE.Args(scores.expand(n, size), None, temperature, min_p, 3, torch.arange(n)), SAMPLE.Options(None)
    )
    few, _ = sample_token(
        scores.to(where).expand(50, size), temperature=temperature, min_p=min_p, seed=3, position=torch.arange(50, device=where)
    )
    assert torch.equal(few.cpu(), ids[:50])
    counts, expected = ids.bincount(minlength=size).double(), p / p.sum() * n
    assert (counts[expected == 0] == 0).all()
    often = expected > 5
    freedom = int(often.sum()) - 1
    square = ((counts - expected)[often] ** 2 / expected[often]).sum()
    z = ((square / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / (2 / (9 * freedom)) ** 0.5
    assert abs(z) < 3


def test_greedy_rows_and_rows_without_a_token(where):
    x = torch.zeros(6, 40, device=where)
    x[0, [9, 8, 30]], x[1, 3], x[2, 4], x[3] = 2.0, torch.nan, torch.inf, -torch.inf
    mask = torch.ones(6, 40, dtype=torch.bool, device=where)
    mask[4], mask[5, 1:] = False, False
    for x, mask in ((x, mask), (x.double(), mask)):  # noqa: B020 - of the reference too
        for temperature in (0.0, None):
            ids, log_probs = sample_token(x, temperature=temperature, mask=mask, seed=1)
            assert ids[1:].tolist() == [-1, -1, -1, -1, 0]
            assert log_probs[1:5].isnan().all()
            assert log_probs[5] == 0
        ids, log_probs = sample_token(x, temperature=0, min_p=0.5, seed=1)
        assert ids[0] == 8
        hidden = torch.where(torch.arange(40, device=where) == 5, -torch.inf, 0.0)  # whatever is there
        x[0, 5] = torch.inf
        assert sample_token(x, temperature=0, mask=hidden, seed=1)[0][0] == 8
        torch.testing.assert_close(log_probs[0], torch.tensor(1 / 3).log().to(log_probs[0]))


def test_compilers_see_an_operator(where):
    x, seed, _ = rows(where)
    words = torch.randint(-(2**31), 2**31, (20, 32), dtype=torch.int32, device=where)
    temperature = torch.full((20, 1), 0.7, device=where)

    def call(x, seed):
        return sample_token(x * 1, temperature=temperature, min_p=0.1, mask=words, seed=seed, position=3)

    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(call, fullgraph=True, backend="aot_eager")(x, seed), call(x, seed))
    vmapped = torch.func.vmap(lambda x: sample_token(x, seed=5)[0])(x)
    assert torch.equal(vmapped, sample_token(x, seed=5)[0])
