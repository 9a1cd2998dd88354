"""The kernel's results against float64, for shapes, strides, types and special values."""

import pytest
import torch
from closeness import assert_close
from offline import every_candidate

from portable_probe.closeness import softmax_in_float64
from portable_probe.schema import SoftmaxProblem
from portable_probe.trial import verify_here
from portable_softmax import softmax
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.launch import softmax_rows
from portable_softmax.runtime.plans import plan_problem

pytestmark = pytest.mark.kernel
DTYPES = ("float16", "bfloat16", "float32", "float64")
INF, NAN = float("inf"), float("nan")


def assert_softmax(result, x, dim=-1):
    assert torch.equal(result.isnan(), torch.softmax(x, dim).isnan())
    assert_close(result, softmax_in_float64(x, dim))


def matrix(where, *shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(where, dtype)


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("n_rows", "n_cols"),
    [(1, 1), (100, 1), (1, 2), (3, 17), (33, 64), (1823, 781), (5, 1024), (2, 4099), (70, 16384), (3, 65536), (2, 70001)],
)
def test_shapes_and_types(device, n_rows, n_cols, dtype):
    outcome = verify_here(SoftmaxProblem(n_rows=n_rows, n_cols=n_cols, dtype=dtype), device)
    assert outcome.right, outcome


@pytest.mark.parametrize(("n_rows", "n_cols"), [(1823, 781), (4096, 12672), (1024, 32768), (7, 200003)])
def test_shapes_of_the_tutorials_and_vocabularies(device, n_rows, n_cols):
    if device.backend == "interpreter":
        n_rows = min(n_rows, 2**19 // n_cols)  # one program after another: more of them would only take longer
    outcome = verify_here(SoftmaxProblem(n_rows=n_rows, n_cols=n_cols, dtype="float32"), device)
    assert outcome.right, outcome


@pytest.mark.parametrize("n_cols", [100, 70000], ids=["tile", "long"])
@pytest.mark.parametrize(
    ("start", "value"),
    [(0, -INF), (0, NAN), (0, INF), (99, NAN), (99, INF), (50, -INF)],
)
def test_special_values_give_what_torch_gives(where, n_cols, start, value):
    x = matrix(where, 4, n_cols)
    x[1, start] = value
    x[2] = value
    x[3, : n_cols // 2] = -INF  # of a long row, whole tiles before anything else
    assert_softmax(softmax(x), x)


def test_strategies_of_those_two_lengths(device):
    def strategy(n_cols):
        return plan_problem(Problem(4, n_cols, "float32", "float32", 4), device).tiling.strategy

    assert strategy(100) == "tile"
    assert strategy(70000) in ("online", "shared")


@pytest.mark.each_value
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[:, 1:],
        lambda x: x[::3],
        lambda x: x[:, ::2],
        lambda x: x[:1].expand(9, -1),
        lambda x: x.view(8, 4, -1).transpose(0, 1),
        lambda x: x.flatten()[1:-1].view(2, -1),
    ],
    ids=["transposed", "unaligned rows", "every third row", "every second column", "expanded", "permuted", "unaligned start"],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_views(where, view, dtype):
    x = view(matrix(where, 32, 200, dtype=dtype))
    assert_softmax(softmax(x), x)


@pytest.mark.each_value
@pytest.mark.parametrize("num_programs", [1, 2, 5, 64])
@pytest.mark.parametrize("n_cols", [40, 70000])
def test_any_number_of_programs_is_right(device, where, num_programs, n_cols):
    from portable_softmax.runtime.prepared import prepare
    from portable_softmax.runtime.specialization import KernelSpec

    x, y = matrix(where, 50, n_cols), torch.full((50, n_cols), NAN, device=where)
    problem = Problem(50, n_cols, "float32", "float32", 1)
    tiling = next(each for each in every_candidate(problem, device) if each.splits == 1)
    sizes = 50, n_cols, n_cols, n_cols, 1, 0, 0, 1, 0, 0
    prepare(KernelSpec.of(problem, tiling), device, (num_programs, 1, 1), sizes)(y, x)
    assert_softmax(y, x)


def test_rows_of_a_stride_beyond_32_bits(device, where):
    """Two rows, 2^33 bytes apart in virtual memory that nobody touches."""
    x = torch.empty(2**31 + 8, dtype=torch.float32, device=where).as_strided((2, 100), (2**31 - 100, 1))
    x.copy_(matrix(where, 2, 100))
    y = torch.empty(2, 100, device=where)
    softmax_rows(x, y, device)
    assert_softmax(y, x)


@pytest.mark.accelerator
def test_launches_on_the_active_stream(where):
    """The side stream sleeps before it writes the input: a launch on any other stream would read zeros."""
    values, x = matrix(where, 512, 2048), torch.zeros(512, 2048, device=where)
    softmax(x)  # compiled before the race starts
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.copy_(values)
        result = softmax(x)
    stream.synchronize()
    assert_softmax(result, values)


@pytest.mark.accelerator
def test_kernels_and_plans_are_shared_by_threads(where):
    from concurrent.futures import ThreadPoolExecutor

    inputs = [matrix(where, 64, n_cols, seed=n_cols) for n_cols in (333, 777, 2048, 5000) * 8]
    with ThreadPoolExecutor(8) as pool:
        for x, y in zip(inputs, pool.map(softmax, inputs), strict=True):
            assert_softmax(y, x)
