"""What is planned, launched and compared with float64: as a call plans it here, and as an H100's profile has it planned."""

import machines
import pytest
import torch
from exact import assert_close, expected
from launched_rows import check
from offline import choose, light, read_problem
from sweep import in_turn
from table import TILINGS, Row, random

from portable_probe.report import SoftmaxProblem
from portable_probe.verify import verify_softmax
from portable_softmax import Device, softmax, token_log_probs
from portable_softmax.runtime.layout import name_of

pytestmark = pytest.mark.kernel
SHAPES = (1, 1), (100, 1), (1, 2), (3, 17), (33, 64), (1823, 781), (5, 1024), (2, 4099), (70, 16384), (3, 65536), (2, 200_003)


@pytest.mark.parametrize(("shape", "dtype"), in_turn(SHAPES, ["float16", "bfloat16", "float32"]), ids=str)
def test_shapes_and_types(device, shape, dtype):
    n_rows, n_cols = shape
    outcome = verify_softmax(SoftmaxProblem(n_rows=n_rows, n_cols=n_cols, dtype=dtype), None, device)
    assert outcome.right, outcome


def test_rows_of_a_stride_beyond_32_bits(where):
    """Three rows, 2^32 elements from the first to the last, in virtual memory that nothing touches."""
    x = torch.empty(2**32, dtype=torch.float16, device=where).as_strided((3, 100), (2**31 - 100, 1))
    x.copy_(random(3, 100, seed=0))
    assert_close(softmax(x).cpu(), expected("softmax", x.cpu()))
    picked = token_log_probs(x, torch.tensor([3, 50, 99], device=where))
    assert_close(picked.cpu(), expected("log_softmax", x.cpu())[[0, 1, 2], [3, 50, 99]], 1.0)


COLS = 132, 260, 781, 1025, 1301, 4100, 8200


@pytest.mark.parametrize(
    ("n_cols", "dtype", "kind"), in_turn(COLS, [torch.float32, torch.bfloat16], ["softmax", "gradient"]), ids=str
)
def test_launches_for_an_h100(device, where, monkeypatch, n_cols, dtype, kind):
    """A few rows, as if there were thousands of them; in columns of a length that a profile's planner cuts otherwise."""
    profile = Device.from_profile("nvidia/h100-sxm")
    planned = choose(read_problem(32768, n_cols, name_of(dtype), profile, backward=kind == "gradient"), profile, light)
    layout = "unaligned" if planned.problem.unaligned else "vectors" if planned.problem.vector > 1 else "rows"
    monkeypatch.setitem(TILINGS, "planned", planned.tiling)
    row, machine = Row(layout, "planned", kind, dtype, number=3), machines.Machine(device, where)
    monkeypatch.setattr(Row, "shape", lambda row, machine: (*row.lies.rows, n_cols))
    if reason := machine.lacks(row):
        pytest.skip(reason)
    check(row, machine)
