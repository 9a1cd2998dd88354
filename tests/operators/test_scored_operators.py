"""The operators of scores do all that torch asks: compiling, tracing, vmap, autocast, derivatives of all orders."""

from pathlib import Path

import pytest
import torch
import torch._dynamo.testing
from pairs import PAIRS
from scores_reference import TWO, names, reference, together
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from portable_softmax import LogSoftmax, Softmax, log_softmax, softmax, softmin
from portable_softmax.operators import autograd, launching
from portable_softmax.operators.options import Options, read

SHAPE = 2, 3, 4, 5
NUMBERS = torch.float64
RECORDED = Path(__file__).parents[1] / "support/recorded"


def random(*shape, seed=0):
    return torch.randn(shape, dtype=NUMBERS, generator=torch.Generator().manual_seed(seed))


def asked(form="softmax", dtype=NUMBERS, **given):
    return read(form, random(*SHAPE), 3, dtype, Options(**given))[1]


EVERYTHING = {
    "temperature": random(2, 1, 4, 1).abs() + 0.5,
    "mask": random(1, 3, 1, 5),
    "causal": "lower_right",
    "softcap": 2.0,
    "sink": random(3),
    "masked_rows": "zero",
}
SOME = {
    "nothing else": {"masked_rows": "zero"},
    "a number": {"scale": 0.5, "mask": random(4, 5) > -1},
    "rows": {"scale": random(4, 1), "causal": True},
    "everything": EVERYTHING,
}


@pytest.mark.each_value
@pytest.mark.parametrize("given", SOME.values(), ids=SOME)
def test_opcheck(by_torch, form, given):
    call = asked(form, **given)
    operators = torch.ops.portable_softmax
    torch.library.opcheck(getattr(operators, form).default, tuple(call))
    leaves = [each.requires_grad_() if isinstance(each, torch.Tensor) and each.is_floating_point() else each for each in call]
    torch.library.opcheck(getattr(operators, form).default, tuple(leaves))
    y = launching.forward(form, asked(form, **given), False).detach()
    arguments = random(*SHAPE, seed=1), y, 3, torch.float32, call.factors, *call.of_gradient
    torch.library.opcheck(getattr(operators, f"{form}_backward").default, arguments)


@pytest.mark.each_value
@pytest.mark.parametrize("ways", TWO[::4], ids=names)
def test_derivatives(by_torch, form, ways):
    """Derivatives of all tensors, in reverse and forward mode, twice."""
    given = together(ways, SHAPE)
    if isinstance(given.get("temperature"), torch.Tensor):
        given["temperature"] = given["temperature"].clip(-2, 2)
        given["temperature"][given["temperature"].abs() == torch.tensor(1e-30)] = 0.25
    leaves = {
        name: each.to(NUMBERS).clone().requires_grad_()
        for name, each in ({"input": random(*SHAPE)} | given).items()
        if isinstance(each, torch.Tensor) and each.is_floating_point()
    }
    if "mask" in leaves:
        leaves["mask"] = leaves["mask"].detach().clip(-3).requires_grad_()  # finite ones have differences
    if "temperature" in leaves:  # greedy rows have none
        leaves["temperature"] = torch.where(leaves["temperature"] == 0, 1.5, leaves["temperature"]).detach().requires_grad_()
    others = {name: each for name, each in given.items() if name not in leaves}

    def computed(*tensors):
        y = PAIRS[form][0](**dict(zip(leaves, tensors, strict=True)), **others)
        return y.clip(min=-1e6)  # of a logarithm's -inf there is no difference

    checks = {"check_forward_ad": True, "check_batched_grad": True, "fast_mode": True}
    assert torch.autograd.gradcheck(computed, tuple(leaves.values()), **checks)
    assert torch.autograd.gradgradcheck(computed, tuple(leaves.values()), fast_mode=True)


def weighted(function):
    return lambda x, sink, scale: (function(x, sink=sink, scale=scale, softcap=3.0) * torch.arange(5.0)).sum()


