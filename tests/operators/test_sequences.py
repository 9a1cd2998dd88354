"""The property of all calls: in any sequence in one process, a call is right, and has the bits of a first call.

Calls are random, and differ in few choices from the one before, so that they meet each other's launches. Each is compared with
the same call in float64, which the reference computes; and with itself as the first call of an empty dictionary, bit for bit,
and in what is launched.
"""

import contextlib
import os
from functools import partial
from unittest import mock

import pytest
import torch
from calls import in_double, recording, results
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from portable_softmax import batch_invariant
from portable_softmax.operators import launch
from portable_softmax.runtime import plans

pytestmark = pytest.mark.kernel
ERRORS = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
FACTORS = None, None, None, 0.5, 2.0, -1.5, "rows", "one row", "negative rows", "bfloat16 rows"
LAYOUTS = "contiguous", "contiguous", "transposed", "unaligned", "stepped"
CHOICES = {
    "function": ("softmax", "softmax", "log_softmax", "log_probs"),
    "mode": ("plain", "grad", "grad", "grad", "no_grad", "inference", "autocast", "out", "in place"),
    "shape": ((4, 4), (2, 4), (2, 3, 5), (3, 40)),
    "dtype": (torch.float32, torch.float32, torch.float32, torch.bfloat16, torch.float16),
    "dim": (-1, -1, -1, 0),
    "layout": LAYOUTS,
    "other layout": LAYOUTS,
    "invariant": (False, False, True),
    "scale": FACTORS,
    "temperature": (*FACTORS, 0.0, "greedy rows"),
    "softcap": (None, None, None, 1.5, 30.0),
    "mask": (None, None, None, None, "bool", "added", "added bfloat16", "bits", "kept"),
    "shared dims": ((), (), (0,), (1,), (0, 1)),
    "causal": (False, False, False, True, "lower_right"),
    "sink": (None, None, None, 0.5, "rows"),
    "masked_rows": ("nan", "nan", "zero"),
    "result": (None, None, None, None, torch.float32, torch.float16, torch.bfloat16),
    "ids": ((), (), (1,), (3,)),
    "ignored": (0.1, 0.6, 1.0),
    "ignore_index": (-100, -100, 1),
    "id dtype": (torch.int64, torch.int32),
    "entropy": (False, False, True),
    "return_lse": (False, False, True),
    "grad_inplace": (False, False, True),
    "needs": ((), ("scale",), ("mask", "temperature"), ("sink", "temperature"), ("scale", "temperature", "mask", "sink")),
    "seed": range(1000),
}
STRATEGIES = {name: st.sampled_from(choices) for name, choices in CHOICES.items()}
CHANGES = st.sampled_from(list(CHOICES)).flatmap(lambda name: st.tuples(st.just(name), STRATEGIES[name]))


class Calls(RuleBasedStateMachine):
    """Calls, of which each differs in one to four choices from the one before."""

    where, launched = torch.device("cpu"), []

    @initialize(choices=st.fixed_dictionaries(STRATEGIES))
    def first(self, choices):
        launch.calls.clear()
        self.choices = choices
        check(choices, self.where, self.launched)

    @rule(changes=st.lists(CHANGES, min_size=1, max_size=4))
    def changed(self, changes):
        self.choices = self.choices | dict(changes)
        check(self.choices, self.where, self.launched)


