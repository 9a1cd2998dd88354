"""override_aten: torch's own samples come to this package's kernels, eager and compiled; the rest stays torch's, to the bit."""

import re
import subprocess
import sys
import threading

import pytest
import torch
from closeness import assert_close, expected, terms_of
from pairs import FLOATS

from portable_softmax import DeviceError, DtypeError, batch_invariant, override_aten
from portable_softmax.operators import aten

pytestmark = pytest.mark.kernel
ATEN = torch.ops.aten


@pytest.fixture(autouse=True)
def ended():
    yield
    assert not aten._in_force()


@pytest.fixture
def computed(monkeypatch):
    """The operators that this package computed, as (form, the function that did it)."""
    names = []

    def recorded(name, compute):
        return lambda *given: names.append((given[0], name)) or compute(*given)

    for name in ("forward", "backward", "write"):
        monkeypatch.setattr(aten, name, recorded(name, getattr(aten, name)))
    return names


@pytest.fixture
def x(where):
    return torch.randn(3, 37, generator=torch.Generator().manual_seed(0)).to(where)


def samples(name, device, dtype, requires_grad):
    from torch.testing._internal.common_methods_invocations import op_db  # which takes a second, of tests that need it

    infos = [info for info in op_db if info.name == name and dtype in info.supported_dtypes(device.type)]
    assert infos, f"torch has no OpInfo {name} of {dtype}"
    return [(info, sample) for info in infos for sample in info.sample_inputs(device, dtype, requires_grad=requires_grad)]


def bits(x):
    """A tensor to compare by bits: nan is equal to the same nan."""
    return x.contiguous().view(-1).view(torch.uint8) if x.numel() else x


