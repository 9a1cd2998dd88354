"""Words that are lost while the result overwrites the input: planned launches are right, and shared ones would not be."""

from dataclasses import replace

import pytest
import torch
from closeness import assert_close, expected, terms_of, worst_error
from direct import launch, problem_of, rows_in
from faults import LOSSES, all_lost, publish_by
from offline import H200, MI300X, light
from test_exchange import interpreter as interpreter
from test_exchange import looking

from portable_softmax import Device
from portable_softmax.planning.planner import choose
from portable_softmax.planning.reading import as_read

pytestmark = pytest.mark.kernel
LENGTHS = 20_000, 20_003


def planned_for(profile, x, form, in_place):
    """The problem of a softmax of x, and its launch on a GPU that is not here."""
    device, vector = Device.from_profile(profile), 4 if x.shape[1] % 4 == 0 else 1
    problem = replace(problem_of((x, x), form, False, vector), in_place=in_place)
    plan = choose(as_read(problem, device), device, light)
    return plan.problem, plan.tiling, plan.num_programs


def overwritten(run, profile, n_cols, form, planned_in_place):
    """The result and float64's of a launch that is planned for in place or for elsewhere, and overwrites its input."""
    x, _ = rows_in(2, n_cols, n_cols, torch.float32, torch.device("cpu"), float("nan"))
    exact = expected(form, x)
    run((x, x), *planned_for(profile, x, form, planned_in_place))
    return x, exact


@pytest.fixture
def run(interpreter):
    """Runs one program after another, none of which sees the words of another."""
    return lambda *given: launch(looking(interpreter, 1), *given)


@pytest.mark.parametrize("profile", [H200, MI300X])
@pytest.mark.parametrize("form", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize("n_cols", LENGTHS)
def test_the_planned_launch_is_right_though_all_words_are_lost(run, monkeypatch, profile, form, n_cols):
    publish_by(monkeypatch, all_lost)
    result, exact = overwritten(run, profile, n_cols, form, True)
    assert_close(result, exact, terms_of(form))


def test_a_shared_launch_would_be_wrong(run, monkeypatch):
    """So the test above can fail: programs look for parts that others have overwritten."""
    publish_by(monkeypatch, all_lost)
    result, exact = overwritten(run, MI300X, LENGTHS[0], "softmax", False)
    assert worst_error(result, exact) > 100


@pytest.mark.parametrize("trouble", LOSSES, ids=lambda trouble: trouble.fn.__name__)
def test_programs_that_run_at_once_in_any_trouble(interpreter, monkeypatch, trouble):
    publish_by(monkeypatch, trouble)
    x, _ = rows_in(2, 20_000, 20_000, torch.float32, torch.device("cpu"), float("nan"))
    exact = expected("softmax", x)
    problem, tiling, programs = planned_for(H200, x, "softmax", True)
    assert tiling.parts == 1
    launch(looking(interpreter, 3), (x, x), problem, tiling, programs)
    assert_close(x, exact)