@pytest.mark.parametrize(
    "transform",
    [
        grad,
        lambda f: grad(f, argnums=1),
        lambda f: jacrev(f, argnums=2),
        lambda f: jacfwd(f, argnums=2),
        lambda f: vmap(f, in_dims=(0, 0, 0)),
        lambda f: vmap(grad(f, argnums=2), in_dims=(None, 0, 0)),
        lambda f: lambda x, *more: grad(lambda x: grad(f)(x, *more).pow(2).sum())(x),
        lambda f: lambda x, *more: jvp(lambda x: grad(f)(x, *more), (x,), (x * 3,)),
    ],
    ids=["grad", "of sinks", "jacrev", "jacfwd", "vmap", "vmap of grad", "grad of grad", "jvp of grad"],
)
def test_transforms(by_torch, form, transform):
    arguments = random(3, 5), random(3, 1), random(3, 1, seed=7)
    ours = transform(weighted(PAIRS[form][0]))(*arguments)
    theirs = transform(weighted(lambda x, **given: reference(form, x, **given)))(*arguments)
    torch.testing.assert_close(ours, theirs)


def test_vmap_over_each_argument(by_torch):
    def computed(x, temperature, sink, mask):
        return softmax(x, temperature=temperature, sink=sink, mask=mask)

    whole = random(3, 4, 5), random(3, 4, 1), random(3, 4, 1), random(3, 4, 5) > -1
    for in_dims in ((0, None, None, None), (0, 0, 0, 0), (None, 0, None, None), (None, None, 0, 0)):
        given = [each if at == 0 else each[0] for each, at in zip(whole, in_dims, strict=True)]
        alone = [computed(*(each[n] if at == 0 else each for each, at in zip(given, in_dims, strict=True))) for n in range(3)]
        torch.testing.assert_close(vmap(computed, in_dims)(*given), torch.stack(alone))


def test_vmap_over_a_mask_that_lies_last(by_torch):
    x, mask = random(4, 5), torch.rand(4, 5, 3, generator=torch.Generator().manual_seed(2)) > 0.5
    batched = vmap(lambda mask: softmax(x, mask=mask, masked_rows="zero"), in_dims=2)(mask)
    torch.testing.assert_close(batched, torch.stack([softmax(x, mask=each, masked_rows="zero") for each in mask.unbind(2)]))


@pytest.mark.each_value
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("given", SOME.values(), ids=SOME)
def test_compile_without_graph_breaks(by_torch, form, given, dynamic):
    torch._dynamo.reset()
    counted = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda x, given: PAIRS[form][0](x * 2, **given).sin(), fullgraph=True, dynamic=dynamic, backend=counted
    )
    leaves = [random(*SHAPE).requires_grad_() for _ in range(2)]
    results = compiled(leaves[0], given), reference(form, leaves[1] * 2, **given).sin()
    weights = random(*SHAPE, seed=2)
    for leaf, result in zip(leaves, results, strict=True):
        result.nan_to_num(0).backward(weights)
        leaf.grad.nan_to_num_(0)
    torch.testing.assert_close(*results, equal_nan=True)
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad)
    compilations = counted.frame_count
    compiled(random(*SHAPE, seed=5).requires_grad_(), given)
    assert counted.frame_count == compilations
    assert any(f"portable_softmax.{form}" in str(node.target) for graph in counted.graphs for node in graph.graph.nodes)


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = Softmax(scale=0.125, causal=True, softcap=30.0)
        self.logarithms = LogSoftmax(masked_rows="zero")

    def forward(self, x, mask, temperature):
        return self.weights(x, mask=mask) + self.logarithms(x, temperature=temperature)


def test_export_and_make_fx(by_torch):
    x, mask, temperature = random(2, 4, 5), (random(2, 1, 5) > -1) | (torch.arange(5) == 0), random(2, 1, 1).abs()
    model, size = Attention(), torch.export.Dim("n", min=2)
    exported = torch.export.export(model, (x, mask, temperature), dynamic_shapes=({0: size}, {0: size}, {0: size}))
    again = [torch.cat((each, each)) for each in (x, mask, temperature)]
    torch.testing.assert_close(exported.module()(*again), model(*again))
    assert str(exported.graph_module.code).count("ops.portable_softmax.") == 2
    traced = make_fx(lambda x, m, t: functional_call(model, {}, (x, m, t)))(x, mask, temperature)
    torch.testing.assert_close(traced(-x, mask, temperature), model(-x, mask, temperature))


