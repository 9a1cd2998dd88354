"""The operators do all that torch asks: compilers, tracing, vmap, autocast, devices without memory."""

import contextlib
import warnings

import pytest
import torch
import torch._dynamo.testing
from pairs import PAIRS
from torch.fx.experimental.proxy_tensor import make_fx

import portable_softmax
from portable_softmax import DtypeError, LayoutError, LogSoftmax, Softmax, softmax
from portable_softmax.operators import bypass
from portable_softmax.operators import dispatch as ops

pytestmark = pytest.mark.kernel


@pytest.fixture
def x(where):
    return torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(where)


@pytest.mark.each_value
@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x.t(), lambda x: x.requires_grad_().t(), lambda x: x[None].transpose(0, 2)]
)
def test_opcheck(form, x, view):
    torch.library.opcheck(ops.operator(form), (view(x), 1))
    torch.library.opcheck(ops.operator(form), (view(x.float()), 1, torch.float64))
    torch.library.opcheck(ops.operator(f"{form}_backward"), (view(x.float()), view(x.float()), 1, torch.float16))


@pytest.mark.each_value
@pytest.mark.parametrize("dynamic", [True, False])
def test_compile_without_graph_breaks(form, x, dynamic):
    ours, theirs = PAIRS[form]
    torch._dynamo.reset()
    compilations = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda x: ours(x * 2, -1).sin().sum(0), fullgraph=True, dynamic=dynamic, backend=compilations)
    for rows in (3, 4, 6, 9):
        leaves = [x.repeat(3, 1)[:rows].clone().requires_grad_() for _ in range(2)]
        results = compiled(leaves[0]), theirs(leaves[1] * 2, -1).sin().sum(0)
        for result in results:
            result.sum().backward()
        torch.testing.assert_close(results[0], results[1])
        torch.testing.assert_close(leaves[0].grad, leaves[1].grad)
    assert compilations.frame_count == (1 if dynamic else 4)


