"""Kernels compared with float64: the table of tests/support/table.py on every machine, what calls plan here, exponentials."""

from decimal import Decimal

import machines
import pytest
import torch
import triton
import triton.language as tl
from exact import assert_close, expected
from launched_rows import check
from sweep import in_turn
from table import Row, random, table

from portable_probe.report import SoftmaxProblem
from portable_probe.verify import verify_softmax
from portable_softmax import softmax, token_log_probs
from portable_softmax.kernels.common import exp
from portable_softmax.kernels.config import InKernel, KernelConfig
from portable_softmax.runtime.compile import compiled

DEVICE = "device"  # that of --device: a GPU, or Triton's interpreter
# Every so many rows of the table, and with --all; 17 meets options of each kind (5, 7 or 13), 12 tilings, and types.
STEPS = {DEVICE: (17, 1), "gfx942": (85, 5), "gfx1100": (161, 7)}  # others have:
OTHERS = None, 31


def rows():
    """Returns (machine, row) of all machines; most are slow."""
    for place, name in enumerate((DEVICE, *machines.AMD)):
        quick, every = STEPS.get(name, OTHERS)
        for at, row in enumerate(table()[place % every :: every]):
            marks = [pytest.mark.kernel] if name == DEVICE else []
            if quick is None or at * every % quick >= every:
                marks.append(pytest.mark.slow)
            yield pytest.param(name, row, marks=marks, id=f"{name}-{row}")


@pytest.mark.parametrize(("name", "row"), list(rows()))
def test_right(request, name, row):
    if name != DEVICE:
        check(row, machines.amd(name))
        return
    machine = machines.here(request.getfixturevalue("device"), request.getfixturevalue("where"))
    if reason := machine.lacks(row):
        pytest.skip(reason)
    check(row, machine)


@pytest.mark.parametrize("kind", ["softmax", "gradient", "log_probs"])
def test_one_row_is_read_within_its_memory(kind):
    check(Row("one unaligned row", "blocks", kind, torch.bfloat16, number=1), machines.amd("gfx942"))


@pytest.mark.parametrize("kind", ["softmax", "gradient"])
def test_tiles_that_are_kept_as_loaded_have_the_bits_of_others(monkeypatch, kind):
    machine, row, results = machines.amd("gfx942"), Row("unaligned", "blocks", kind, torch.bfloat16, number=1), []
    kernels = []
    monkeypatch.setattr(machines, "compiled", lambda *kernel: kernels.append(kernel[0]) or compiled(*kernel))
    for register in (machine.device.vendor.vector_register, ""):
        monkeypatch.setattr(machine.device.vendor, "vector_register", register)
        machines.code.cache_clear()
        results.append(check(row, machine))
        assert bool(kernels.pop().config.AS_LOADED) == bool(register)
    torch.testing.assert_close(*results, rtol=0, atol=0, equal_nan=True)


SHAPES = (1, 1), (100, 1), (1, 2), (3, 17), (33, 64), (1823, 781), (5, 1024), (2, 4099), (70, 16384), (3, 65536), (2, 200_003)


@pytest.mark.kernel
@pytest.mark.parametrize(("shape", "dtype"), in_turn(SHAPES, ["float16", "bfloat16", "float32"]), ids=str)
def test_shapes_and_types(device, shape, dtype):
    outcome = verify_softmax(SoftmaxProblem(n_rows=shape[0], n_cols=shape[1], dtype=dtype), None, device)
    assert outcome.right, outcome


@pytest.mark.kernel
def test_rows_of_a_stride_beyond_32_bits(where):
    """Three rows, 2^32 elements from the first to the last, in virtual memory that nothing touches."""
    x = torch.empty(2**32, dtype=torch.float16, device=where).as_strided((3, 100), (2**31 - 100, 1))
    x.copy_(random(3, 100, seed=0))
    assert_close(softmax(x).cpu(), expected("softmax", x.cpu()))
    picked = token_log_probs(x, torch.tensor([3, 50, 99], device=where))
    assert_close(picked.cpu(), expected("log_softmax", x.cpu())[[0, 1, 2], [3, 50, 99]], 1.0)


@triton.jit
def _exps(y_ptr, x_ptr, N: tl.constexpr, C: tl.constexpr):
    place = tl.arange(0, N)
    tl.store(y_ptr + place, exp(tl.load(x_ptr + place), C))


@pytest.mark.kernel
@pytest.mark.parametrize("exact", [True, False])
def test_exponentials(where, exact):
    x = torch.cat([torch.linspace(-80, 0, 1020), torch.tensor([0.0, -1e4, -float("inf"), float("nan")])]).to(where)
    y = torch.empty_like(x)
    _exps[(1,)](y, x, len(x), InKernel(KernelConfig(EXACT=exact)))
    assert y[-4:].nan_to_num(nan=-1.0).tolist() == [1.0, 0.0, 0.0, -1.0]
    for result, power in zip(y[:1020].tolist(), x[:1020].tolist(), strict=True):
        right = Decimal(power).exp()
        assert abs(Decimal(result) - right) <= right * Decimal(2**-23 * (2 if exact else 2 - power))
