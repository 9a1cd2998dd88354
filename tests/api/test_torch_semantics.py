"""softmax, log_softmax and softmin against torch: its own sample inputs, and any shapes, strides, types and values."""

import pytest
import torch
from closeness import assert_close, gradient_scale
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pairs import FLOATS, PAIRS, assert_like_torch

from portable_softmax import DtypeError, softmax

pytestmark = pytest.mark.kernel
INF, NAN = float("inf"), float("nan")


def samples(name, device, dtype):
    from torch.testing._internal.common_methods_invocations import op_db

    infos = [info for info in op_db if info.name == name]
    assert infos, f"torch has no OpInfo {name}"
    return [
        sample
        for info in infos
        if dtype in info.dtypes
        for sample in info.sample_inputs(device, dtype)
        if sample.input.is_floating_point() or sample.kwargs.get("dtype") or len(sample.args) > 1
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.uint8, torch.bool], ids=str)
@pytest.mark.parametrize(
    ("name", "form"), [("softmax", "softmax"), ("log_softmax", "log_softmax"), ("nn.functional.softmin", "softmin")]
)
def test_samples_of_torch(where, name, form, dtype):
    ran = 0
    for sample in samples(name, where, dtype):
        dim = sample.kwargs.get("dim", sample.args[0] if sample.args else None)
        wanted = sample.kwargs.get("dtype", sample.args[1] if len(sample.args) > 1 else None)
        if (form == "softmin" and dtype == torch.bool) or (wanted and not wanted.is_floating_point):
            continue  # torch cannot negate booleans, nor compute complex softmaxes as real ones
        assert_like_torch(form, sample.input.detach(), dim, wanted)
        ran += 1
    assert ran or dtype not in FLOATS


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_samples_of_the_gradient_of_torch(where, dtype):
    ran = 0
    for sample in samples("_softmax_backward_data", where, dtype):
        y, dim, x_dtype = sample.args
        expected = torch.ops.aten._softmax_backward_data(sample.input.double(), y.double(), dim, torch.float64)
        result = torch.ops.portable_softmax.softmax_backward(sample.input.detach(), y.detach(), dim, x_dtype)
        assert result.dtype == x_dtype
        assert_close(result, expected, gradient_scale("softmax", sample.input, y, dim))
        ran += 1
    assert ran


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(5,), (3, 7), (2, 5, 20), (4, 1), (1, 1), ()], ids=str)
def test_gradients_against_those_of_torch(where, form, shape, dtype):
    for dim in range(len(shape)) or (0,):
        dy = torch.randn(shape, device=where).to(dtype)
        y = PAIRS[form][1](torch.randn(shape, dtype=torch.float64, device=where), dim).to(dtype)
        theirs = torch.ops.aten._log_softmax_backward_data if form == "log_softmax" else torch.ops.aten._softmax_backward_data
        exact = theirs(dy.double(), y.double(), dim, torch.float64) * (-1 if form == "softmin" else 1)
        result = getattr(torch.ops.portable_softmax, f"{form}_backward")(dy, y, dim, dtype)
        assert result.dtype == dtype
        assert_close(result, exact, gradient_scale(form, dy, y, dim))


values = st.sampled_from([0.0, 1.0, -1.0, 5.0, -80.0, 80.0, 1e4, INF, -INF, NAN])


@st.composite
def tensors(draw):
    """Views of any rank to 4: permuted, sliced, expanded, from any start; a few special values among random ones."""
    shape = draw(st.lists(st.integers(0, 20), max_size=4))
    dtype = draw(st.sampled_from(FLOATS))
    steps = [draw(st.sampled_from([1, 1, 1, 2])) for _ in shape]
    start = draw(st.integers(0, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    base = torch.randn([start + size * step for size, step in zip(shape, steps, strict=True)], generator=generator) * 3
    flat = base.view(-1)
    for at, value in draw(st.lists(st.tuples(st.integers(0, 10**6), values), max_size=5)):
        if flat.numel():
            flat[at % flat.numel()] = value
    order = draw(st.permutations(range(len(shape))))
    times = draw(st.sampled_from([0, 0, 1, 4]))

    def on(device):
        view = base.to(device, dtype)[tuple(slice(start, None, step) for step in steps)].permute(order)
        return view[:1].expand(times, *view.shape[1:]) if times and view.dim() and view.shape[0] else view

    return on


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    tensor=tensors(), dim=st.integers(-4, 3), form=st.sampled_from(sorted(PAIRS)), dtype=st.sampled_from([None, None, *FLOATS])
)
def test_any_view_any_dim_any_type_any_value(where, tensor, dim, form, dtype):
    x = tensor(where)
    assert_like_torch(form, x, max(min(dim, max(x.dim(), 1) - 1), -max(x.dim(), 1)), dtype)


@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (0,), (2, 0, 3), (2, 3, 0), ()])
def test_empty_and_scalar(where, form, shape):
    for dim in range(-max(len(shape), 1), max(len(shape), 1)):
        assert_like_torch(form, torch.zeros(shape, device=where), dim)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.bool], ids=str)
def test_integers_need_a_dtype(where, form, dtype):
    x = torch.tensor([[0, 1, 1], [1, 0, 0]], device=where).to(dtype)
    with pytest.raises(NotImplementedError, match=f"softmax of {str(dtype)[6:]} was asked for"):
        PAIRS[form][0](x, 0)
    if (form, dtype) != ("softmin", torch.bool):
        assert_like_torch(form, x, 0, torch.float32)


@pytest.mark.parametrize("arguments", [(7,), (-3,), (0, torch.int32), (0, torch.complex64), (1.5,)], ids=str)
def test_exceptions_are_torchs(where, arguments):
    x = torch.zeros(2, 2, device=where)
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - whatever torch raises
        torch.softmax(x, arguments[0], dtype=arguments[1] if len(arguments) > 1 else None)
    if "complex" in str(arguments):  # torch computes these; no kernel does
        return
    with pytest.raises(theirs.type):
        softmax(x, *arguments)


def test_dtypes_of_a_gradient_must_agree(where):
    y = torch.softmax(torch.zeros(2, 3, device=where), 1)
    with pytest.raises(DtypeError, match=r"a gradient of torch.float16 was given for an output of torch.float32"):
        torch.ops.portable_softmax.softmax_backward(y.half(), y, 1, torch.float32)
    with pytest.raises(ValueError, match="gradient of shape"):
        torch.ops.portable_softmax.softmax_backward(y[:1], y, 1, torch.float32)
