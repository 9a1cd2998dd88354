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


def arguments(log, x, scale=None, temperature=None, mask=None, causal="", softcap=None, sink=None, masked_rows="nan"):
    """Returns the operator's arguments of a call."""
    tensors = [t if isinstance(t, torch.Tensor) else None for t in (scale, temperature)]
    numbers = [None if isinstance(t, torch.Tensor) else t for t in (scale, temperature)]
    sink = None if sink is None else sink[:, None, None]  # of heads
    return x, mask, *tensors, sink, *numbers, softcap, log, x.dim() - 1, x.dtype, causal, masked_rows == "zero"


def needing_gradients(options):
    return {
        name: o.clone().requires_grad_() if isinstance(o, torch.Tensor) and o.is_floating_point() else o
        for name, o in options.items()
    }


def test_opcheck(x, ids, cases):
    for at, (function, options) in enumerate(cases[:5] + cases[18:20]):
        leaf = x.to((torch.float32, torch.float64)[at // 2 % 2], copy=True).requires_grad_()
        opcheck(OPS.softmax.default, arguments(function == "log_softmax", leaf, **needing_gradients(options)))
    leaf, rows = x.clone().requires_grad_(), torch.rand(2, 3, 1, device=x.device) + 0.5
    for some, temperature in ((False, None), (True, rows.clone().requires_grad_())):
        opcheck(OPS.token_log_probs.default, (leaf, ids, None, temperature, None, None, 1.5, 2, -100, some, some))
    opcheck(OPS.token_log_probs.default, (x.double().movedim(-1, 0), ids, None, None, None, None, None, 0, -100, True, False))
    statistics, dy = torch.rand(2, 2, 3, device=x.device) + 1, torch.randn_like(rows[..., 0])
    tail = None, None, None, rows, None, None, None, 2, -100, False, False
    for double in (x, x.double()):
        opcheck(OPS.token_log_probs_backward.default, (double, ids, statistics, dy, *tail))
    with pytest.raises(RuntimeError, match="do not have the shapes and types of the results"):
        OPS.token_log_probs_backward(x, ids, statistics[:, :1], dy, *tail)
    opcheck(OPS.softmax_backward.default, (x, x.softmax(-1), x, rows, None, None, 0.5, 2.0, False, 2, False, torch.float32))


def compiled(function, **options):
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


def test_compiled_calls_and_gradients_are_eager_ones(x, cases):
    for at, options in enumerate(needing_gradients(options) for _, options in cases[1:7]):
        named = [o for o in options.values() if isinstance(o, torch.Tensor) and o.requires_grad]

        def call(x, options=options):
            return softmax(x * 1, **options) + log_softmax(x, **options).exp()

        found = []
        for function in (compiled(call, dynamic=at % 2 == 0), call):
            leaf = x.clone().requires_grad_()
            y = function(leaf)
            found.append((y, *torch.autograd.grad(y.square().sum(), (leaf, *named))))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_compiled_transforms_out_and_types(x, ids):
    torch.testing.assert_close(compiled(torch.func.vmap(lambda x: softmax(x, scale=2.0)))(x), (x * 2).softmax(-1))
    loss = torch.func.grad(lambda x: token_log_probs(x, ids).sum())
    torch.testing.assert_close(compiled(loss)(x), loss(x))
    out = torch.empty_like(x)
    compiled(lambda x, out: softmax(x, out=out))(x, out)
    torch.testing.assert_close(out, x.softmax(-1))
    assert compiled(lambda x: softmax(x.double(), scale=2.0))(x).dtype is torch.float64
    scaled = compiled(lambda x, s: softmax(x, scale=s, temperature=s), dynamic=True)
    for number in (1.5, 2.5, 3.5):
        torch.testing.assert_close(scaled(x, number), x.softmax(-1))


class Model(torch.nn.Module):
    def forward(self, x, ids):
        return softmax(x, scale=2.0), token_log_probs(x, ids)


@pytest.mark.parametrize("strict", [False, True])
def test_export(x, ids, strict):
    n = torch.export.Dim("n", min=2, max=64)
    program = torch.export.export(Model(), (x, ids), dynamic_shapes=({0: n}, {0: n}), strict=strict)
    assert "portable_softmax.softmax" in str(program.graph)
    more = torch.cat([x, x]).requires_grad_(), torch.cat([ids, ids])
    ys = program.module()(*more)
    torch.testing.assert_close(ys, Model()(*more))
    gradients = [torch.autograd.grad(y.square().sum(), more[0]) for y in (ys[0], softmax(more[0], scale=2.0))]
    torch.testing.assert_close(*gradients)
