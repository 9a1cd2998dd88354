"""The operators do all that torch asks: compilers, tracing, modes, tensors without memory."""

import contextlib
from functools import partial

import pytest
import torch
import torch._dynamo.testing
from calls import normal, place
from closeness import expected
from pairs import PAIRS
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from portable_softmax import LogSoftmax, Softmax, log_softmax, softmax, softmin
from portable_softmax.operators import dispatch as ops
from portable_softmax.operators import launching
from portable_softmax.operators.options import Options, read

__all__ = ["place"]
SHAPE = 2, 3, 4, 5
random = partial(normal, dtype=torch.float64)


EVERYTHING = {
    "temperature": random(2, 1, 4, 1).abs() + 0.5, "mask": random(1, 3, 1, 5), "causal": "lower_right", "softcap": 2.0,
    "sink": random(3), "masked_rows": "zero",
}  # fmt: skip
SOME = {
    "plain": {},
    "masked rows": {"masked_rows": "zero"},
    "a number": {"scale": 0.5, "mask": random(4, 5) > -1},
    "rows": {"scale": random(4, 1), "causal": True},
    "everything": EVERYTHING,
}


@pytest.mark.each_value
@pytest.mark.parametrize(
    "given", [SOME[name] for name in SOME if name != "plain"], ids=[name for name in SOME if name != "plain"]
)
def test_opcheck(by_torch, form, given):
    def asked():
        return read(form, random(*SHAPE), 3, torch.float64, Options(**given))

    call, operators = asked(), torch.ops.portable_softmax
    torch.library.opcheck(getattr(operators, form).default, tuple(call))
    leaves = [each.requires_grad_() if isinstance(each, torch.Tensor) and each.is_floating_point() else each for each in call]
    torch.library.opcheck(getattr(operators, form).default, tuple(leaves))
    y = launching.forward(form, asked(), False).detach()
    arguments = random(*SHAPE, seed=1), y, 3, torch.float32, call.factors, *call.of_gradient
    torch.library.opcheck(getattr(operators, f"{form}_backward").default, arguments)


@pytest.mark.kernel
@pytest.mark.each_value
@pytest.mark.parametrize("view", [torch.clone, torch.t, lambda x: x.requires_grad_().t(), lambda x: x[None].transpose(0, 2)])
def test_opcheck_of_views(where, form, view):
    x = random(3, 5).to(where)
    torch.library.opcheck(ops.operator(form), (view(x), 1))
    torch.library.opcheck(ops.operator(form), (view(x.float()), 1, torch.float64))
    torch.library.opcheck(ops.operator(f"{form}_backward"), (view(x.float()), view(x.float()), 1, torch.float16))
    torch.library.opcheck(
        getattr(torch.ops.portable_softmax, f"{form}_out").default, (x.detach(), 1), {"out": torch.empty(3, 5).to(x)}
    )


@pytest.mark.each_value
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("given", SOME.values(), ids=SOME)
def test_compile_without_graph_breaks(by_torch, form, given, dynamic):
    """One graph holds the operator; sizes that change are another one only if they are not dynamic."""
    torch._dynamo.reset()
    counted = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    call = lambda x, given: ops_of(form)(x * 2, **given).sin()  # noqa: E731
    compiled = torch.compile(call, fullgraph=True, dynamic=dynamic, backend=counted)
    leaves = [random(*SHAPE).requires_grad_() for _ in range(2)]
    results = compiled(leaves[0], given), expected(form, leaves[1] * 2, **given).sin()
    for leaf, result in zip(leaves, results, strict=True):
        result.nan_to_num(0).backward(random(*SHAPE, seed=2))
        leaf.grad.nan_to_num_(0)
    torch.testing.assert_close(*results, equal_nan=True)
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad)
    compilations = counted.frame_count
    compiled(random(*SHAPE, seed=5).requires_grad_(), given)
    assert counted.frame_count == compilations
    assert any(f"portable_softmax.{form}" in str(node.target) for graph in counted.graphs for node in graph.graph.nodes)
    if not given:
        for batch in (3, 4, 6):
            compiled(random(batch, *SHAPE[1:]).requires_grad_(), given)
        assert counted.frame_count == (1 if dynamic else 4)


def ops_of(form):
    """Returns the function, or the operator where torch computes a plain call, as it does on the CPU."""
    return lambda x, **given: PAIRS[form][0](x, **given) if given else ops.operator(form)(x, -1)


