"""Operators on tensors of AMD devices, the whole way."""

import pytest
import torch
from whole_way import *  # noqa: F403
from whole_way import rows

from portable_softmax import current_device, plan
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.compiler import launcher
from portable_softmax.runtime.kernel_form import constexprs_of
from portable_softmax.runtime.specialization import KernelSpec

pytestmark = pytest.mark.each_value


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("driver_rx7900xtx", "hipErrorNoBinaryForGpu"),
        ("driver_mi300x_newer_rocm", r"a tensor on cuda:\d in a launch on device \d"),
    ],
)
def test_a_kernel_runs_where_it_can_and_where_its_tensors_are(machine, file, message):
    """HIP refuses a code object of another architecture."""
    device = current_device(machine.index("driver_mi300x"))
    x = rows(2, 64).to(f"cuda:{device.index}")
    found = plan(2, 64, "float32", device)
    spec = KernelSpec.of(found.problem, found.tiling)
    launch = launcher(compile_kernel(spec, device), constexprs_of(spec, device), device.index)
    with torch.cuda.device(machine.index(file)), pytest.raises(RuntimeError, match=message):
        launch((2, 1, 1), x, x, 2, 16, 16, 16, *[1, 0, 0] * 2)
