"""Compilers get one operator for each function: opcheck, torch.compile, export, make_fx, AOTInductor, compiled autograd."""

import pytest
import torch
from torch.library import opcheck

from portable_softmax import log_softmax, softmax, token_log_probs

pytestmark = [pytest.mark.kernel, pytest.mark.xdist_group("compilers")]  # one process imports them
OPS = torch.ops.portable_softmax


@pytest.fixture(autouse=True)
def reset():
    torch._dynamo.reset()


@pytest.fixture
def data(where):
    names = {"x": torch.randn(2, 3, 5), "rows": torch.rand(2, 3, 1) + 0.5, "bias": torch.randn(3, 5), "sink": torch.randn(3, 1)}
    named = {name: t.to(where) for name, t in names.items()}
    return named | {"ids": torch.tensor([[0, 4, -100], [1, 2, 3]], device=where), "seen": named["bias"] > -0.5}


def options_of(data):
    return [
        {}, {"mask": data["seen"], "temperature": 0.5, "masked_rows": "zero"}, {"mask": data["bias"], "scale": 2.0},
        {"scale": data["rows"], "softcap": 1.5}, {"temperature": data["rows"]}, {"sink": data["sink"], "causal": "lower_right"},
    ]  # fmt: skip


def arguments(log, x, scale=None, temperature=None, mask=None, causal="", softcap=None, sink=None, masked_rows="nan"):
    """Returns the operator's arguments of a call."""
    tensors = [t if isinstance(t, torch.Tensor) else None for t in (scale, temperature)]
    numbers = [None if isinstance(t, torch.Tensor) else t for t in (scale, temperature)]
    return x, mask, *tensors, sink, *numbers, softcap, log, x.dim() - 1, x.dtype, causal, masked_rows == "zero"


def needing_gradients(options):
    return {
        name: o.clone().requires_grad_() if isinstance(o, torch.Tensor) and o.is_floating_point() else o
        for name, o in options.items()
    }


def test_opcheck(data):
    for at, options in enumerate(options_of(data)):
        x = data["x"].to((torch.float32, torch.float64)[at // 2 % 2]).requires_grad_()
        opcheck(OPS.softmax.default, arguments(at % 2 == 0, x, **needing_gradients(options)))
    x, ids, rows = data["x"].clone().requires_grad_(), data["ids"], data["rows"]
    for entropy, lse, temperature in ((False, False, None), (True, True, rows.clone().requires_grad_())):
        opcheck(OPS.token_log_probs.default, (x, ids, None, temperature, None, None, 1.5, 2, -100, entropy, lse))
    x, dy = x.detach(), torch.randn_like(rows[..., 0])
    statistics = torch.rand(2, 2, 3, device=x.device) + 1
    tail = None, None, None, rows, None, None, None, 2, -100, False, False
    opcheck(OPS.token_log_probs_backward.default, (x, ids, statistics, dy, *tail))
    factors = x, rows, None, None, 0.5, 2.0
    opcheck(OPS.softmax_backward.default, (x, x.softmax(-1), *factors, False, 2, False, torch.float32))


def test_compiled_calls_and_gradients_are_eager_ones(data):
    for at, options in enumerate(map(needing_gradients, options_of(data))):
        named = [o for o in options.values() if isinstance(o, torch.Tensor) and o.requires_grad]

        def call(x, options=options):
            return softmax(x * 1, **options) + log_softmax(x, **options).exp()

        found = []
        for function in (torch.compile(call, fullgraph=True, dynamic=at % 2 == 0, backend="aot_eager"), call):
            x = data["x"].clone().requires_grad_()
            y = function(x)
            found.append((y, *torch.autograd.grad(y.square().sum(), (x, *named))))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def test_compiled_transforms_out_and_types(data):
    x, ids = data["x"], data["ids"]

    def compiled(function, *inputs):
        return torch.compile(function, fullgraph=True, backend="aot_eager")(*inputs)

    torch.testing.assert_close(compiled(torch.func.vmap(lambda x: softmax(x, scale=2.0)), x), (x * 2).softmax(-1))
    loss = torch.func.grad(lambda x: token_log_probs(x, ids).sum())
    torch.testing.assert_close(compiled(loss, x), loss(x))
    out = torch.empty_like(x)
    compiled(lambda x, out: softmax(x, out=out), x, out)
    torch.testing.assert_close(out, x.softmax(-1))
    assert compiled(lambda x: softmax(x.double(), scale=2.0), x).dtype is torch.float64
    scaled = torch.compile(lambda x, s: softmax(x, scale=s, temperature=s), fullgraph=True, dynamic=True, backend="aot_eager")
    for number in (1.5, 2.5, 3.5):
        torch.testing.assert_close(scaled(x, number), x.softmax(-1))


class Model(torch.nn.Module):
    def forward(self, x, ids):
        return softmax(x, scale=2.0), token_log_probs(x, ids)


@pytest.mark.parametrize("strict", [False, True])
def test_export(data, strict):
    x, ids, n = data["x"], data["ids"], torch.export.Dim("n", min=2, max=64)
    program = torch.export.export(Model(), (x, ids), dynamic_shapes=({0: n}, {0: n}), strict=strict)
    assert "portable_softmax.softmax" in str(program.graph)
    more = torch.cat([x, x]).requires_grad_(), torch.cat([ids, ids])
    ys = program.module()(*more)
    torch.testing.assert_close(ys, Model()(*more))
    gradients = [torch.autograd.grad(y.square().sum(), more[0]) for y in (ys[0], softmax(more[0], scale=2.0))]
    torch.testing.assert_close(*gradients)
