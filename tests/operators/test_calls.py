"""Any call, against float64: results, gradients, and every other way to make the same call."""

import copy

import pytest
import torch
from calls import ALONE, TWO, Call, calls, few, names, place
from closeness import assert_close, gradient_scale
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pairs import FLOATS, PAIRS, assert_like_torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from portable_softmax import LogSoftmax, Softmax

__all__ = ["place"]
SMALL = st.lists(st.integers(1, 9), min_size=1, max_size=4)
EACH = [Call(tuple(PAIRS)[at % 3], ways=ways) for at, ways in enumerate([(each,) for each in ALONE] + TWO[::6])]


@settings(few, max_examples=100)
@given(call=calls())
def test_result(place, call):
    call.check(place)


@settings(few, max_examples=40)
@given(call=calls(shapes=SMALL, dtypes=[torch.float32], special=False))
def test_gradients(place, call):
    call.check_gradients(place)


@pytest.mark.parametrize("call", EACH, ids=lambda call: f"{call.form}-{names(call.ways)}")
def test_each_option_alone_and_some_beside_another(place, call):
    call.check(place)
    call.check_gradients(place)


@pytest.mark.slow
@pytest.mark.parametrize("ways", TWO, ids=names)
def test_each_two_options(place, form, ways):
    Call(form, ways=ways).check(place)
    Call(form, ways=ways).check_gradients(place)


def compiled(call, x, options):
    torch._dynamo.reset()
    return torch.compile(lambda x: call.ours(x, call.dim, call.wanted, **options), backend="aot_eager", fullgraph=True)(x)


def traced(call, x, options):
    return make_fx(lambda x: call.ours(x, call.dim, call.wanted, **options))(torch.zeros_like(x))(x)


def batched(call, x, options):
    dim = call.dim if call.dim < 0 else call.dim - x.dim()
    return torch.vmap(lambda x: call.ours(x, dim, call.wanted, **options))(torch.stack([x, x]))[1]


def again(call, x, options):
    for _ in range(2):
        call.ours(torch.zeros_like(x), call.dim, call.wanted, **options)
    return call.ours(x, call.dim, call.wanted, **options)


def into(call, x, options):
    out = torch.full(x.shape, 7.0, dtype=call.wanted or x.dtype, device=x.device)
    out = out.t().contiguous().t() if out.dim() == 2 else out
    assert call.ours(x, call.dim, call.wanted, out=out, **options) is out
    return out


def in_place(call, x, options):
    assume(call.wanted in (None, x.dtype) and call.layout not in ("expanded", "every second"))
    y = x.clone()
    call.ours(y, call.dim, out=y, **options)
    return y


def without_gradients(call, x, options):
    with torch.inference_mode():
        return call.ours(x, call.dim, call.wanted, **options).clone()


def recorded(call, x, options):
    return call.ours(x.clone().requires_grad_(), call.dim, call.wanted, **options).detach()


def checkpointed(call, x, options):
    leaf = x.clone().requires_grad_()
    return checkpoint(call.ours, leaf, call.dim, call.wanted, use_reentrant=False, **options).detach()


def listened(call, x, options):
    class Nothing(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    with Nothing():
        return call.ours(x, call.dim, call.wanted, **options)


def by_a_module(call, x, options):
    assume(call.form != "softmin" and call.wanted in (None, x.dtype))
    kinds = {"softmax": Softmax, "log_softmax": LogSoftmax}
    made = {name: each for name, each in options.items() if not isinstance(each, torch.Tensor) and name != "sink"}
    given = {name: torch.as_tensor(each, device=x.device) for name, each in options.items() if name not in made}
    return copy.deepcopy(kinds[call.form](call.dim, **made))(x, **given)


WAYS = compiled, traced, batched, again, into, in_place, without_gradients, recorded, checkpointed, listened
WAYS += (by_a_module,)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@settings(few, max_examples=8)
@given(call=calls(shapes=SMALL, dtypes=[torch.float32, torch.bfloat16], special=False))
def test_ways(place, way, call):
    """Each way gives the numbers of the call itself."""
    x, options = call.x(place), call.options(place)
    y, plain = way(call, x, options), call.run(place)
    assert (y.dtype, y.shape) == (plain.dtype, plain.shape)
    eps = torch.finfo(y.dtype).eps
    torch.testing.assert_close(y, plain, rtol=4 * eps, atol=4 * eps, equal_nan=True)


@settings(few, max_examples=8)
@given(call=calls(scored=False, shapes=SMALL, dtypes=[torch.float32, torch.bfloat16], special=False))
def test_autocast_gives_float32_as_torchs_rule_has_it(place, call):
    with torch.autocast(place.type, dtype=torch.bfloat16):
        x = call.x(place).clone().requires_grad_()
        for options in ({}, {"scale": 2.0, "sink": 1.0}):
            y = call.ours(x, call.dim, call.wanted, **options)
            assert y.dtype == (call.wanted or torch.float32)
            assert torch.autograd.grad(y.sum(), x)[0].dtype == call.dtype
        assert call.ours(x.double(), call.dim).dtype == torch.float64


def samples(name, device, dtype):
    from torch.testing._internal.common_methods_invocations import op_db

    infos = [info for info in op_db if info.name == name]
    assert infos, f"torch has no OpInfo {name}"
    return [each for info in infos if dtype in info.dtypes for each in info.sample_inputs(device, dtype)]


@pytest.mark.kernel
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.uint8, torch.bool], ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "nn.functional.softmin"])
def test_samples_of_torch(where, name, dtype):
    ran, form = 0, name.rpartition(".")[2]
    for sample in samples(name, where, dtype):
        dim = sample.kwargs.get("dim", sample.args[0] if sample.args else None)
        wanted = sample.kwargs.get("dtype", sample.args[1] if len(sample.args) > 1 else None)
        if (form, dtype) != ("softmin", torch.bool) and (wanted or dtype).is_floating_point:
            assert_like_torch(form, sample.input.detach(), dim, wanted)
            ran += 1
    assert ran or dtype not in FLOATS


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_samples_of_the_gradient_of_torch(where, dtype):
    ran = 0
    for sample in samples("_softmax_backward_data", where, dtype):
        y, dim, x_dtype = sample.args
        exact = torch.ops.aten._softmax_backward_data(sample.input.double(), y.double(), dim, torch.float64)
        result = torch.ops.portable_softmax.softmax_backward(sample.input.detach(), y.detach(), dim, x_dtype)
        assert result.dtype == x_dtype
        assert_close(result, exact, gradient_scale("softmax", sample.input, y, dim))
        ran += 1
    assert ran
