"""warm_up leaves nothing to plan, to compile or to load for the calls that it is asked for."""

import contextlib
import dataclasses
import json

import pytest
import torch
from pairs import PAIRS

from portable_softmax import Device, DtypeError, NoDeviceError, log_softmax, plan, softmax, warm_up, watch_calls
from portable_softmax.devices import detect as device_module
from portable_softmax.operators.memory import forget
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.runtime import compiled as memory
from portable_softmax.runtime import compiler, warmup
from portable_softmax.runtime.calls import Calls
from portable_softmax.runtime.guard import Guard
from portable_softmax.runtime.plans import plan_problem

SHAPES = [(64, 333), (2, 3, 70), (5,), ()]


@pytest.mark.kernel
def test_a_call_plans_and_compiles_nothing_after_it(where, form):
    plans = warm_up(SHAPES, [torch.float32, "bfloat16"], form=form, backward=True)
    assert len(plans) == len(SHAPES) * 2 * 2
    before = plan_problem.cache_info().misses, len(memory._compiled)
    for shape in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(shape, device=where).to(dtype).requires_grad_()
            PAIRS[form][0](x).sum().backward()
    assert (plan_problem.cache_info().misses, len(memory._compiled)) == before


@pytest.fixture
def loaded(monkeypatch):
    """Collects what is to be loaded, and loads nothing."""
    kernels = []
    monkeypatch.setattr(compiler, "load", kernels.append)
    return kernels


def test_a_device_that_is_not_here_gets_plans_only(loaded):
    h200 = Device.from_profile("nvidia/h200")
    assert warm_up([(4096, 64)], ["float32"], device=h200) == [plan(4096, 64, "float32", h200)]
    assert not loaded


def test_the_planned_kernels_are_loaded_onto_the_device(loaded, monkeypatch):
    current = []

    @contextlib.contextmanager
    def made_current(device):
        current.append(device)
        yield
        assert len(loaded) == 2, "loaded while it is the current one"

    monkeypatch.setattr(warmup, "guard_of", lambda device: Guard(lambda: None, 0, lambda: made_current(device)))
    here = dataclasses.replace(Device.from_profile("nvidia/h200"), index=1)
    forward, backward = warm_up([(4096, 64)], ["float32"], backward=True, device=here)
    assert current == [here]
    assert [kernel.metadata.num_warps for kernel in loaded] == [forward.num_warps, backward.num_warps]
    assert [kernel.metadata.name for kernel in loaded] == ["softmax_kernel", "softmax_backward_kernel"]


@pytest.mark.parametrize(
    ("shapes", "dtypes", "error", "message"),
    [
        ((4096, 64), ["float32"], ValueError, r"not one shape; give \[\(4096, 64\)\]"),
        ([(4096, 0.5)], ["float32"], ValueError, r"one of them is \(4096, 0.5\)"),
        ([(4096, 0)], ["float32"], ValueError, "must be positive, not 4096 and 0"),
        ([(-2, -3, 64)], ["float32"], ValueError, r"one of them is \(-2, -3, 64\)"),
        ([(10**20, 64)], ["float32"], ValueError, "100000000000000000000 rows of 64 columns are too large"),
        ([(4, 2**31)], ["float32"], ValueError, "a row of 2147483648 elements is too large; rows of up to 2147418112 can be"),
        ([(4096, 64)], "float32", ValueError, "dtypes should be like .*, not 'float32'"),
        ([(4096, 64)], torch.float32, ValueError, "not torch.float32"),
        ([(4096, 64)], ["int8"], DtypeError, "softmax of int8 was asked for"),
    ],
)
def test_what_cannot_be_warmed_up_is_named(shapes, dtypes, error, message):
    with pytest.raises(error, match=message):
        warm_up(shapes, dtypes, device=Device.from_profile("nvidia/h200"))


def test_an_unknown_form_and_no_device(monkeypatch):
    with pytest.raises(ValueError, match="form 'softplus' was asked for"):
        warm_up([(1, 1)], ["float32"], form="softplus", device=Device.from_profile("nvidia/h200"))

    def nothing():
        raise NoDeviceError("none")

    monkeypatch.setattr(device_module, "current_device", nothing)
    with pytest.raises(NoDeviceError):
        warm_up([(1, 1)], ["float32"])


def model(x, dim):
    """A model with calls of several kinds: gradients, columns, a slice, another type, another form."""
    y = softmax(x, -1, torch.float64)
    (softmax(x, dim) * log_softmax(x[..., 1:], dim).sum()).sum().backward()
    return y


