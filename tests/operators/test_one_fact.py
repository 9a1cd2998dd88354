"""A call after others like it gives what it would give as the first one: its result, its gradient, or its error."""

import contextlib

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pairs import PAIRS

from portable_softmax import batch_invariant
from portable_softmax.operators import memory

pytestmark = pytest.mark.kernel

FACTS = {  # of a call, the usual ones first
    "form": ["softmax", "log_softmax", "softmin"],
    "dim": [1, 0, -1],
    "rows": [4, 3],
    "dtype": [torch.float32, torch.bfloat16, torch.float64],
    "result": [None, torch.float32, torch.float64],
    "layout": ["contiguous", "transposed", "padded", "unaligned"],
    "needs a gradient": [False, True],
    "gradients": [True, False],
    "invariant": [False, True],
    "temperature": [None, "rows", "one", 0.5, 2, "rows that need a gradient"],
    "mask": [None, "columns", "each"],
    "softcap": [None, 3.0],
    "out": [None, "apart", "in place", "a view", "transposed", "needs a gradient"],
}


@st.composite
def sequences(draw, fact):
    """Returns calls of two kinds that differ in a fact."""
    one = {name: draw(st.sampled_from(values[:1] + values)) for name, values in FACTS.items()}
    other = one | {fact: draw(st.sampled_from([each for each in FACTS[fact] if each is not one[fact]]))}
    return [one, one, other, one, other]


def laid(values, layout):
    """Returns a tensor of these values in a layout."""
    if layout == "transposed":
        return values.t().contiguous().t()
    if layout == "padded":
        return torch.cat([values, values], 1)[:, : values.shape[1]]
    return (
        torch.cat([values.flatten()[:1], values.flatten()])[1:].view(values.shape) if layout == "unaligned" else values.clone()
    )


def outcome(call, where):
    """Returns the result and the gradient of a call, or its error's words."""
    generator = torch.Generator().manual_seed(1)
    values, rows = torch.randn(call["rows"], 24, generator=generator), torch.rand(call["rows"], 1, generator=generator) + 0.5
    x = laid(values.to(where, call["dtype"]), call["layout"]).requires_grad_(call["needs a gradient"])
    options = {name: call[name] for name in ("softcap",) if call[name] is not None}
    by_row = (rows.view(1, -1)[:, :1] if call["dim"] == 0 else rows).to(where)
    of = {None: None, "rows": by_row, "one": rows[0, 0].to(where), "rows that need a gradient": by_row.requires_grad_()}
    temperature = of.get(call["temperature"], call["temperature"])
    options |= {} if temperature is None else {"temperature": temperature}
    masks = {"columns": torch.arange(24, device=where) % 3 > 0, "each": (values > -1).to(where)}
    options |= {"mask": masks[call["mask"]]} if call["mask"] else {}
    dtype = call["result"] or call["dtype"]
    outs = {
        "apart": lambda: torch.empty(x.shape, dtype=dtype, device=where),
        "in place": lambda: x,
        "a view": lambda: x.view(x.shape),
        "transposed": lambda: torch.empty(x.shape[::-1], dtype=dtype, device=where).t(),
        "needs a gradient": lambda: torch.empty(x.shape, dtype=dtype, device=where, requires_grad=True),
    }
    try:
        with contextlib.nullcontext() if call["gradients"] else torch.no_grad(), batch_invariant(call["invariant"]):
            options |= {"out": outs[call["out"]]()} if call["out"] else {}
            y = PAIRS[call["form"]][0](x, call["dim"], call["result"], **options)
        dy = torch.linspace(-1, 1, y.numel(), device=where, dtype=y.dtype).view(y.shape)
        wanted = [each for each in (x, temperature) if isinstance(each, torch.Tensor) and each.requires_grad]
        found = torch.autograd.grad(y, wanted, dy) if y.requires_grad and y.grad_fn else ()
    except RuntimeError as error:
        return str(error)
    return y.dtype, y.requires_grad, y.stride(), [each.detach().clone() for each in (y, *found)]


@pytest.mark.parametrize("fact", FACTS)
@settings(max_examples=8, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_call_gives_what_it_would_give_as_the_first(where, fact, data):
    calls = data.draw(sequences(fact))
    memory.forget()
    after = [outcome(call, where) for call in calls]
    for call, result in zip(calls, after, strict=True):
        memory.forget()
        first = outcome(call, where)
        if isinstance(first, str):
            assert result == first
        else:
            assert result[:3] == first[:3]
            torch.testing.assert_close(result[3], first[3], rtol=0, atol=0, equal_nan=True)
