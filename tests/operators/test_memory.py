"""A call after others like it gives what it would give as the first one: its result, its gradient, or its error."""

import contextlib
import gc
import weakref

import pytest
import torch
from calls import LAYOUTS, few
from closeness import expected
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import PAIRS

from portable_softmax import batch_invariant, softmax
from portable_softmax.operators import memory

pytestmark = pytest.mark.kernel

FACTS = {  # of a call, the usual ones first
    "form": ["softmax", "log_softmax", "softmin"],
    "dim": [1, 0, -1],
    "rows": [4, 3],
    "seed": [1, 2],
    "dtype": [torch.float32, torch.bfloat16, torch.float64],
    "result": [None, torch.float32, torch.float64],
    "layout": ["contiguous", "transposed", "padded", "unaligned"],
    "needs a gradient": [False, True],
    "gradients": [True, False],
    "surroundings": ["none", "inference", "vmap", "vmap of rows", "grad", "meta"],
    "invariant": [False, True],
    "temperature": [None, "rows", "one", 0.5, 2, "rows that need a gradient", "of float64", "padded"],
    "scale": [None, 0.5, "one"],
    "mask": [None, "columns", "each", "added"],
    "softcap": [None, 3.0],
    "sink": [None, 0.5, "rows"],
    "masked rows": [None, "zero"],
    "out": [None, "apart", "in place", "a view", "transposed", "needs a gradient", "of inference", "partly under"],
}


@st.composite
def sequences(draw, fact):
    """Returns calls of two kinds that differ in a fact; the first has been repeated once the second comes."""
    one = {name: draw(st.sampled_from(values[:1] * 4 + values)) for name, values in FACTS.items()}
    other = one | {fact: draw(st.sampled_from([each for each in FACTS[fact] if each is not one[fact]]))}
    return [one, one, one, other, one, other]


def options_of(call, values, where):
    rows = torch.rand(call["rows"], 1, generator=torch.Generator().manual_seed(call["seed"])) + 0.5
    by_row = (rows.view(1, -1)[:, :1] if call["dim"] == 0 else rows).to(where)
    numbers = {
        "rows": by_row, "one": rows[0, 0].to(where), "rows that need a gradient": by_row.clone().requires_grad_(),
        "of float64": by_row.double(), "padded": torch.cat([by_row, by_row], 1)[:, :1],
    }  # fmt: skip
    masks = {
        "columns": torch.arange(24, device=where) % 3 > 0, "each": (values > -1).to(where),
        "added": torch.where(values > -1, values, -torch.inf).to(where),
    }  # fmt: skip
    found = {name: numbers.get(call[name], call[name]) for name in ("temperature", "scale", "sink")}
    found |= {"mask": masks.get(call["mask"]), "softcap": call["softcap"], "masked_rows": call["masked rows"]}
    return {name: each for name, each in found.items() if each is not None}


def out_of(name, x, dtype):
    """Returns a tensor for the result, or None."""
    if name == "partly under":  # of one memory with x, if x is contiguous
        return x.detach().view(-1).as_strided(x.t().shape, (x.shape[0], 1)).t() if x.is_contiguous() else None
    with torch.inference_mode(name == "of inference"):
        made = torch.empty(x.shape, dtype=dtype, device=x.device)
    return {
        None: None, "in place": x, "a view": x.view(x.shape), "transposed": made.t().contiguous().t(),
        "needs a gradient": made.requires_grad_() if name == "needs a gradient" else None,
    }.get(name, made)  # fmt: skip


def computed(call, x, options):
    """Returns the result of the call in its surroundings."""
    function = lambda x: PAIRS[call["form"]][0](x, call["dim"], call["result"], **options)  # noqa: E731
    where = call["surroundings"]
    if where == "inference":
        with torch.inference_mode():
            return function(x).clone()
    if where == "vmap":
        return torch.vmap(function)(x[None])[0]
    if where == "vmap of rows":
        return torch.vmap(lambda number, x: function(x) + number, in_dims=(0, None))(x[:, 0], x)
    if where == "grad":
        return torch.func.grad(lambda x: function(x).square().sum())(x)
    return function(x)


