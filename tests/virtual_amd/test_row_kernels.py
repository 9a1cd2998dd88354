"""Row kernels on AMD devices that are virtual: planned, compiled and launched as on a real one."""

import pytest
import torch
from row_forms import FORMS, arguments_of, assert_right
from row_kernels import CASES, assert_launched

from portable_softmax import PlanError, launcher

pytestmark = pytest.mark.each_value


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
