"""Row kernels of all forms: each is launched right, or refused ahead of the launch in words that say what it is."""

import itertools

import pytest
import torch
from row_forms import FORMS, arguments_of, assert_right

from portable_softmax import PlanError, launcher

NAMES = {"rows": "n_rows", "cols": "n_cols", "block": "BLOCK"}


@pytest.mark.kernel
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("rows", "cols"), [(37, 50), (37, 3000)])
def test_launched_right_or_refused(where, name, rows, cols):
    form = FORMS[name]
    arguments, exact = arguments_of(form, rows, cols, where)
    before = {key: value.clone() for key, value in arguments.items() if hasattr(value, "clone")}
    run = launcher(form.kernel, **NAMES)
    if form.grid is None:
        run(**arguments)
        assert_right(form, arguments, exact)
        return
    with pytest.raises(PlanError, match=form.words):
        run(**arguments)
    assert all(torch.equal(arguments[key], value) for key, value in before.items())
    run(**arguments, grid=form.grid)
    assert_right(form, arguments, exact)


@pytest.mark.parametrize(("name", "device"), list(zip(FORMS, itertools.cycle(["nvidia/t4", "amd/mi300x"]), strict=False)))
def test_planned_or_refused_for_a_device_that_is_not_here(name, device):
    form = FORMS[name]
    arguments, _ = arguments_of(form, 37, 3000, "meta")
    run = launcher(form.kernel, **NAMES)
    if form.grid is None:
        plan = run.plan(**arguments, device=device)
        assert plan.num_programs == 37 if plan.form.walks else 0
        assert plan.form.in_blocks == (name in ("blocks of a row", "online blocks"))
        assert set(plan.form.parts) == {"part"}.intersection(arguments)
        return
    with pytest.raises(PlanError, match=form.words):
        run.plan(**arguments, device=device)
    assert run.plan(**arguments, device=device, grid=form.grid).num_programs > 0


def test_a_switch_is_part_of_what_a_launch_is_known_by():
    """A number that is no size decides whether programs loop over rows."""
    form = FORMS["a switch of forms"]
    arguments, _ = arguments_of(form, 37, 50, "meta")
    run = launcher(form.kernel, **NAMES)
    assert run.plan(**arguments | {"walks": 2}, device="nvidia/t4").form.walks
    with pytest.raises(PlanError, match=form.words):
        run.plan(**arguments | {"walks": 3}, device="nvidia/t4")


@pytest.mark.kernel
def test_no_more_programs_than_a_buffer_has_rows(where):
    form = FORMS["a buffer with a row for each program"]
    arguments, exact = arguments_of(form._replace(more={"part": 3}), 37, 50, where)
    run = launcher(form.kernel, **NAMES)
    run(**arguments)
    assert_right(form, arguments, exact)
    with pytest.raises(PlanError, match=r"each program writes a part of part, 50 elements apart, and it has room for 3, not 4"):
        run(**arguments, num_programs=4)
    smaller = arguments | {"part": arguments["part"][:2]}
    with pytest.raises(PlanError, match="room for 2, not 3"):
        run(**smaller, num_programs=3)
    assert run.plan(**smaller).num_programs <= 2


def test_offsets_of_32_bits_are_told():
    form = FORMS["two axes"]
    x = torch.empty(32768, 151936, dtype=torch.bfloat16, device="meta")
    plan = launcher(form.kernel, **NAMES).plan(x, x, *x.shape, device="nvidia/h200", grid=form.grid)
    assert plan.warnings == ("program_id(0) * n_cols reaches 4,978,486,912 in 32 bits; cast program_id(0) to tl.int64",)
    assert "4,978,486,912" in str(plan)
    few = x[:10000]
    assert not launcher(form.kernel, **NAMES).plan(few, few, *few.shape, device="nvidia/h200", grid=form.grid).warnings
    wide = FORMS["a loop by num_programs"]
    assert not launcher(wide.kernel, **NAMES).plan(x, x, *x.shape, device="nvidia/h200").warnings