def test_symbolic_traces_hold_the_function(by_torch):
    traced = torch.fx.symbolic_trace(lambda x: softmax(x, 0, scale=2.0))
    assert any(node.target is softmax for node in traced.graph.nodes)
    torch.testing.assert_close(traced(random(3, 2)), softmax(random(3, 2), 0, scale=2.0))


def test_modules_take_numbers_when_made_and_tensors_with_a_call(by_torch):
    x, t = random(3, 5), random(3, 1).abs()
    torch.testing.assert_close(Softmax(0, temperature=2.0)(x), softmax(x, 0, temperature=2.0))
    torch.testing.assert_close(Softmax(temperature=2.0)(x, temperature=t), softmax(x, temperature=t))
    torch.testing.assert_close(LogSoftmax(softcap=2.0)(x, sink=t), log_softmax(x, softcap=2.0, sink=t))
    assert repr(Softmax(scale=0.5, causal=True)) == "Softmax(dim=-1, scale=0.5, causal=True)"
    with pytest.raises(TypeError, match=r"Softmax\(\): argument 'temperature' must be a number; give a tensor to each call"):
        Softmax(temperature=t)
    scripted = torch.jit.script(Softmax(scale=0.5))
    with pytest.raises(torch.jit.Error, match="takes only a module's dim"):
        scripted(x)


def test_autocast_gives_float32_as_torchs_rule_has_it(by_torch):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for given, wanted, expected in (
            (torch.bfloat16, None, torch.float32),
            (torch.float64, None, torch.float64),
            (torch.bfloat16, torch.bfloat16, torch.bfloat16),
        ):
            leaf = random(3, 5).to(given).requires_grad_()
            y = softmax(leaf, dtype=wanted, scale=2.0, sink=torch.zeros(3, 1))
            y.sum().backward()
            assert (y.dtype, leaf.grad.dtype) == (expected, given)


def test_tensors_without_memory(by_torch):
    from torch._subclasses import FakeTensorMode

    x = torch.empty(3, 5, device="meta")
    y = softmax(x.t(), 0, torch.float16, temperature=torch.empty(1, 3, device="meta"), sink=1.0)
    assert (y.shape, y.dtype, y.is_contiguous(), y.device.type) == ((5, 3), torch.float16, True, "meta")
    with FakeTensorMode() as mode:
        assert softmax(mode.from_tensor(random(3, 5)), scale=2.0).shape == (3, 5)


def test_only_what_gradients_need_is_saved(by_torch):
    def saved(**given):
        kept = []
        leaf = random(*SHAPE).requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each.shape) or each, lambda each: each):
            softmax(leaf, **given)
        return kept

    assert saved(scale=0.5, causal=True, mask=random(4, 5) > 0, sink=random(3)) == [SHAPE]
    assert saved(temperature=random(4, 1).expand(3, 4, 1)) == [SHAPE, SHAPE[:3]]
    assert saved(softcap=2.0) == [SHAPE, SHAPE]


def test_the_gradient_of_x_is_one_call_of_the_operator(by_torch, monkeypatch):
    called = []
    monkeypatch.setattr(
        autograd._Gradients,
        "of_scores",
        lambda *_: pytest.fail("the gradient of scores is for a mask and factors alone"),
    )
    whole = autograd._Gradients._launched
    monkeypatch.setattr(autograd._Gradients, "_launched", lambda *given: called.append(1) or whole(*given))
    leaf = random(*SHAPE).requires_grad_()
    softmax(leaf, scale=0.5, temperature=random(4, 1), mask=random(4, 5) > 0, sink=1.0).sum().backward()
    assert called == [1]


@pytest.mark.parametrize("name", ["plain", "scored"])
def test_programs_that_version_1_0_saved_are_loaded(name):
    """Their graphs hold portable_softmax::scored, and operators of fewer arguments."""
    x, mask, temperature = random(4, 6).float(), torch.ones(4, 6, dtype=torch.bool).tril(), random(4, 1).float().abs() + 0.5
    module = torch.export.load(RECORDED / f"{name}_1_0.pt2").module()
    if name == "plain":
        y, expected = module(x), log_softmax(x, 0) + softmax(x, -1)
    else:
        first = softmax(x, mask=mask, temperature=temperature, softcap=3.0, sink=0.5)
        y, expected = module(x, mask, temperature), first + softmin(x, 1, scale=2.0, masked_rows="zero")
    torch.testing.assert_close(y, expected)
