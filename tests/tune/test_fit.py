"""The fit of a launch's cost: numbers that simulated launches were timed by are found again."""

import dataclasses

import numpy as np
import pytest
from tiny import H100, as_if_compiled, kernel_as_if_compiled

from portable_probe.tune import cells, fit, run
from portable_softmax import Device
from portable_softmax.devices.policy import COST_NUMBERS

DEVICE = Device.from_profile(H100)
BEGIN = np.array([getattr(DEVICE.profile.launch.cost, name) for name in COST_NUMBERS])


@pytest.fixture(scope="module")
def launches():
    """Launches of all classes, as a run compiles them; each fifth spills, or nothing would say what spills cost."""
    of_softmax = [as_if_compiled(*job.args) for cell in cells.cells_of(DEVICE) for job in run.softmax_jobs(cell, DEVICE)]
    spilling = [dataclasses.replace(each.resources, spilled_bytes_per_thread=48) for each in of_softmax]
    pairs = enumerate(zip(of_softmax, spilling, strict=True))
    of_rows = [kernel_as_if_compiled(*job.args) for jobs in run.kernel_jobs(DEVICE) for job in jobs]
    return [*(each._replace(resources=used) if at % 5 == 0 else each for at, (each, used) in pairs), *of_rows]


def noisy(launches, numbers, noise):
    """Launches with the times that the numbers give, but for noise, prepared for a fit."""
    us = fit.times(fit.prepared(each._replace(us=1.0).timed(DEVICE) for each in launches), numbers)
    us *= np.random.default_rng(7).lognormal(0, noise, len(us))
    timed = [each._replace(us=1.0).timed(DEVICE) for each in launches]
    order = {name: [each for each in timed if each.problem == name] for name in sorted({each.problem for each in timed})}
    listed = [each for found in order.values() if len(found) > 2 for each in found]
    return fit.prepared(each._replace(us=float(value)) for each, value in zip(listed, us, strict=True))


def test_known_numbers_are_found_again(launches):
    """However far they are from those that it begins with: within four standard errors, or what the prior holds back."""
    known = BEGIN * np.random.default_rng(3).uniform(0.75, 1.33, len(BEGIN))
    given = noisy(launches, known, 0.01)
    numbers, errors = fit.fitted(given, given.weights, BEGIN)
    off = dict(zip(COST_NUMBERS, np.abs(np.log(numbers / known)) - 4 * errors, strict=True))
    assert max(off.values()) < 0.03, off
    assert np.median(errors) < 0.03


def test_errors_and_regret_are_those_of_problems_that_were_left_out(launches):
    given = noisy(launches, BEGIN, 0.02)
    expected = fit.left_out(given, BEGIN)
    rows = {group: values for group, *values in fit.table(given, expected)}
    assert set(rows) == {"all", "20 us and more", *given.kinds}
    assert 0.02 < fit.error_90(given, expected) < 0.045, "nine of ten of 2% are within 1.64 times as much"
    assert float(rows["all"][1].rstrip("%")) < 4
    mine = given.problem == 0
    again = fit.left_out(given._replace(us=np.where(mine, 1.5 * given.us, given.us)), BEGIN)
    assert (again[mine] == expected[mine]).all(), "its own times have no say in what is expected of a problem"
    assert (again != expected).any()


@pytest.mark.parametrize("name", ["nvidia/h200", "amd/mi300x", "intel/max-1550"])
def test_a_run_has_every_class_and_several_launches_of_each_problem(name):
    device = Device.from_profile(name)
    found = cells.cells_of(device)
    assert {cell.kind for cell in found} == {kind for kind, _ in cells.SHAPES}
    assert len(set(found)) == len(found)
    listed = [run.softmax_jobs(cell, device) for cell in found[::7]]
    again = [run.softmax_jobs(cell, device) for cell in found[::7]]
    for jobs, others in ((listed, again), (run.kernel_jobs(device), run.kernel_jobs(device))):
        for of, same in zip(jobs, others, strict=True):
            assert len({str(job.args) for job in of}) == len(of) > 2
            assert [job.args for job in of] == [job.args for job in same], "other processes and runs compile the same"
