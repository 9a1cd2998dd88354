"""The operators do all that torch asks: derivatives, transforms, compilers, tracing, scripts, tensors without memory."""

import contextlib
import io
import pickle
import warnings
from pathlib import Path

import pytest
import torch
import torch._dynamo.testing
from calls import TWO, Call, names, place
from closeness import assert_close, expected, expected_gradient, gradient_scale
from pairs import PAIRS
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

import portable_softmax
from portable_softmax import LogSoftmax, Softmax, log_softmax, softmax, softmin
from portable_softmax.operators import autograd, launching
from portable_softmax.operators import dispatch as ops
from portable_softmax.operators.options import Options, read

__all__ = ["place"]
SHAPE = 2, 3, 4, 5
RECORDED = Path(__file__).parents[1] / "support/recorded"


def random(*shape, seed=0, where="cpu"):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(where)


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
        return read(form, random(*SHAPE), 3, torch.float64, Options(**given))[1]

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
    x = random(3, 5, where=where)
    torch.library.opcheck(ops.operator(form), (view(x), 1))
    torch.library.opcheck(ops.operator(form), (view(x.float()), 1, torch.float64))
    torch.library.opcheck(ops.operator(f"{form}_backward"), (view(x.float()), view(x.float()), 1, torch.float16))
    torch.library.opcheck(
        getattr(torch.ops.portable_softmax, f"{form}_out").default, (x.detach(), 1), {"out": torch.empty(3, 5).to(x)}
    )


@pytest.mark.each_value
@pytest.mark.parametrize("ways", [(), *TWO[::6]], ids=names)
def test_derivatives(by_torch, form, ways):
    """Derivatives of all tensors, in reverse and forward mode, twice."""
    call = Call(form, SHAPE, ways=ways)
    given = {
        name: each.double() if isinstance(each, torch.Tensor) and each.is_floating_point() else each
        for name, each in call.options().items()
    }
    leaves = {"input": random(*SHAPE)} | {
        name: each for name, each in given.items() if isinstance(each, torch.Tensor) and each.is_floating_point()
    }
    if "mask" in leaves:
        leaves["mask"] = leaves["mask"].clip(-3)  # finite ones have differences
    if "temperature" in leaves:  # greedy rows have none, and those of large ones are 0
        t = leaves["temperature"]
        leaves["temperature"] = torch.where((t.abs() < 0.1) | (t.abs() > 9), 1.5, t)
    leaves = {name: each.detach().clone().requires_grad_() for name, each in leaves.items()}
    others = {name: each for name, each in given.items() if name not in leaves}

    def computed(*tensors):
        y = call.ours(**dict(zip(leaves, tensors, strict=True)), **others)
        return y.clip(min=-1e6)  # of a logarithm's -inf there is no difference

    checks = {"check_forward_ad": True, "check_batched_grad": True, "fast_mode": True}
    assert torch.autograd.gradcheck(computed, tuple(leaves.values()), **checks)
    assert torch.autograd.gradgradcheck(computed, tuple(leaves.values()), fast_mode=True)


@pytest.mark.kernel
@pytest.mark.each_value
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 17), ()], ids=str)
@pytest.mark.parametrize("dim", [0, -1])
def test_derivatives_by_the_kernel(where, form, shape, dim):
    leaf = random(*shape, where=where).requires_grad_()
    fast = dim == 0 or len(shape) > 2  # the slow way takes one launch per element and direction
    checks = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True, "fast_mode": fast}
    assert torch.autograd.gradcheck(lambda x: PAIRS[form][0](x, dim), leaf, **checks)
    assert torch.autograd.gradgradcheck(lambda x: PAIRS[form][0](x, dim), leaf, check_fwd_over_rev=True, fast_mode=fast)


GRADIENTS = {
    "one number": lambda rows, cols: torch.ones(()).expand(rows, cols),
    "transposed": lambda rows, cols: torch.randn(cols, rows).t(),
    "every second": lambda rows, cols: torch.randn(rows, 2 * cols)[:, ::2],
    "one row": lambda rows, cols: torch.randn(cols).expand(rows, cols),
    "unaligned": lambda rows, cols: torch.randn(rows, cols + 1)[:, 1:],
}


@pytest.mark.kernel
@pytest.mark.pairwise
@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("n_cols", [70, 70_000], ids=["tile", "online"])
@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_of_any_strides(where, form, name, n_cols, dim):
    torch.manual_seed(1)
    x, dy = torch.randn(3, n_cols).to(where).requires_grad_(), GRADIENTS[name](3, n_cols).to(where)
    y = PAIRS[form][0](x, dim)
    y.backward(dy)
    assert_close(x.grad, expected_gradient(form, dy, y.detach(), dim), gradient_scale(form, dy, y.detach(), dim))


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_gradient_of_an_output_that_lies_otherwise_than_it(where, dtype):
    """The operator is given any output; autograd's own are contiguous, as the gradient is."""
    dy, y = (random(6, 40, seed=seed, where=where).to(dtype) for seed in (1, 2))
    padded, transposed = y.new_empty(6, 48)[:, :40], y.new_empty(40, 6).t()
    for other in (padded.copy_(y), transposed.copy_(y), y[:1].expand(6, 40)):
        dx = torch.ops.portable_softmax.softmax_backward(dy, other, 1, dtype)
        assert dx.is_contiguous()
        assert_close(dx, expected_gradient("softmax", dy, other), gradient_scale("softmax", dy, other))