def assert_same_bits(result, theirs):
    assert (result.dtype, result.shape, result.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
    assert torch.equal(bits(result), bits(theirs))


def outcome(function, *given, **named):
    try:
        return function(*given, **named)
    except Exception as error:
        return error


COMPILERS = {
    "eager": lambda function: function,
    "dynamo": lambda function: torch.compile(function, backend="eager", fullgraph=True),
    "aot": lambda function: torch.compile(function, backend="aot_eager", fullgraph=True),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.each_value
@pytest.mark.parametrize(
    ("compiler", "dtype"),
    [*(("eager", dtype) for dtype in FLOATS), ("dynamo", torch.float32), ("aot", torch.float16), ("aot", torch.float32)],
    ids=str,
)
@pytest.mark.parametrize("form", ["softmax", "log_softmax"])
def test_samples_of_torch_and_their_gradients(where, form, dtype, compiler, computed):
    """Results and gradients have the type, strides and nan of torch's; results are as close to float64 as softmax's own."""
    ran = 0
    for info, sample in samples(form, where, dtype, requires_grad=True):
        x, wanted = sample.input, sample.kwargs.get("dtype")
        if wanted and not wanted.is_floating_point:
            continue
        dim = sample.kwargs.get("dim", sample.args[0] if sample.args else None)
        torch._dynamo.reset()
        theirs = info.op(x, *sample.args, **sample.kwargs)
        dy = torch.randn_like(theirs)
        (their_dx,) = torch.autograd.grad(theirs, x, dy)
        with override_aten():
            result = COMPILERS[compiler](info.op)(x, *sample.args, **sample.kwargs)
            (dx,) = torch.autograd.grad(result, x, dy)
        assert (result.dtype, result.shape, result.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        assert_close(result.detach(), expected(form, x.detach().to(result.dtype), dim), terms_of(form))
        assert (dx.dtype, dx.shape, dx.stride()) == (their_dx.dtype, their_dx.shape, their_dx.stride())
        torch.testing.assert_close(dx, their_dx, atol=0.1 if dtype is torch.bfloat16 else 0.01, rtol=0.02)
        ran += 1
    assert ran > 3
    assert {direction for _, direction in computed} == {"forward", "backward"}


@pytest.mark.parametrize("form", ["softmax", "log_softmax"])
def test_half_to_float_and_back(x, form, computed):
    forward, backward = getattr(ATEN, f"_{form}").default, getattr(ATEN, f"_{form}_backward_data").default
    half = x.half()
    with override_aten():
        y = forward(half, 1, True)
        dx = backward(x, y, 1, torch.float16)
    assert computed == [(form, "forward"), (form, "backward")]
    assert (y.dtype, dx.dtype) == (torch.float32, torch.float16)
    assert_close(y, expected(form, half), terms_of(form))
    theirs = backward(x.double(), expected(form, half), 1, torch.float64)
    torch.testing.assert_close(dx.double(), theirs, atol=2e-3, rtol=2e-3)


THEIRS = {
    "integers": lambda x: torch.softmax(x.int(), 1),
    "float8": lambda x: torch.softmax(x.to(torch.float8_e4m3fn), 1),
    "complex": lambda x: torch.softmax(x.to(torch.complex64), 1),
    "half_to_float of float32": lambda x: ATEN._softmax(x, 1, True),
    "half_to_float of bfloat16": lambda x: ATEN._softmax(x.bfloat16(), 1, True),
    "types of a gradient": lambda x: ATEN._softmax_backward_data(x, x.double(), 1, torch.float32),
    "another input type": lambda x: ATEN._softmax_backward_data(x, x, 1, torch.float64),
    "shapes of a gradient": lambda x: ATEN._softmax_backward_data(x, x[:1], 1, torch.float32),
    "no such dim": lambda x: torch.log_softmax(x, 2),
    "no such dim of a gradient": lambda x: ATEN._softmax_backward_data(x, x, -3, torch.float32),
    "coo": lambda x: torch.softmax(x.to_sparse(), 1),
    "quantized": lambda x: torch.softmax(torch.quantize_per_tensor(x, 0.1, 0, torch.quint8), 1),
    "meta": lambda x: torch.softmax(x.to("meta"), 1).stride(),
    "empty": lambda x: torch.softmax(x[:0], 1),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", THEIRS.values(), ids=THEIRS)
def test_what_stays_torchs_to_the_bit(x, call):
    theirs = outcome(call, x)
    with override_aten():
        result = outcome(call, x)
    if isinstance(theirs, torch.Tensor):
        assert_same_bits(result, theirs)
    elif isinstance(theirs, Exception):
        assert (type(result), str(result).split("\n")[0]) == (type(theirs), str(theirs).split("\n")[0])
    else:
        assert result == theirs


def test_rows_that_kernels_cannot_address_stay_torchs():
    row, fits = 2**31, 2**31 - 2**16
    for shape, dim, addressed in [
        ((1, row), 1, False),
        ((2, fits), -1, True),
        ((2, 2, 2**15, 2**16), 1, False),
        ((row, 5), 1, True),
    ]:
        assert aten._is_addressed(torch.empty(shape, device="meta"), dim) == addressed


class Units(torch.Tensor):
    pass


CALLS = {
    "autocast": lambda x: torch.autocast(x.device.type, torch.bfloat16)(torch.softmax)(x.bfloat16(), 1),
    "vmap": lambda x: torch.func.vmap(lambda row: torch.softmax(row, 0))(x),
    "jvp": lambda x: torch.func.jvp(lambda x: torch.softmax(x, 1), (x,), (x,))[1],
    "hessian": lambda x: torch.func.hessian(lambda x: torch.log_softmax(x, 0).sum())(x[0, :4]),
    "a parameter": lambda x: torch.softmax(torch.nn.Parameter(x), 1).detach(),
    "a subclass": lambda x: torch.softmax(x.as_subclass(Units), 1),
    "inference mode": lambda x: torch.inference_mode()(torch.softmax)(x, 1),
    "a script": lambda x: torch.jit.trace(lambda x: torch.softmax(x, 1), x)(x),
    "components of a nested tensor": lambda x: torch.softmax(torch.nested.nested_tensor([x, x[:2]]), -1).unbind()[1],
    "a strided view": lambda x: torch.softmax(x.t()[::2], 0),
    "a number": lambda x: torch.softmax(x[0, 0], 0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_that_come_here(x, call, computed):
    theirs = call(x)
    assert not computed
    with override_aten():
        result = call(x)
    assert computed
    assert type(result) is type(theirs)
    torch.testing.assert_close(result, theirs)


def into(make):
    def call(x):
        out = make(x)
        ATEN._softmax.out(x, 1, False, out=out)
        return out

    return call


OUTS = {  # (a result for x, whether this package computes it)
    "contiguous": (torch.empty_like, True),
    "transposed": (lambda x: torch.empty_like(x.t()).t(), True),
    "in place": (lambda x: x, True),
    "another shape": (lambda x: torch.empty(0, device=x.device), False),
    "another type": (lambda x: torch.empty_like(x, dtype=torch.float64), False),
    "partly under the input": (lambda x: x.view(-1).as_strided(x.t().shape, (x.shape[0], 1)).t(), False),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("make", "ours"), OUTS.values(), ids=OUTS)
def test_results_that_the_caller_gives(x, monkeypatch, make, ours):
    written = []
    monkeypatch.setattr(aten, "write", lambda *given, write=aten.write: written.append(given) or write(*given))
    theirs = outcome(into(make), x.clone())
    with override_aten():
        result = outcome(into(make), x.clone())
        assert bool(written) == ours
        asked = outcome(lambda x: torch.softmax(x, 1, out=make(x)), x.clone())
    if isinstance(theirs, Exception):
        assert (type(result), str(result).split("\n")[0]) == (type(theirs), str(theirs).split("\n")[0])
    elif ours:
        torch.testing.assert_close(result, theirs)
        torch.testing.assert_close(asked, theirs)
    else:
        assert_same_bits(result, theirs)


def test_a_graph_from_before_computes_by_it_inside_and_torch_afterwards(x, computed):
    graph = torch.export.export(torch.nn.Softmax(1), (x,)).module()
    theirs = graph(x)
    with override_aten():
        torch.testing.assert_close(graph(x), theirs)
    assert computed == [("softmax", "forward")]
    assert_same_bits(graph(x), theirs)


def test_overrides_nest_and_end_in_any_order(x, computed):
    first, second = override_aten(), override_aten()
    first.end()
    first.end()
    torch.softmax(x, 1)
    assert len(computed) == 1
    with second, override_aten():
        torch.softmax(x, 1)
    assert len(computed) == 2
    torch.softmax(x, 1)
    assert len(computed) == 2
    with pytest.raises(RuntimeError, match=r"has ended; call override_aten\(\) for another"), first:
        pass
    with pytest.raises(KeyError), override_aten():
        raise KeyError
    torch.softmax(x, 1)
    assert len(computed) == 2


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_what_is_not_computed_goes_to_the_kernel_that_is_overridden(where, x, computed, monkeypatch):
    """Another library's may pass calls on, too: to what it found, which may be kernels of this package."""
    key, library = torch._C._dispatch_key_for_device(where.type), torch.library.Library("aten", "IMPL")
    with override_aten():
        pass
    found, asked = torch.library.get_kernel("aten::_log_softmax", key), []

    def compute(keys, x, dim, half_to_float):
        asked.append(x.dtype)
        return found.call_boxed(keys, x, dim, half_to_float)

    def refused(*given):
        raise DtypeError("no such type")

    library.impl("_log_softmax", compute, key, with_keyset=True)
    theirs = torch.log_softmax(x, 1)
    asked.clear()
    with override_aten():
        torch.log_softmax(x, 1)
        assert (computed, asked) == ([("log_softmax", "forward")], [])
        monkeypatch.setattr(aten, "forward", refused)
        assert_same_bits(torch.log_softmax(x, 1), theirs)
        assert asked == [x.dtype]
        library._destroy()
        assert_same_bits(torch.log_softmax(x, 1), theirs)
    assert asked == [x.dtype]


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.parametrize("name", ["_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"])
def test_torchs_own_kernel_is_found_beneath_one_that_goes(where, x, name):
    """Another library's was there ahead of the first override; once it is gone, what is not computed here is torch's again."""
    half = x.half()
    given = [(x, 1, False), (x.t(), 0, False)] if "back" not in name else [(x, x, 1, x.dtype), (x.t(), x.t(), 0, x.dtype)]
    given += [(half, 1, True)] if where.type != "cpu" and "back" not in name else []
    theirs = [getattr(ATEN, name)(*each) for each in given]
    key, library = torch._C._dispatch_key_for_device(where.type), torch.library.Library("aten", "IMPL")
    aten._newest = None
    library.impl(name, lambda *given: pytest.fail("it is gone"), key)
    override_aten().end()
    library._destroy()
    for each, y in zip(given, theirs, strict=True):
        assert_same_bits(getattr(ATEN, name)(*each), y)


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_a_kernel_ahead_of_it_is_told(where, x):
    """Who registers what torch.softmax itself is keeps calls from coming to aten::_softmax."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("softmax.int", lambda x, dim, dtype=None: x, torch._C._dispatch_key_for_device(where.type))
    with pytest.warns(UserWarning, match=rf"aten::softmax.int at .* registered at {re.escape(__file__)}:"):
        override = override_aten()
    override.end()
    library._destroy()


MASKED = {  # calls with a row that is masked wholly, and whether torch makes nan of their gradients
    "softmax": (lambda x: torch.softmax(x, 1), True),
    "log_softmax": (lambda x: torch.log_softmax(x, 1), True),
    "half_to_float": (lambda x: torch.softmax(x.half(), 1, dtype=torch.float32), True),
    "along another dim": (lambda x: torch.softmax(x.t(), 0).t(), True),
    "columns": (lambda x: torch.softmax(x, 0), False),
}


@pytest.mark.parametrize(("call", "whole"), MASKED.values(), ids=MASKED)
def test_rows_masked_wholly_are_0_if_asked(x, call, whole, computed):
    given = x.masked_fill(torch.tensor([[False], [True], [False]], device=x.device), float("-inf"))
    leaf, dy = given.requires_grad_(), torch.ones_like(given)
    plain = call(leaf)
    with override_aten(), override_aten(masked_rows="zero"):
        y = call(leaf)
        (dx,) = torch.autograd.grad(y, leaf, dy)
        with override_aten():
            assert call(leaf).isnan().any() == whole, "the last override decides"
    nothing = float("-inf") if "log" in str(y.grad_fn).lower() else 0.0
    if whole:
        assert plain[1].isnan().all()
        assert (y[1] == nothing).all()
    torch.testing.assert_close(y[::2], plain[::2])
    assert not dx[1].any()
    assert dx.isfinite().all()


def test_threads_compute_while_overrides_begin_and_end(x, monkeypatch):
    """Torch frees a kernel that is taken back, so none is. Kernels that take no time leave more to the dispatcher."""
    monkeypatch.setattr(aten, "forward", lambda form, asked, *_: torch.ones_like(asked.x))
    monkeypatch.setattr(aten, "backward", lambda form, asked, *_: torch.ones_like(asked.dy))
    errors, stop = [], threading.Event()

    def compute():
        leaf = x.clone().requires_grad_()
        while not stop.is_set():
            try:
                torch.softmax(leaf, 1).sum().backward()
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=compute) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(1000):
        for each in (override_aten(), override_aten()):
            each.end()
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors


def test_the_choice_of_batch_invariance_is_read(x, monkeypatch):
    chosen = []
    monkeypatch.setattr(aten, "forward", lambda *given: chosen.append(given[-1]) or given[1].x)
    with override_aten(), batch_invariant():
        torch.softmax(x, 1)
    with override_aten():
        torch.softmax(x, 1)
    assert chosen == [True, False]


def test_a_torch_without_such_kernels_or_that_keeps_them_to_itself_is_refused(monkeypatch):
    monkeypatch.setattr(aten, "DISPATCH_KEYS", {"npu": "PrivateUse1"})
    with pytest.raises(DeviceError, match="has no kernels for npu, and so none to override"):
        override_aten()
    monkeypatch.delattr(torch.library, "get_kernel")
    with pytest.raises(NotImplementedError, match=r"torch 2.9 is the first .* Install a newer torch"):
        override_aten()


def test_no_warning_and_no_kernel_unless_asked(where):
    code = """
import sys, warnings
warnings.simplefilter("error")
import torch, portable_softmax
assert "portable_softmax.operators.aten" not in sys.modules
portable_softmax.override_aten()
print(torch.softmax(torch.zeros(2, 4, device=sys.argv[1]), 1)[0, 0].item())
"""
    done = subprocess.run([sys.executable, "-c", code, str(where)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "0.25", done.stderr
