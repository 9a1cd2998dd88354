"""Compilers get one operator for each function: torch.compile, export."""

import pytest
import torch
from calls import recording, results
from torch.utils._pytree import tree_map_only

from portable_softmax import softmax, token_log_probs
from portable_softmax.api.functional import SOFTMAX
from portable_softmax.api.tokens import TOKENS

pytestmark = [pytest.mark.kernel, pytest.mark.xdist_group("compilers")]  # one process imports them


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


def outcome(function, leaves, *more):
    """Returns results of the first leaf, and gradients of all leaves."""
    ys = function(leaves[0], *more)
    return *ys, *torch.autograd.grad(sum(y.square().sum() for y in ys), leaves)


def test_compiled_calls_are_eager_ones_and_launch_as_they_do(x, ids, cases):
    launched = []
    without_kernels = [("softmax", {"softcap": 1e-30}), ("log_probs", {"softcap": 1e-30, "ids": ids, "return_lse": True})]
    for at, (name, options) in enumerate([cases[5], cases[15], cases[23], *without_kernels]):
        options = tree_map_only(torch.Tensor, lambda t: t.clone().requires_grad_(t.is_floating_point()), options)
        leaves = [x.clone().requires_grad_(), *(t for t in options.values() if isinstance(t, torch.Tensor) and t.requires_grad)]

        def call(x, name=name, options=options):
            return results(name, x * 1, -1, **options)

        with recording(launched):
            pairs = []
            for function in (call, compiled(call, dynamic=at % 2 == 0)):
                pairs.append((outcome(function, leaves), list(launched)))
                launched.clear()
        (eager, of_eager), (actual, of_compiled) = pairs
        torch.testing.assert_close(actual, eager, rtol=1e-4, atol=1e-4, equal_nan=True)
        assert of_compiled == of_eager, name


def test_compiled_transforms_out_and_types(x, ids):
    torch.testing.assert_close(compiled(torch.func.vmap(lambda x: softmax(x, scale=2.0)))(x), (x * 2).softmax(-1))
    loss = torch.func.grad(lambda x: token_log_probs(x, ids).sum())
    torch.testing.assert_close(compiled(loss)(x), loss(x))
    out = torch.empty_like(x)
    compiled(lambda x, out: softmax(x, out=out))(x, out)
    torch.testing.assert_close(out, x.softmax(-1))
    assert compiled(lambda x: softmax(x.double(), scale=2.0))(x).dtype is torch.float64
    scaled = compiled(lambda x, s: softmax(x, scale=s, temperature=s), dynamic=True)
    torch.testing.assert_close([scaled(x, number) for number in (1.5, 2.5, 3.5)], [x.softmax(-1)] * 3)


UNBACKED = [
    ("softmax", {"temperature": (4, 1)}), ("softmax", {"scale": (4, 1), "softcap": 2.0}), ("log_softmax", {"sink": (4, 1)}),
    ("softmax", {"mask": (4, 6)}), ("log_probs", {"temperature": (4, 1)}), ("log_probs", {"scale": (4, 1), "entropy": True}),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "options"), UNBACKED)
def test_an_unbacked_batch_with_a_number_for_each_row(where, name, options, dtype):
    """Sizes that a compiler leaves open are compared when a graph runs."""
    tensors = {key: torch.rand(o, device=where, dtype=dtype) for key, o in options.items() if isinstance(o, tuple)}
    tensors |= {"ids": torch.tensor([0, 5, -100, 2], device=where)} if name == "log_probs" else {}
    x, constants = torch.randn(4, 6, device=where, dtype=dtype), {k: o for k, o in options.items() if not isinstance(o, tuple)}

    def call(x, *tensors, names=tuple(tensors)):
        return results(name, x, -1, **constants, **dict(zip(names, tensors, strict=True)))

    function, inputs = compiled(call), (x.requires_grad_(), *tensors.values())
    fewer = (x, *(t[:3].clone() for t in tensors.values()))
    for tensor in (*inputs, *fewer):
        torch._dynamo.decorators.mark_unbacked(tensor, 0)
    torch.testing.assert_close(*(outcome(f, inputs[:1], *inputs[1:]) for f in (function, call)))
    if dtype is torch.float32:
        with pytest.raises((RuntimeError, ValueError), match=r"broadcast|shape"):
            function(*fewer)


class Model(torch.nn.Module):
    def forward(self, x, ids):
        return softmax(x, scale=2.0), token_log_probs(x, ids)


@pytest.mark.parametrize("strict", [False, True])
def test_export(x, ids, strict, monkeypatch):
    n = torch.export.Dim("n", min=2, max=64)
    program = torch.export.export(Model(), (x, ids), dynamic_shapes=({0: n}, {0: n}), strict=strict)
    assert "portable_softmax.softmax" in str(program.graph)
    more = [torch.cat([x, x]).requires_grad_()], torch.cat([ids, ids])
    for operator in (SOFTMAX, TOKENS):
        monkeypatch.setattr(operator, "reference", None)  # operators launch kernels too
    torch.testing.assert_close(outcome(program.module(), *more), outcome(Model(), *more))
