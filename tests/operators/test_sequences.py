"""The property of all calls: in any sequence in one process, a call is right, and has the bits of a first call."""

import os

import pytest
import torch
from calls import assert_same, recording, results, seen
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from random_calls import Calls

from portable_softmax import batch_invariant
from portable_softmax.operators import launch

pytestmark = pytest.mark.kernel


def test_calls_of_a_process_are_right_in_any_order(where, monkeypatch):
    monkeypatch.setattr(Calls, "where", where)
    count = int(os.environ.get("RANDOM_CALLS", "300"))
    phases = Phase.explicit, Phase.reuse, Phase.generate  # calls take too long to be made small
    options = {"max_examples": count // 20, "stateful_step_count": 20, "deadline": None, "phases": phases}
    run_state_machine_as_test(Calls, settings=settings(**options))


def neighbours(where):
    """Yields (arguments of a call, changes in one element of its key). `dys` are gradients of the results."""
    x, dy, rows, ids = torch.randn(4, 4), torch.randn(4, 4), torch.rand(4, 1) + 0.5, torch.tensor([1, 3, -100, 0])
    x, dy, rows, ids, flat = (t.to(where) for t in (x, dy, rows, ids, torch.randn(17)))
    leaf, unaligned, mask, added = x.clone().requires_grad_(), flat[1:].view(4, 4), dy > 0, torch.randn(4, 4, device=where)
    mask[0], two, every = False, torch.stack([ids, ids], -1), {"entropy": True, "return_lse": True}
    with torch.inference_mode():
        inference = torch.empty(4, 4, device=where)

    def layouts(name, t):
        return [{name: t.t()}, {name: unaligned}, {name: t[:2]}, {name: t.bfloat16()}, {name: t.double()}]

    def numbers(name):
        return [{name: number} for number in (1.0, 1, True, 2.0**-70, 0.0, None)]

    wrong = [{}, {"dim": 0}, {"dim": True}, {"dim": 1}, {"softcap": 1.0}, {"softcap": True}, {"softcap": 2.0}]
    stepped, square = rows.expand(4, 2)[:, ::2], flat.as_strided((4, 4), (1, 1))
    of_rows = rows.bfloat16(), rows.double(), stepped, square, rows.clone().requires_grad_(), rows[:1]
    for name in ("scale", "temperature", "sink"):
        yield {"x": x, name: rows}, [{name: t} for t in of_rows]
    for name in ("scale", "temperature"):
        yield {"x": x, "function": "log_probs", "ids": ids, name: rows}, [{name: t} for t in of_rows]
        yield {"x": x, name: 1.0}, numbers(name)
    yield {"x": x}, [*wrong, *layouts("x", x),
        {"function": "log_softmax"}, {"causal": True}, {"causal": "lower_right"}, {"causal": 1}, {"dtype": torch.float32},
        {"dtype": torch.float64}, {"masked_rows": "zero"}, {"invariant": True}, {"x": leaf}, {"x": leaf, "no_grad": True},
    ]  # fmt: skip
    yield {"x": leaf}, [{"no_grad": True}]
    for function in ("softmax", "log_probs"):
        also = {"ids": ids} if function == "log_probs" else {}
        yield {"x": x, "function": function, "softcap": 1.0} | also, [{"softcap": True}, {"softcap": 2.0}]
    yield {"x": x, "dim": 1, "causal": True}, [{"dim": True}, {"causal": 1}]
    yield {"x": x.bfloat16()}, [{"dtype": torch.float32}, {"dtype": torch.float16}, {"autocast": True}]
    yield (
        {"x": x, "mask": mask, "masked_rows": "zero"},
        [{"masked_rows": "nan"}, {"mask": mask.t()}, {"mask": mask[:1]}, {"mask": added}],
    )
    yield {"x": x, "mask": added}, [*layouts("mask", added), {"mask": added.clone().requires_grad_()}]
    separate = torch.empty_like(x)
    outs = separate.t(), separate[:2], separate.bfloat16(), leaf, inference, x, unaligned
    yield {"x": x, "out": separate}, [{"out": out} for out in outs] + [{"x": leaf}, {"x": leaf, "no_grad": True}]
    gradient = {"x": leaf, "dys": [dy]}
    leaves = [{"x": t.detach().requires_grad_()} for t in (x.t(), unaligned, x.bfloat16(), x.bfloat16().t())]
    more = [{"function": "log_softmax"}, {"dim": 0}, {"causal": True}, {"invariant": True}]
    more += [{"dys": [dy.t()]}, {"dys": [unaligned]}]
    yield gradient, more + leaves
    yield gradient | {"softcap": 1.0}, [*more, *leaves, {"softcap": 2.0}]
    yield gradient | {"dtype": torch.float32}, leaves
    for name in ("scale", "temperature"):
        yield gradient | {name: 0.5}, [*numbers(name), {name: rows}, {name: rows.bfloat16()}, {name: rows[:1]}]
    tokens = {"x": x, "function": "log_probs", "ids": ids}
    others = [{"ids": t} for t in (ids.int(), two[:, 0], two, two[:, :1], ids.double(), ids[:2])]
    others += [{"ids": two.t().contiguous().t()}, {"ignore_index": 1}, {"ignore_index": True}, {"invariant": True}]
    statistics = [{"entropy": True}, {"entropy": 1}, {"return_lse": True}, {"return_lse": 1}, every]
    yield tokens, [*wrong, *others, *statistics, *layouts("x", x), *numbers("scale"), *numbers("temperature"), {"x": leaf}]
    yield tokens | {"x": leaf, "dim": 1}, [{"dim": True}, {"no_grad": True}]
    d_out = dy[0].contiguous()
    gradient = tokens | {"x": leaf, "dys": [d_out]}
    stepped = [{"dys": [dy[:, 0]]}, {"dys": [flat[1:5]]}, {"grad_inplace": True}, {"dim": 0}]
    yield gradient | {"ids": two, "dys": [dy[:, :2]]}, [{"dys": [two.float()]}]
    yield gradient | {"softcap": 1.0}, [{"softcap": 2.0}]
    yield gradient, [*others[:2], *others[7:], *stepped, *leaves, {"softcap": 1.0}, {"softcap": 2.0}]
    yield gradient | {"ids": two, "dys": [dy[:, :2]]}, [{"ids": two.flip(0).int()}, {"ids": two.t().contiguous().t()}]
    yield gradient | every, [{"dys": dys} for n in range(7) if (dys := [d_out if n >> k & 1 else None for k in range(3)])]
    yield (
        gradient | every | {"dys": [d_out] * 3},
        [{"dys": [dy[:, 0] if at == k else d_out for at in range(3)]} for k in range(3)],
    )
    for name in ("scale", "temperature"):
        yield gradient | {name: 0.5}, [*numbers(name), {name: rows}, {name: rows.bfloat16()}, {name: rows[:1]}]


def called(
    launched, x, function="softmax", dim=-1, dys=(), invariant=False, no_grad=False, autocast=False, **options
):  # fmt: skip
    """Returns a call without arguments: of its results and gradients, of a new tensor if it may be written over."""

    def call():
        in_place = options.get("out") is x
        t = x * 1 if in_place or "grad_inplace" in options else x
        more = options | ({"out": t} if in_place else {})
        cast = torch.autocast(x.device.type, torch.bfloat16, autocast)
        with batch_invariant(invariant), torch.set_grad_enabled(not no_grad), cast:
            try:
                ys = results(function, t, dim, **more)
                used = [(y, dy.to(y.dtype)) for y, dy in zip(ys, dys, strict=False) if dy is not None]
                grads = torch.autograd.grad([y for y, _ in used], t, [dy for _, dy in used]) if used else ()
                return [*ys, *grads]
            except (TypeError, ValueError, IndexError, RuntimeError) as error:
                launched.append(type(error))
                return []

    return call


def test_calls_that_differ_in_one_element_of_a_key(where):
    """One after another and in the reverse order, they are as first calls."""
    launched = []
    with recording(launched):
        for arguments, changes in neighbours(where):
            calls = [called(launched, **(arguments | change)) for change in ({}, *changes)]
            first = [seen(call, {}, launched)[1:] for call in calls]
            for order in (1, -1):
                dictionary = {}
                for call, expected in list(zip(calls, first, strict=True))[::order]:
                    assert_same(seen(call, dictionary, launched)[1:], expected)


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