@pytest.mark.kernel
def test_calls_that_were_watched_need_nothing_after_a_warm_up(where, tmp_path):
    x = torch.randn(3, 9, 10, generator=torch.Generator().manual_seed(0)).to(where).requires_grad_()
    model(x, 1)  # a call that is kept is noted too
    with watch_calls() as calls:
        expected = model(x, 1)
    softmax(x[:1], 0)
    assert len(calls) == 5, "three softmaxes, two gradients; none of what came after"
    assert {each.form for each in calls} == {"softmax", "log_softmax"}
    calls.save(tmp_path / "calls.json")
    for given in (calls, tmp_path / "calls.json", str(tmp_path / "calls.json")):
        plan_problem.cache_clear()
        memory._compiled.clear()
        forget()
        assert len(warm_up(given)) == 5
        before = plan_problem.cache_info().misses, len(memory._compiled)
        x.grad = None
        assert torch.equal(model(x, 1), expected)
        assert (plan_problem.cache_info().misses, len(memory._compiled)) == before


@pytest.mark.kernel
def test_calls_are_noted_in_each_context_that_is_active(where):
    x = torch.randn(4, 6).to(where)
    with watch_calls() as outer:
        softmax(x, 1)
        with watch_calls() as inner:
            softmax(x, 1)
            softmax(x, 0)
        softmax(x[:2], 1)
    assert (len(outer), len(inner)) == (3, 2)
    assert repr(inner) == "Calls(2 launches)"
    softmax(x[:3], 1)
    with contextlib.suppress(ZeroDivisionError), watch_calls() as failed:
        softmax(x, 1)
        raise ZeroDivisionError
    softmax(x[:1], 1)
    assert (len(outer), len(failed)) == (3, 1)


def noted(*shapes):
    calls = Calls()
    for shape in shapes:
        calls.add(contiguous_problem(*shape))
    return calls


def test_calls_are_planned_for_any_device(loaded, tmp_path):
    noted((4096, 64, "float32"), (8, 128256, "bfloat16")).save(tmp_path / "calls.json")
    for name in ("nvidia/h200", "nvidia/h100-sxm"):
        device = Device.from_profile(name)
        planned = warm_up(tmp_path / "calls.json", device=device)
        assert planned == [plan(4096, 64, "float32", device), plan(8, 128256, "bfloat16", device)]


@pytest.mark.parametrize("more", [{"dtypes": ["float32"]}, {"form": "softmin"}, {"backward": True}])
def test_nothing_but_a_device_is_given_with_calls(more):
    with pytest.raises(ValueError, match="give nothing but the device"):
        warm_up(noted((1, 1, "float32")), device="nvidia/h200", **more)


def test_shapes_need_dtypes():
    with pytest.raises(ValueError, match=r"dtypes should be like .*, not \(\)"):
        warm_up([(1, 1)], device="nvidia/h200")


def file_of(**fields):
    problem = {"n_rows": 4, "n_cols": 8, "x_dtype": "float32", "y_dtype": "float32", "vector": 4} | fields
    return json.dumps({"portable_softmax": "calls", "problems": [problem]})


def test_a_file_with_just_what_has_no_default_is_read(tmp_path):
    path = tmp_path / "calls.json"
    path.write_text(file_of())
    assert len(Calls.load(path)) == 1


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"portable_softmax": "calls", "problems": [{}]}', '{"portable_softmax": "plans", "problems": []}']
    + [
        file_of(**fields)
        for fields in (
            {"x_dtype": "x"}, {"x_dtype": "int8"}, {"n_rows": 0}, {"form": "softplus"}, {"folded": 0}, {"folded": 2},
            {"unaligned": True}, {"vector": 0}, {"vector": 3}, {"vector": 64}, {"inner": 0}, {"depth": 4}, {"mask_vector": 0},
            {"scores": {"mask": "int32"}},
        )
    ],
)  # fmt: skip
def test_a_file_that_holds_no_calls_is_named(tmp_path, content):
    path = tmp_path / "calls.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"{path} is no file of calls that this release can read: .*; save the calls again"):
        warm_up(path, device="nvidia/h200")


def test_calls_of_nothing_are_told(tmp_path):
    """Nothing is noted of tensors that torch computes, so nothing can be made ready: both sides say so."""
    path = tmp_path / "calls.json"
    with pytest.warns(UserWarning, match="gets no calls: no launch was noted; torch computes tensors on the CPU"):
        Calls().save(path)
    for given in (path, Calls()):
        with pytest.raises(ValueError, match=r"was given no calls: no launch was noted; .* TRITON_INTERPRET=1"):
            warm_up(given, device="nvidia/h200")


def test_calls_that_a_device_does_not_compute(tmp_path):
    with pytest.raises(DtypeError, match="softmax of float64 was asked for"):
        warm_up(noted((4, 64, "float64")), device="ascend/910b3")
    with pytest.raises(FileNotFoundError):
        warm_up(tmp_path / "none.json", device="ascend/910b3")
