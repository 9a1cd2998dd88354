"""The property of all calls: in any sequence in one process, a call is right, and has the bits of a first call."""

import pytest
import torch
from random_calls import Calls, recording, results

from portable_softmax import token_log_probs
from portable_softmax.operators import launch

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("seed", range(3))
def test_calls_of_a_process_are_right_in_any_order(where, seed):
    assert not Calls(seed, where).run(100)


def test_what_random_calls_seldom_tell_apart(where):
    """A result over its input, and masks that are not aligned, after calls that are alike but for that."""
    x, unaligned = torch.randn(3, 40, device=where), torch.zeros(121, device=where)[1:].view(3, 40)

    def over(y):
        return results("softmax", y, -1, out=y)

    calls = Calls(0, where)
    with recording(calls.launched):
        for call in (
            lambda: results("softmax", x, -1, out=torch.empty_like(x)), lambda: over(x.clone()),
            lambda: results("softmax", x, -1, mask=torch.zeros_like(x)), lambda: results("softmax", x, -1, mask=unaligned),
        ):  # fmt: skip
            calls.as_first(call)


def test_numbers_share_launches(where):
    x = torch.randn(3, 40, device=where)
    launch.calls.clear()
    for number in (0.5, 0.7, 1.5, 3):
        for call in ({"temperature": number}, {"scale": number, "temperature": 0.9}):
            results("softmax", x, -1, **call)
    assert len(launch.calls) <= 4  # an int is another type
    results("softmax", x, -1, temperature=0.0)  # is greedy, and no number to multiply by
    assert (results("softmax", x, -1, temperature=0.0)[0].amax(-1) == 1).all()


def test_the_dictionary_is_bounded(where, monkeypatch):
    monkeypatch.setattr(launch, "MAX_CALLS", 4)
    for n_cols in range(1, 12):
        x = torch.randn(2, n_cols, device=where)
        torch.testing.assert_close(results("softmax", x, -1)[0], x.softmax(-1))
        assert len(launch.calls) <= 4


@pytest.mark.parametrize(("right", "wrong"), [({"entropy": True}, {"entropy": 1}), ({"return_lse": True}, {"return_lse": 1}),
                                             ({"ignore_index": 1}, {"ignore_index": True})])  # fmt: skip
def test_wrong_options_that_equal_right_ones_are_refused(where, right, wrong):
    x, ids = torch.randn(3, 40, device=where), torch.arange(3, device=where)
    token_log_probs(x, ids, **right)
    with pytest.raises(TypeError):
        token_log_probs(x, ids, **wrong)
