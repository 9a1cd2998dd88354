"""The fit of a launch's cost: numbers that simulated launches were timed by are found again."""

import dataclasses

import numpy as np
import pytest
from tiny import H100, as_if_compiled

from portable_probe.tune import cells, fit, run
from portable_softmax import Device
from portable_softmax.devices.policy import COST_NUMBERS

DEVICE = Device.from_profile(H100)
BEGIN = np.array([getattr(DEVICE.profile.launch.cost, name) for name in COST_NUMBERS])


@pytest.fixture(scope="module")
def launches():
    """Launches of all classes, as a run compiles them; each fifth spills, or nothing would tell what spills cost."""
    found = [as_if_compiled(*job) for cell in cells.cells_of(DEVICE) for job in run.jobs_of(cell, DEVICE)]
    spilling = [dataclasses.replace(each.resources, spilled_bytes_per_thread=48) for each in found]
    return [
        each._replace(resources=used) if at % 5 == 0 else each
        for at, (each, used) in enumerate(zip(found, spilling, strict=True))
    ]


def noisy(launches, numbers, noise):
    """Launches with the times that the numbers give, but for noise, prepared for a fit."""
    told = fit.times(fit.prepared([each._replace(us=1.0) for each in launches], DEVICE), numbers)
    told *= np.random.default_rng(7).lognormal(0, noise, len(told))
    return fit.prepared([each._replace(us=us) for each, us in zip(launches, told, strict=True)], DEVICE)


def fitted(given, begin=BEGIN):
    """The numbers and their relative errors."""
    return fit.fitted(given, given.weights, begin, begin)


def test_known_numbers_are_found_again(launches):
    """However far they are from those that it begins with: within four standard errors, or what the prior holds back."""
    known = BEGIN * np.random.default_rng(3).uniform(0.75, 1.33, len(BEGIN))
    numbers, errors = fitted(noisy(launches, known, 0.01))
    off = dict(zip(COST_NUMBERS, np.abs(np.log(numbers / known)) - 4 * errors, strict=True))
    assert max(off.values()) < 0.02, off
    assert np.median(errors) < 0.03


def test_more_noise_is_more_error(launches):
    quiet, loud = (fitted(noisy(launches, BEGIN, noise))[1] for noise in (0.005, 0.05))
    assert (loud > 2 * quiet).all()


def test_what_nothing_tells_stays_as_it_began_and_is_unsure(launches):
    alone = [each for each in launches if each.tiling.held and not each.tiling.is_shared]
    several = {cell: sum(each.cell == cell for each in alone) > 2 for cell in {each.cell for each in alone}}
    numbers, errors = fitted(noisy([each for each in alone if several[each.cell]], 1.1 * BEGIN, 0.01))
    for name in ("exchange_us", "lookup_ns", "step_us"):
        at = COST_NUMBERS.index(name)
        assert numbers[at] == pytest.approx(BEGIN[at], rel=0.01)
        assert errors[at] > 3 * np.median(errors)


def test_a_few_launches_that_were_disturbed_change_little(launches):
    given = noisy(launches, BEGIN, 0.01)
    us = np.where(np.arange(len(given.us)) % 50 == 0, 3 * given.us, given.us)
    numbers, _ = fitted(given._replace(us=us))
    bandwidth = COST_NUMBERS.index("bandwidth")
    assert numbers[bandwidth] == pytest.approx(BEGIN[bandwidth], rel=0.01)


def test_errors_and_regret_are_those_of_problems_that_were_left_out(launches):
    given = noisy(launches, BEGIN, 0.02)
    told = fit.by_others(given, BEGIN, BEGIN)
    rows = {group: cells for group, *cells in fit.table(given, told)}
    assert set(rows) == {"all", "20 us and more", *(cell.kind for cell in given.cells)}
    assert 0.02 < fit.error_90(given, told) < 0.045, "nine of ten of 2% are within 1.64 times as much"
    assert float(rows["all"][1].rstrip("%")) < 4
    mine = given.problem == 0
    again = fit.by_others(given._replace(us=np.where(mine, 1.5 * given.us, given.us)), BEGIN, BEGIN)
    assert (again[mine] == told[mine]).all(), "its own times have no say in what is told of a problem"
    assert (again != told).any()


def test_too_few_launches_are_refused(launches):
    alone = [each._replace(us=1.0) for each in launches if each.cell == launches[0].cell]
    with pytest.raises(ValueError, match=r"launches of 1 problems are too few to fit; give it more --minutes"):
        fit.prepared(alone, DEVICE)


@pytest.mark.parametrize("name", ["nvidia/h200", "amd/mi300x", "intel/max-1550"])
def test_a_run_has_every_class_and_several_launches_of_each_problem(name):
    device = Device.from_profile(name)
    found = cells.cells_of(device)
    assert {cell.kind for cell in found} == {kind for kind, _ in cells.SHAPES}
    assert len(set(found)) == len(found)
    for cell in found[::7]:
        jobs = run.jobs_of(cell, device)
        assert len(set(jobs)) == len(jobs) > 2
        assert jobs == run.jobs_of(cell, device), "other processes and runs compile the same"