def arguments_of(choices, where):
    """Returns (x, options) of a call."""
    torch.manual_seed(choices["seed"])
    shape, dim = choices["shape"], choices["dim"] % len(choices["shape"])
    row_shape = [1 if at == dim else size for at, size in enumerate(shape)]
    lead = [size for at, size in enumerate(shape) if at != dim]
    x = laid_out(torch.randn(shape, device=where).mul(2).to(choices["dtype"]), choices["layout"])

    def number_or_rows(kind):
        if not isinstance(kind, str):
            return kind
        rows = torch.rand([1] * len(shape) if kind == "one row" else row_shape, device=where) + 0.5
        rows = torch.where(torch.rand_like(rows) < 0.3, 0.0, rows) if kind == "greedy rows" else rows
        return (-rows if "negative" in kind else rows).to(torch.bfloat16 if "bfloat16" in kind else torch.float32)

    options = {name: number_or_rows(choices[name]) for name in ("scale", "temperature", "softcap")}
    options["masked_rows"] = choices["masked_rows"]
    kind, sizes = choices["mask"], [1 if at in choices["shared dims"] else size for at, size in enumerate(shape)]
    if kind == "bits":
        words = torch.randint(-(2**31), 2**31, sizes, dtype=torch.int32, device=where)
        options["mask"] = words.narrow(dim, 0, 1).repeat_interleave(-(-shape[dim] // 32), dim)
    elif kind == "kept" and choices["function"] == "log_probs":
        options["kept"] = torch.randint(-1, shape[dim], (*lead, 4), device=where)
    elif kind and kind != "kept":
        added = torch.where(torch.rand(sizes, device=where) < 0.3, -torch.inf, torch.randn(sizes, device=where))
        options["mask"] = {"bool": added > -1.0, "added bfloat16": added.bfloat16()}.get(kind, added)
    if choices["function"] == "log_probs":
        ids = torch.randint(0, shape[dim], (*lead, *choices["ids"]), device=where)
        ids = torch.where(torch.rand(ids.shape, device=where) < choices["ignored"], -100, ids).to(choices["id dtype"])
        options |= {"ids": ids} | {name: choices[name] for name in ("entropy", "return_lse", "ignore_index")}
    else:
        options |= {"causal": dim == len(shape) - 1 and choices["causal"], "sink": number_or_rows(choices["sink"])}
        if choices["mode"] not in ("out", "in place"):
            options["dtype"] = choices["result"]
    lie = choices["other layout"]
    return x, {n: laid_out(o, lie) if n in ("mask", "ids") else o for n, o in options.items() if o is not None}


def call_of(choices, where):
    """Returns (a call without arguments, its results and gradients in float64, the number of results, their error)."""
    (x, options), function, mode, dim = arguments_of(choices, where), choices["function"], choices["mode"], choices["dim"]
    mode = "plain" if function == "log_probs" and mode in ("out", "in place") else mode
    in_place, before = function == "log_probs" and mode == "grad" and choices["grad_inplace"], x.clone()
    differentiable = [n for n, o in options.items() if isinstance(o, torch.Tensor) and o.is_floating_point()]
    needs = [n for n in choices["needs"] if mode == "grad" and n in differentiable]
    around = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(mode, contextlib.nullcontext)
    if mode == "autocast":
        around = partial(torch.autocast, x.device.type, dtype=torch.bfloat16)
    tensors = {n: options[n].double().requires_grad_() for n in needs}
    leaves = [x.detach().double().requires_grad_(), *tensors.values()]
    exact = list(in_double(function, leaves[0], dim, options | tensors))
    has_gradient = mode == "grad" and not any(y.isnan().any() for y in exact)
    dys = [torch.randn_like(y).masked_fill(~y.isfinite(), 0.0) for y in exact]

    def call():
        leaf = x.detach().requires_grad_(mode in ("grad", "no_grad"))
        tensors, more = {n: options[n].detach().requires_grad_() for n in needs}, {"grad_inplace": True} if in_place else {}
        logits = leaf * 1 if in_place else leaf
        version = logits._version
        if mode == "out":
            more["out"] = laid_out(torch.empty(x.shape, dtype=x.dtype, device=where), choices["other layout"])
        elif mode == "in place":
            more["out"] = logits = x.clone(memory_format=torch.preserve_format)
        with around(), batch_invariant(choices["invariant"]):
            ys = results(function, logits, dim, **options | tensors, **more)
        assert mode == "grad" or not any(y.requires_grad for y in ys), "a call that is not recorded"
        if not has_gradient:
            return ys
        pairs = [(y, laid_out(dy.to(y.dtype), choices["other layout"])) for y, dy in zip(ys, dys, strict=True)]
        gradients = gradients_of(pairs, [leaf, *tensors.values()])
        is_written = in_place and logits._version > version
        expected = gradients[0] if is_written else before
        assert torch.equal(logits.detach().nan_to_num(), expected.nan_to_num()), "in place, or not"
        return *ys, *gradients

    gradients = gradients_of(list(zip(exact, dys, strict=True)), leaves) if has_gradient else []
    return call, [*exact, *gradients], len(exact), max(ERRORS[x.dtype], ERRORS[options.get("dtype", x.dtype)])


def check(choices, where, launched):
    """Checks results and gradients of a call beside float64, and beside a first call."""
    call, exact, n_results, error = call_of(choices, where)
    first, first_launched = seen(call, {}, launched)
    actual, now_launched = seen(call, launch.calls, launched)
    assert now_launched == first_launched
    for at, (result, again, double) in enumerate(zip(actual, first, exact, strict=True)):
        assert result.requires_grad == again.requires_grad
        torch.testing.assert_close(
            result, again, rtol=0, atol=0, equal_nan=True, msg=f"result {at} has other bits than at first"
        )
        largest, allowed = 1.0, error
        if at >= n_results:  # a gradient
            largest, allowed = max(1.0, double.abs().max().item()), 10 * max(error, ERRORS[result.dtype])
        near = double.detach().clamp(-6e4, 6e4)  # float16 has no numbers beyond 65504
        close = {"rtol": allowed, "atol": allowed * largest, "equal_nan": True}
        torch.testing.assert_close(result.detach().double().clamp(-6e4, 6e4), near, **close)


def seen(call, dictionary, launched):
    """Returns the results of a call with a dictionary of launches, and what was launched."""
    launched.clear()
    with mock.patch.object(launch, "calls", dictionary):
        return call(), list(launched)


def gradients_of(pairs, leaves):
    """Returns gradients of results, of which some need none; zeros for None."""
    used = [(y, dy) for y, dy in pairs if y.requires_grad]
    grads = torch.autograd.grad([y for y, _ in used], leaves, [dy for _, dy in used], allow_unused=True)
    return [torch.zeros_like(leaf) if dx is None else dx for dx, leaf in zip(grads, leaves, strict=True)]


def laid_out(x, layout):
    """Returns a tensor in a layout."""
    if layout == "transposed" and x.dim() > 1:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "unaligned":
        return torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)[1:].view(x.shape).copy_(x)
    return torch.stack([x, x], -1)[..., 0] if layout == "stepped" else x


def test_calls_of_a_process_are_right_in_any_order(where, monkeypatch):
    monkeypatch.setattr(Calls, "where", where)
    count = int(os.environ.get("RANDOM_CALLS", "120"))
    phases = Phase.explicit, Phase.reuse, Phase.generate  # calls take too long to be made small
    options = {"max_examples": count // 20, "stateful_step_count": 20, "deadline": None, "phases": phases}
    with recording(Calls.launched):
        run_state_machine_as_test(Calls, settings=settings(**options))


EQUAL = [
    ("softmax", "dim", 1, True), ("softmax", "causal", True, 1), ("softmax", "softcap", 1.0, True),
    ("log_probs", "entropy", True, 1), ("log_probs", "return_lse", True, 1),
]  # fmt: skip


@pytest.mark.parametrize(("function", "name", "valid", "equal"), EQUAL)
def test_options_that_are_equal_but_of_another_type_are_refused(where, function, name, valid, equal):
    x, common = torch.ones(4, 4, device=where), {"dim": -1, "ids": torch.zeros(4, dtype=torch.long, device=where)}
    common = common if function == "log_probs" else {"dim": -1}
    results(function, x, **common | {name: valid})
    with pytest.raises((TypeError, ValueError)):
        results(function, x, **common | {name: equal})


def test_numbers_share_launches(where, monkeypatch):
    x = torch.randn(3, 40, device=where)
    launch.calls.clear()
    for number in (0.5, 0.7, 1.5, 3):
        for call in ({"temperature": number}, {"scale": number, "temperature": 0.9}):
            results("softmax", x, -1, **call)
    assert (count := len(launch.calls)) <= 4  # an int is another type
    monkeypatch.setattr(plans, "n_measured", plans.n_measured + 1)  # a launch that was measured replaces those of earlier calls
    results("softmax", x, -1, temperature=0.5)
    assert len(launch.calls) == count + 1
    results("softmax", x, -1, temperature=0.0)  # is greedy, and no number to multiply by
    assert (results("softmax", x, -1, temperature=0.0)[0].amax(-1) == 1).all()


def test_the_dictionary_is_bounded(where, monkeypatch):
    monkeypatch.setattr(launch, "MAX_CALLS", 4)
    for n_cols in range(1, 12):
        x = torch.randn(2, n_cols, device=where)
        torch.testing.assert_close(results("softmax", x, -1)[0], x.softmax(-1))
        assert len(launch.calls) <= 4