def test_export_and_make_fx(form, x):
    ours, theirs = PAIRS[form]

    class Model(torch.nn.Module):
        def forward(self, x):
            return ours(x * 2, -1)

    exported = torch.export.export(Model(), (x,), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    torch.testing.assert_close(exported.module()(x[:2]), theirs(x[:2] * 2, -1))
    traced = make_fx(lambda x: ours(x, 0))(x)
    assert f"portable_softmax.{form}.default" in traced.code
    torch.testing.assert_close(traced(-x), theirs(-x, 0))


def test_autocast_gives_float32_as_torchs_rule_has_it(where, form, x):
    ours = PAIRS[form][0]
    with torch.autocast(where.type, dtype=torch.bfloat16):
        for given, wanted, expected in (
            (torch.bfloat16, None, torch.float32),
            (torch.float32, None, torch.float32),
            (torch.float64, None, torch.float64),
            (torch.bfloat16, torch.bfloat16, torch.bfloat16),
        ):
            assert ours(x.to(given), 0, wanted).dtype == expected
        leaf = x.bfloat16().requires_grad_()
        ours(leaf, 0).square().sum().backward()
    assert leaf.grad.dtype == torch.bfloat16
    with torch.autocast(where.type, dtype=torch.bfloat16, enabled=False):
        assert ours(x.bfloat16(), 0).dtype == torch.bfloat16


def test_tensors_without_memory(where, form, x):
    from torch._subclasses import FakeTensorMode

    ours = PAIRS[form][0]
    meta = ours(torch.empty(5, 3, device="meta").t(), 0, torch.float16)
    assert (meta.shape, meta.dtype, meta.stride(), meta.device.type) == ((3, 5), torch.float16, (5, 1), "meta")
    with FakeTensorMode() as mode:
        fake = ours(mode.from_tensor(x), 0)
        assert (fake.shape, fake.device) == (x.shape, x.device)
        with pytest.raises(IndexError, match=r"Dimension out of range \(expected to be in range of \[-1, 0\], but got 1\)"):
            ours(torch.empty(3, device="meta"), 1)
        with pytest.raises(NotImplementedError, match="name a floating-point dtype"):
            ours(torch.empty(3, device="meta", dtype=torch.int32), 0)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_operators_refuse_other_layouts(form, x):
    forward, backward = ops.operator(form), ops.operator(f"{form}_backward")
    for other in (x.to_sparse(), x.to_sparse_csr()):
        for call in (
            lambda other=other: forward(other, 1),
            lambda other=other: backward(other, x, 1, x.dtype),
            lambda other=other: backward(x, other, 1, x.dtype),
        ):
            with pytest.raises(LayoutError, match=rf"{form} of a tensor of layout torch.sparse_"):
                call()


@pytest.mark.parametrize("without_memory", [False, True])
def test_a_gradients_operator_refuses_what_does_not_fit(form, x, without_memory):
    y = x.to("meta") if without_memory else x
    operator = ops.operator(f"{form}_backward")
    for dy, dim, error, words in (
        (y[:2], 1, ValueError, r"a gradient of shape \(2, 5\) was given for an output of shape \(3, 5\)"),
        (y[0], 1, ValueError, r"a gradient of shape \(5,\)"),
        (y.half(), 1, DtypeError, "a gradient of torch.float16 was given for an output of torch.float64"),
        (y, 2, IndexError, r"range of \[-2, 1\], but got 2"),
    ):
        with pytest.raises(error, match=words):
            operator(dy, y, dim, torch.float64)


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


def test_the_direct_path_is_taken_only_when_nobody_listens(x, monkeypatch):
    dispatched = []
    monkeypatch.setattr(ops, "operator", lambda form, operator=ops.operator: dispatched.append(form) or operator(form))
    for name, context, tensor in listeners(x):
        for _ in range(2):
            softmax(x, 0)  # which a call of a tensor like x would repeat
        assert not dispatched
        with context:
            result = softmax(tensor, 0)
        torch.testing.assert_close(result.detach().double(), torch.softmax(tensor.detach().double(), 0))
        assert dispatched.pop(), f"{name} was not asked"
    softmax(x, 0)
    leaf = x.clone().requires_grad_()
    with torch.no_grad():
        assert not softmax(leaf, 0).requires_grad
    assert not dispatched


def test_the_direct_path_records_a_gradient_as_the_operator_does(form, x, monkeypatch):
    ours = PAIRS[form][0]
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: packed.append(saved) or saved, lambda saved: saved):
        results = [ops.operator(form)(leaves[0], 0), None]
        monkeypatch.setattr(ops, "operator", None)
        results[1] = ours(leaves[1], 0)
    assert len(packed) == 2
    weights = torch.randn_like(x)
    first = [torch.autograd.grad(y, leaf, weights, create_graph=True)[0] for y, leaf in zip(results, leaves, strict=True)]
    second = [torch.autograd.grad(dx.square().sum(), leaf)[0] for dx, leaf in zip(first, leaves, strict=True)]
    assert torch.equal(*first)
    assert torch.equal(*second)


def test_gradients_past_the_dispatcher_are_the_operators(form, x, monkeypatch):
    """Gradients of the first call, which plans, of the second, which looks it up, and of the operator."""
    leaf = x.clone().requires_grad_()
    y = PAIRS[form][0](leaf, 0)
    dy = torch.randn_like(x)
    expected = ops.operator(f"{form}_backward")(dy, y.detach(), 0, x.dtype)
    monkeypatch.setattr(bypass, "fused", None)
    for _ in range(2):
        assert torch.equal(torch.autograd.grad(y, leaf, dy, retain_graph=True)[0], expected)
    by_columns = dy.t().contiguous().t()
    assert torch.equal(torch.autograd.grad(y, leaf, by_columns, retain_graph=True)[0], expected)


def test_jit_tracing_records_the_operator(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(lambda x: softmax(x, 0), x)
    assert "portable_softmax::softmax" in str(traced.graph)


def test_modules(x):
    torch.testing.assert_close(Softmax(0)(x), torch.nn.Softmax(0)(x))
    torch.testing.assert_close(LogSoftmax()(x), torch.nn.LogSoftmax(-1)(x))
    assert repr(torch.nn.Sequential(LogSoftmax(1))[0]) == "LogSoftmax(dim=1)"


def test_a_gradient_and_other_forms_have_plans():
    device = portable_softmax.current_device()
    plan = portable_softmax.plan(640, 70000, "float32", device, form="log_softmax", backward=True)
    assert plan.tiling.strategy == ("shared" if device.backend in ("cuda", "hip") else "online")
    with pytest.raises(ValueError, match="form 'softplus' was asked for; there are softmax, log_softmax, softmin"):
        portable_softmax.plan(1, 1, "float32", device, form="softplus")