def test_only_what_gradients_need_is_saved(place, form):
    def saved(**given):
        kept = []
        leaf = random(*SHAPE, where=place).requires_grad_()
        given = {name: each.to(place) if isinstance(each, torch.Tensor) else each for name, each in given.items()}
        with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each.shape) or each, lambda each: each):
            PAIRS[form][0](leaf, **given)
        return kept

    assert saved() == saved(scale=0.5, causal=True, mask=random(4, 5) > 0, sink=random(3)) == [SHAPE]
    assert saved(temperature=random(4, 1).expand(3, 4, 1)) == [SHAPE, SHAPE[:3]]
    assert saved(softcap=2.0) == [SHAPE, SHAPE]


def test_the_gradient_of_x_is_one_call_of_the_operator(by_torch, monkeypatch):
    def composed(*_):
        pytest.fail("the gradient of scores is for a mask and factors alone")

    called, whole = [], autograd._Gradients._launched
    monkeypatch.setattr(autograd._Gradients, "of_scores", composed)
    monkeypatch.setattr(autograd._Gradients, "_launched", lambda *given: called.append(1) or whole(*given))
    leaf = random(*SHAPE).requires_grad_()
    softmax(leaf, scale=0.5, temperature=random(4, 1), mask=random(4, 5) > 0, sink=1.0).sum().backward()
    assert called == [1]


TRANSFORMS = {
    "grad": grad,
    "hessian": hessian,
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "grad of grad": lambda f: lambda x, *more: grad(lambda x: grad(f)(x, *more).pow(2).sum())(x),
    "vmap": lambda f: vmap(f),
    "vmap of grad": lambda f: vmap(grad(f)),
    "jvp of jvp": lambda f: lambda x, *more: jvp(lambda x: jvp(lambda x: f(x, *more), (x,), (x * 2,))[1], (x,), (x * 3,)),
    "jvp of grad": lambda f: lambda x, *more: jvp(lambda x: grad(f)(x, *more), (x,), (x * 3,)),
    "grad of sinks": lambda f: grad(f, argnums=1),
    "jacrev of scales": lambda f: jacrev(f, argnums=2),
    "jacfwd of scales": lambda f: jacfwd(f, argnums=2),
    "vmap of grad of scales": lambda f: vmap(grad(f, argnums=2), in_dims=(None, 0, 0)),
}


ON_X = [name for name in TRANSFORMS if not name.endswith(("sinks", "scales"))]


@pytest.mark.each_value
@pytest.mark.parametrize(("name", "scored"), [*((each, True) for each in TRANSFORMS), *((each, False) for each in ON_X)])
def test_transforms(place, form, name, scored):
    arguments = random(3, 5, where=place), random(3, 1, where=place), random(3, 1, seed=7, where=place)
    weights = torch.arange(5.0, device=place)

    def weighted(function):
        if not scored:
            return lambda x, *_: (function(x) * weights).sum()
        return lambda x, sink, scale: (function(x, sink=sink, scale=scale, softcap=3.0) * weights).sum()

    ours = TRANSFORMS[name](weighted(PAIRS[form][0]))(*arguments)
    theirs = TRANSFORMS[name](weighted(lambda x, **given: expected(form, x, **given)))(*arguments)
    torch.testing.assert_close(ours, theirs)


def test_vmap_over_each_argument(place):
    def computed(x, temperature, sink, mask):
        return softmax(x, temperature=temperature, sink=sink, mask=mask, masked_rows="zero")

    whole = [each.to(place) for each in (random(3, 4, 5), random(3, 4, 1), random(3, 4, 1), random(3, 4, 5) > -1)]
    for in_dims in ((0, None, None, None), (0, 0, 0, 0), (None, 0, None, None), (None, None, 0, 0), (None, None, None, 2)):
        given = [each[0] if at is None else each.movedim(0, at) for each, at in zip(whole, in_dims, strict=True)]
        alone = [
            computed(*(each if at is None else each.select(at, n) for each, at in zip(given, in_dims, strict=True)))
            for n in range(3)
        ]
        torch.testing.assert_close(vmap(computed, in_dims)(*given), torch.stack(alone))


@pytest.mark.kernel
def test_vmap_of_numbers_and_of_gradients(where, form):
    x = random(3, 5, where=where)
    ours, theirs = PAIRS[form]
    torch.testing.assert_close(vmap(lambda x: ours(x, 0))(x[0]), vmap(lambda x: theirs(x, 0))(x[0]))
    torch.testing.assert_close(vmap(lambda x: ours(x, 0), in_dims=1)(x), vmap(lambda x: theirs(x, 0), in_dims=1)(x))
    y, backward = torch.softmax(x[0], 0), ops.operator(f"{form}_backward")
    for each, of in ((x, y), (x[0], y[0])):
        batched = vmap(lambda dy, of=of: backward(dy, of, 0, torch.float64))(each)
        torch.testing.assert_close(batched, torch.stack([backward(dy, of, 0, torch.float64) for dy in each]))


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
        assert code.count("ops.portable_softmax.") == (2 if "softmin" not in code else 3)