def outcome(call, where):
    """Returns the result and the gradients of a call, or its error's words."""
    values = torch.randn(call["rows"], 24, generator=torch.Generator().manual_seed(call["seed"]))
    x = LAYOUTS[call["layout"]](values.to(where, call["dtype"])).clone(memory_format=torch.preserve_format)
    x = LAYOUTS[call["layout"]](x).requires_grad_(call["needs a gradient"])
    options = options_of(call, values, where)
    if call["surroundings"] == "meta":
        x, options = x.to("meta"), {name: each.to("meta") if torch.is_tensor(each) else each for name, each in options.items()}
    try:
        with contextlib.nullcontext() if call["gradients"] else torch.no_grad(), batch_invariant(call["invariant"]):
            out = out_of(call["out"], x, call["result"] or call["dtype"])
            y = computed(call, x, options | ({} if out is None else {"out": out}))
        if y.is_meta:
            return y.dtype, y.requires_grad, y.stride(), []
        version = 0 if out is None or out.is_inference() else out._version
        dy = torch.linspace(-1, 1, y.numel(), device=where, dtype=y.dtype).view(y.shape)
        wanted = [each for each in (x, options.get("temperature")) if torch.is_tensor(each) and each.requires_grad]
        found = torch.autograd.grad(y, wanted, dy) if y.requires_grad and y.grad_fn else ()
    except (RuntimeError, NotImplementedError) as error:
        return f"{type(error)} {error}"
    return y.dtype, y.requires_grad, (y.stride(), version), [each.detach().clone() for each in (y, *found)]


@pytest.mark.parametrize("fact", FACTS)
@settings(few, max_examples=8)
@given(data=st.data())
def test_a_call_gives_what_it_would_give_as_the_first(where, fact, data):
    """Autograd is told of what was written, too."""
    calls = data.draw(sequences(fact))
    memory.forget()
    after = [outcome(call, where) for call in calls]
    firsts = []
    for call in (calls[0], calls[3]):
        memory.forget()
        firsts.append(outcome(call, where))
    for call, result in zip(calls, after, strict=True):
        first = firsts[call is calls[3]]
        if isinstance(first, str):
            assert result == first
        else:
            assert result[:3] == first[:3]
            torch.testing.assert_close(result[3], first[3], rtol=0, atol=0, equal_nan=True)


GIVEN = {
    "plain": dict,
    "a number": lambda: {"scale": 0.5},
    "two numbers": lambda: {"scale": 0.5, "temperature": 2},
    "rows": lambda: {"temperature": torch.rand(2, 3, 8, 1) + 0.1},
    "a mask": lambda: {"mask": torch.rand(2, 1, 1, 40) > 0.4, "scale": 0.125},
    "an added mask": lambda: {"mask": torch.randn(8, 40), "softcap": 5.0},
    "causal": lambda: {"causal": "lower_right", "masked_rows": "zero"},
    "a sink of each head": lambda: {"sink": torch.randn(3), "mask": torch.rand(2, 1, 8, 40) > 0.4},
    "one temperature for all": lambda: {"temperature": torch.rand(()) + 0.1},
    "temperatures of another type": lambda: {"temperature": torch.rand(2, 1, 8, 1, dtype=torch.float64) + 0.1},
}


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize("name", GIVEN)
def test_a_call_like_one_before_is_not_planned_again(where, plans, name, needs_gradient):
    """Calls with tensors of their own, of which all numbers are others."""
    for turn in range(4):
        x = torch.randn(2, 3, 8, 40, device=where, requires_grad=needs_gradient)
        given = {key: each.to(where) if torch.is_tensor(each) else each for key, each in GIVEN[name]().items()}
        y = softmax(x, **given)
        if needs_gradient:
            y.backward(torch.randn_like(y))
        if turn > 1:
            assert not plans
        plans.clear()
        torch.testing.assert_close(y.detach().double(), expected("softmax", x.detach(), **given), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_what_has_no_sizes_or_strides_does_not_end_the_process(where):
    x = torch.randn(6, 8, device=where)
    for _ in range(3):
        softmax(x, 1)
    for make in (lambda x: torch.nested.nested_tensor([x, x]), torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr):
        with pytest.raises(NotImplementedError):
            softmax(make(x), 1)


def test_no_tensor_is_kept_alive(where):
    memory.forget()
    x = torch.randn(6, 8, device=where)
    for leaf in (x.clone(), x.clone().requires_grad_()):
        for _ in range(3):
            softmax(leaf, 1)
    seen = weakref.ref(leaf)
    del leaf
    gc.collect()
    assert seen() is None


def test_so_many_calls_are_kept_and_no_more(where, plans, monkeypatch):
    """The last tensors of one shape are remembered, and of all calls so many."""
    monkeypatch.setattr(memory, "MOST_REPEATS", 2)
    x = torch.randn(6, 8, device=where)
    alike = [torch.cat([x] * times, 1)[:, :8] for times in (1, 2, 3)]
    for tensor in alike * 3:
        torch.testing.assert_close(softmax(tensor, 1), torch.softmax(tensor, 1))
    assert max(len(each) for each in memory._calls.values() if isinstance(each, tuple)) == 2
    monkeypatch.setattr(memory, "MOST_CALLS", 3)
    for n_rows in (1, 2, 3, 4, 5, 6, 1):
        torch.testing.assert_close(softmax(x[:n_rows], 1), torch.softmax(x[:n_rows], 1))
        assert len(memory._calls) <= 3 + len(alike)
