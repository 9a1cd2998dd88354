"""Operators and row kernels on tensors of AMD devices, the whole way from detection to numbers."""

import hip_machine
import pytest
import torch
import triton
from exact import assert_close, expected
from row_forms import FORMS, arguments_of, assert_right, rows_in
from sweep import in_turn, mostly_slow

from portable_softmax import PlanError, current_device, launcher, plan, softmax
from portable_softmax.runtime.bind import bind
from portable_softmax.runtime.compile import loaded

TWO = ["driver_mi300x", "driver_rx7900xtx"]
SHAPES = {(16, 781): "in registers", (70, 64): "in registers", (2, 12_000): "split"}


@pytest.fixture(scope="module")
def machine():
    """Makes this process's machine one with virtual AMD devices, by the names of their recorded files."""
    with pytest.MonkeyPatch.context() as patch, hip_machine.MACHINE.installed(patch):
        patch.setattr(torch.version, "hip", "7.0.0")
        patch.setattr(triton.runtime.driver, "_active", hip_machine.Driver())
        yield hip_machine.MACHINE


def rows(*shape, dtype=torch.float32):
    """Rows of negative numbers, of which every third has one large one in the middle."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(shape[-1])) - 200
    x[::3, ..., shape[-1] // 2] += 180
    return x.to(dtype)


LAUNCHES = [*((name, (8, 519), torch.float32) for name in hip_machine.HIP)]
LAUNCHES += [(name, shape, dtype) for shape, name, dtype in in_turn(SHAPES, TWO, [torch.float32, torch.bfloat16])]


@pytest.mark.parametrize(("name", "shape", "dtype"), LAUNCHES, ids=str)
def test_detection_to_numbers(machine, name, shape, dtype):
    device, known = current_device(machine.index(name)), hip_machine.HIP[name]["expected"]
    assert (device.backend, device.profile.name, device.arch) == ("hip", known["profile"], known["arch"])
    planned, x = plan(*shape, dtype, device), rows(*shape, dtype=dtype)
    assert planned.tiling.strategy == SHAPES.get(shape, "in registers")
    result = softmax(x.to(machine.where(name)))
    assert result.device == torch.device(machine.where(name))
    assert_close(result.cpu(), expected("softmax", x))
    launched = machine.launches[-1]
    assert (launched.arch, launched.grid) == (device.arch, (planned.num_programs, 1, 1))
    assert launched.num_warps == planned.tiling.num_warps


def test_a_launch_runs_where_its_tensors_are(machine):
    device = current_device(machine.index("driver_mi300x"))
    x = rows(2, 64).to(f"cuda:{device.index}")
    planned = plan(2, 64, "float32", device)
    launch = bind(planned, loaded(planned.problem, planned.tiling, device), x.device)
    words = r"a tensor on cuda:\d in a launch on device \d"
    with torch.cuda.device(machine.index("driver_mi300x_newer_rocm")), pytest.raises(RuntimeError, match=words):
        launch(x, x, *[None] * 6)


@pytest.mark.parametrize("form", mostly_slow(FORMS, {*[*FORMS][::3]}.__contains__))
def test_all_forms_of_row_kernels_are_right_or_refused(machine, form):
    name, (grid, words, *_) = "driver_mi300x", FORMS[form]
    with torch.cuda.device(machine.index(name)):
        arguments, exact = arguments_of(form, 37, 50, machine.where(name))
        run = launcher(rows_in, rows="n_rows", cols="n_cols", block="BLOCK")
        if words:
            with pytest.raises(PlanError, match=words):
                run(**arguments)
        run(**arguments, **({"grid": grid} if grid else {}))
    assert_right(arguments, exact)