def test_symbolic_traces_hold_the_call(place, form):
    ours, theirs = PAIRS[form]
    x = random(3, 5, where=place)
    traced = torch.fx.symbolic_trace(lambda x, dim: ours(x * 2, dim, torch.float64))
    assert f"torch.ops.portable_softmax.{form}.default(" in traced.code
    torch.testing.assert_close(traced(x, 0), theirs(x * 2, 0, dtype=torch.float64))
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Identity(), Softmax(1)))
    assert [node.target.namespace for node in traced.graph.nodes if node.op == "call_function"] == ["portable_softmax"]
    torch.testing.assert_close(pickle.loads(pickle.dumps(traced))(x), torch.softmax(x, 1))
    traced = torch.fx.symbolic_trace(lambda x: ours(x, 0, scale=2.0))
    assert any(node.target is ours for node in traced.graph.nodes)
    torch.testing.assert_close(traced(x), ours(x, 0, scale=2.0))


def every_form(x: torch.Tensor) -> torch.Tensor:
    return softmax(input=x, dim=0, dtype=torch.float64) + log_softmax(x, 1) + softmin(x)


@pytest.mark.kernel
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_scripts_hold_the_operator(where):
    x = random(3, 5, where=where)
    scripted = torch.jit.script(every_form)
    assert str(scripted.graph).count("portable_softmax::") == 3
    torch.testing.assert_close(scripted(x), every_form(x))
    for ours, theirs in ((Softmax(1), torch.nn.Softmax(1)), (LogSoftmax(), torch.nn.LogSoftmax(-1))):
        scripted, kept = torch.jit.script(torch.nn.Sequential(torch.nn.Identity(), ours)), io.BytesIO()
        assert str(scripted.inlined_graph).count("portable_softmax::") == 1
        torch.jit.save(scripted, kept)
        kept.seek(0)
        for module in (scripted, torch.jit.load(kept)):
            leaves = [x.clone().requires_grad_() for _ in range(2)]
            results = module(leaves[0]), theirs(leaves[1])
            for result in results:
                result.square().sum().backward()
            torch.testing.assert_close(*results)
            torch.testing.assert_close(leaves[0].grad, leaves[1].grad)
    with pytest.raises(torch.jit.Error, match="takes only a module's dim"):
        torch.jit.script(Softmax(scale=0.5))(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
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
            fake = ours(mode.from_tensor(random(3, 5, where=place)), 0, **dict.fromkeys(given, 2.0))
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
    dispatched, x = [], random(3, 5, where=where)
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


@pytest.mark.kernel
def test_the_direct_path_records_the_gradient_of_the_operator(where, form):
    """The first gradient, that of a repeated call, and their own gradients, though `dy` may lie otherwise."""
    x, weights = random(3, 5, where=where), random(5, 3, seed=1, where=where).t()
    leaves = [x.clone().requires_grad_() for _ in range(3)]
    results = [ops.operator(form)(leaves[0], 0), *(PAIRS[form][0](leaf, 0) for leaf in leaves[1:])]
    given = list(zip(results, leaves, strict=True))
    assert len({tuple(torch.autograd.grad(y, x, weights, retain_graph=True)[0].flatten().tolist()) for y, x in given}) == 1
    first = [torch.autograd.grad(y, leaf, weights, create_graph=True)[0] for y, leaf in given]
    second = [torch.autograd.grad(dx.square().sum(), leaf)[0] for dx, leaf in zip(first, leaves, strict=True)]
    for each in (first, second):
        assert torch.equal(each[0], each[1])
        assert torch.equal(each[0], each[2])


@pytest.mark.parametrize("name", ["plain", "scored"])
def test_programs_that_version_1_0_saved_are_loaded(name):
    """Their graphs hold portable_softmax::scored, and operators of fewer arguments."""
    x, mask, temperature = random(4, 6).float(), torch.ones(4, 6, dtype=torch.bool).tril(), random(4, 1).float().abs() + 0.5
    module = torch.export.load(RECORDED / f"{name}_1_0.pt2").module()
    if name == "plain":
        y, exact = module(x), log_softmax(x, 0) + softmax(x, -1)
    else:
        first = softmax(x, mask=mask, temperature=temperature, softcap=3.0, sink=0.5)
        y, exact = module(x, mask, temperature), first + softmin(x, 1, scale=2.0, masked_rows="zero")
    torch.testing.assert_close(y, exact)


@pytest.mark.kernel
def test_a_gradient_and_other_forms_have_plans(where):
    device = portable_softmax.current_device()
    plan = portable_softmax.plan(640, 70000, "float32", device, form="log_softmax", backward=True)
    assert plan.tiling.strategy == ("shared" if device.backend in ("cuda", "hip") else "online")
