"""A timed launch of each class of cells computes what float64 does, forward and backward."""

import pytest

from portable_probe.tune import measuring
from portable_probe.tune.cells import Cell, problem_on
from portable_probe.tune.launches import KernelLaunch, SoftmaxLaunch
from portable_softmax.devices.detect import current_device
from portable_softmax.planning.facts import RowLaunch, Traffic
from portable_softmax.runtime.plans import plan_problem

SHAPES = {"row": (64, 1024), "unaligned": (64, 601), "across 128": (256, 64), "across 3": (9, 40)}


def planned(cell):
    device = current_device()
    plan = plan_problem(problem_on(cell, device), device)
    return SoftmaxLaunch(cell, plan.problem, plan.tiling, plan.resources, plan.occupancy.programs_per_multiprocessor)


@pytest.mark.kernel
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize(("kind", "shape"), SHAPES.items())
def test_each_class_is_measured(device, kind, shape, backward):
    assert measuring.timed(planned(Cell(kind, *shape, "bfloat16", backward))).us > 0


@pytest.mark.kernel
def test_a_wrong_result_is_told(device, monkeypatch):
    monkeypatch.setattr(measuring, "bind_tiling", lambda *arguments: lambda out, *given: out.fill_(0.5))
    with pytest.raises(measuring.WrongResultError, match=r"differs from float64 by .* of its largest element"):
        measuring.timed(planned(Cell("row", 64, 1024, "float32")))


@pytest.mark.kernel
@pytest.mark.parametrize("kernel", ["rms_norm", "two_pass_norm", "gelu"])
def test_row_kernels_are_measured(device, kernel):
    launch = RowLaunch(12, 300, 1, 5, 1, 4, 128 if kernel == "two_pass_norm" else 512, in_blocks=kernel == "two_pass_norm")
    assert measuring.timed(KernelLaunch(kernel, "float32", launch, Traffic())).us > 0
