"""Operators and row kernels on tensors of AMD devices, the whole way, planned, compiled and launched as on real ones."""

import pytest
import torch
from row_forms import FORMS, arguments_of, assert_right
from row_kernels import CASES, assert_launched
from whole_way import *  # noqa: F403
from whole_way import rows

from portable_softmax import PlanError, current_device, launcher, plan
from portable_softmax.runtime import compiler
from portable_softmax.runtime.compiled import compile_kernel
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
    launch = compiler.launcher(compile_kernel(spec, device), constexprs_of(spec, device), device.index)
    with torch.cuda.device(machine.index(file)), pytest.raises(RuntimeError, match=message):
        launch((2, 1, 1), x, x, 2, 16, 16, 16, *[1, 0, 0] * 2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("name", ["driver_mi300x", "driver_rx7900xtx"])
@pytest.mark.parametrize(("rows", "cols"), [(3, 40), (2, 300)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_right(machine, case, name, rows, cols, dtype):
    assert_launched(machine, name, case, rows, cols, dtype)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_all_forms_are_right_or_refused(machine, form):
    name = "driver_mi300x"
    with torch.cuda.device(machine.index(name)):
        arguments, exact = arguments_of(form, 37, 50, machine.where(name))
        run = launcher(form.kernel, rows="n_rows", cols="n_cols", block="BLOCK")
        if form.grid is not None:
            with pytest.raises(PlanError, match=form.words):
                run(**arguments)
        run(**arguments, **({} if form.grid is None else {"grid": form.grid}))
    assert_right(form, arguments, exact)