@pytest.mark.kernel
@pytest.mark.filterwarnings("ignore")
def test_compiled_autograd_runs(where):
    from torch._dynamo import compiled_autograd

    x, dy = torch.randn(2, 3, 20, device=where)
    x.requires_grad_()
    y = softmax(x)
    with compiled_autograd._enable(lambda graph: torch.compile(graph, backend="eager", fullgraph=True)):
        y.backward(dy)
    torch.testing.assert_close(x.grad, torch.autograd.grad(torch.softmax(x, -1), x, dy)[0])


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = Softmax(scale=0.125, causal=True, softcap=30.0)
        self.logarithms = LogSoftmax(masked_rows="zero")

    def forward(self, x, mask, temperature):
        return self.weights(x, mask=mask) + self.logarithms(x, temperature=temperature) + softmin(x * 2, -1)


def test_export_and_make_fx(place):
    x, mask, t = random(2, 4, 5), (random(2, 1, 5) > -1) | (torch.arange(5) == 0), random(2, 1, 1).abs()
    given = tuple(each.to(place) for each in (x, mask, t))
    model, size = Attention(), torch.export.Dim("n", min=2)
    exported = torch.export.export(model, given, dynamic_shapes=({0: size}, {0: size}, {0: size}))
    again = [torch.cat((each, each)) for each in given]
    torch.testing.assert_close(exported.module()(*again), model(*again))
    traced = make_fx(lambda x, m, t: functional_call(model, {}, (x, m, t)))(*given)
    torch.testing.assert_close(traced(-given[0], *given[1:]), model(-given[0], *given[1:]))
    for code in (str(exported.graph_module.code), traced.code):
        assert code.count("ops.portable_softmax.") == 3


@pytest.mark.kernel
@pytest.mark.filterwarnings("ignore")
def test_traces_hold_the_operator(where):
    x = random(3, 5).to(where)
    for _ in range(2):  # a call could be repeated
        traced = torch.jit.trace(lambda x: softmax(x, 0), x)
        softmax(x, 0)
    assert "portable_softmax::softmax" in str(traced.graph)


def test_modules_take_numbers_when_made_and_tensors_with_a_call(by_torch):
    x, t = random(3, 5), random(3, 1).abs()
    torch.testing.assert_close(Softmax(0, temperature=2.0)(x), softmax(x, 0, temperature=2.0))
    torch.testing.assert_close(Softmax(temperature=2.0)(x, temperature=t), softmax(x, temperature=t))
    torch.testing.assert_close(LogSoftmax(softcap=2.0)(x, sink=t), log_softmax(x, softcap=2.0, sink=t))
    assert repr(Softmax(scale=0.5, causal=True)) == "Softmax(dim=-1, scale=0.5, causal=True)"
    assert repr(torch.nn.Sequential(LogSoftmax(1))[0]) == "LogSoftmax(dim=1)"


def test_tensors_without_memory(place, form):
    from torch._subclasses import FakeTensorMode

    ours = PAIRS[form][0]
    for given in ({}, {"temperature": torch.empty(1, 3, device="meta"), "sink": 1.0}):
        y = ours(torch.empty(5, 3, device="meta").t().t(), 0, torch.float16, **given)
        assert (y.shape, y.dtype, y.stride(), y.device.type) == ((5, 3), torch.float16, (3, 1), "meta")
        with FakeTensorMode() as mode:
            fake = ours(mode.from_tensor(random(3, 5).to(place)), 0, **dict.fromkeys(given, 2.0))
        assert (fake.shape, fake.device.type) == ((3, 5), place.type)


def listeners(x):
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    yield "a function mode", Functions(), x
    yield "a dispatch mode", Dispatch(), x
    yield "forward mode", torch.autograd.forward_ad.dual_level(), x
    yield "autocast", torch.autocast(x.device.type, dtype=torch.bfloat16), x
    yield "a lazy negation", contextlib.nullcontext(), torch.complex(x, -x).conj().imag
    yield "a lazy negation that lies alike", contextlib.nullcontext(), torch._neg_view(x)
    yield "a subclass", contextlib.nullcontext(), torch.nn.Parameter(x, requires_grad=False)


@pytest.mark.kernel
@pytest.mark.parametrize("given", [{}, {"scale": 0.5}], ids=["plain", "scored"])
def test_who_listens_sees_the_operator_though_a_call_could_be_repeated(where, monkeypatch, given):
    dispatched, x = [], random(3, 5).to(where)
    monkeypatch.setattr(ops, "operator", lambda form, operator=ops.operator: dispatched.append(form) or operator(form))
    for name, context, tensor in listeners(x):
        for _ in range(2):
            softmax(x, 0, **given)
        assert not dispatched
        with context:
            result = softmax(tensor, 0, **given)
        exact = torch.softmax(tensor.detach().double() * given.get("scale", 1.0), 0)
        torch.testing.assert_close(result.detach().double(), exact)
        assert dispatched.pop(), f"{name} was not asked"
