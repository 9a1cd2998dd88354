"""The property of all calls: in any sequence in one process, a call is right, and has the bits of a first call."""

import os

import pytest
import torch
from calls import assert_same, recording, results, seen
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from random_calls import CHOICES, Calls, call_of

from portable_softmax.operators import launch

pytestmark = pytest.mark.kernel


def test_calls_of_a_process_are_right_in_any_order(where, monkeypatch):
    monkeypatch.setattr(Calls, "where", where)
    count = int(os.environ.get("RANDOM_CALLS", "200"))
    phases = Phase.explicit, Phase.reuse, Phase.generate  # calls take too long to be made small
    options = {"max_examples": count // 20, "stateful_step_count": 20, "deadline": None, "phases": phases}
    with recording(Calls.launched):
        run_state_machine_as_test(Calls, settings=settings(**options))


FIRST = {name: choices[0] for name, choices in CHOICES.items()}
BASES = [
    FIRST, {"mode": "out", "mask": "added"}, {"mode": "grad", "function": "log_softmax", "softcap": 1.5},
    {"function": "log_probs", "temperature": 0.5}, {"function": "log_probs", "mode": "grad", "return_lse": True},
    {"mode": "grad", "scale": "rows", "mask": "bool", "needs": ("scale",)},
]  # fmt: skip


@pytest.mark.parametrize("base", BASES, ids=str)
def test_calls_that_differ_in_one_choice(where, base):
    """One after another and in the reverse order, they are as first calls."""
    launched, base = [], FIRST | base
    with recording(launched):
        for name in CHOICES.keys() - {"seed", "ignored"}:
            calls = [call_of(base | {name: value}, where)[0] for value in dict.fromkeys(CHOICES[name])]
            first = [seen(call, {}, launched)[1:] for call in calls]
            for order in (1, -1):
                dictionary = {}
                for call, expected in list(zip(calls, first, strict=True))[::order]:
                    assert_same(seen(call, dictionary, launched)[1:], expected)


EQUAL = ("dim", 1, True), ("causal", True, 1), ("softcap", 1.0, True)
EQUAL_OF_TOKENS = (
    ("dim", 1, True),
    ("softcap", 1.0, True),
    ("entropy", True, 1),
    ("return_lse", True, 1),
    ("ignore_index", 1, True),
)


@pytest.mark.parametrize(("function", "cases"), [("softmax", EQUAL), ("log_probs", EQUAL_OF_TOKENS)])
def test_options_that_are_equal_but_of_another_type_are_refused(where, function, cases):
    x, ids = torch.randn(4, 4, device=where), {"ids": torch.zeros(4, dtype=torch.long, device=where)}
    for name, right, wrong in cases:
        options = {"dim": -1} | (ids if function == "log_probs" else {})
        results(function, x, **options | {name: right})
        with pytest.raises((TypeError, ValueError)):
            results(function, x, **options | {name: wrong})


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
