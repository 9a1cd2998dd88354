"""Tuning: the fit finds known numbers, the profile is used, and timed launches are compared with float64."""

import contextlib
import dataclasses
from unittest import mock

import numpy as np
import pytest

from portable_probe import tune
from portable_probe.program import main
from portable_probe.tune import fit, launches
from portable_softmax import Device
from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.detect import current_device
from portable_softmax.devices.schema import COST_NUMBERS
from portable_softmax.errors import PlanError
from portable_softmax.planning.candidates import estimated
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.runtime.plans import plan_problem

NAME = "nvidia/h100-sxm"
DEVICE = Device.from_profile(NAME)
BEGIN = np.array([getattr(DEVICE.profile.launch.cost, name) for name in COST_NUMBERS])
CHANGED = np.random.default_rng(3).uniform(0.75, 1.33, len(BEGIN))
KNOWN = BEGIN * np.where([name in fit.HELD for name in COST_NUMBERS], 1, CHANGED)


@pytest.fixture(scope="module")
def timed():
    """Returns all launches of a run, with estimated resources and without times; every fifth spills."""
    number = iter(range(10**6))

    def spilling(used):
        return dataclasses.replace(used, spilled_bytes_per_thread=0 if next(number) % 5 else 48)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(launches, "median_us", lambda prepared, device: 1.0)
        patched.setattr(launches, "resources_of", lambda kernel, device: spilling(estimated(*kernel)))
        patched.setattr(launches, "kernels_of", lambda *launch: [launch])
        patched.setattr(launches, "kernel_resources", lambda *_: (spilling(KernelResources(4, 32, 1024)), []))
        results = []
        for job in launches.jobs_of(DEVICE):
            with contextlib.suppress(PlanError):  # does not fit
                results.append(job())
        return results


def noisy(timed, numbers, noise):
    """Returns the launches of every third problem, with times by the numbers, and noise."""
    some = sorted({launch.problem for launch in timed})[::3]
    timed = [launch for launch in timed if launch.problem in some]
    named = fit.CostNumbers(**dict(zip(COST_NUMBERS, map(float, numbers), strict=True)))
    factors = np.random.default_rng(7).lognormal(0, noise, len(timed))
    us = (float(launch.expected(named).total * factor) for launch, factor in zip(timed, factors, strict=True))
    return [launch._replace(us=time) for launch, time in zip(timed, us, strict=True)]


def test_known_numbers_are_recovered(timed):
    """Within four standard errors, or what the prior adds; some launches that were disturbed change little."""
    problems = [launch.problem for launch in timed]
    assert min(problems.count(name) for name in set(problems)) > 2
    assert len(set(problems)) == 4 * len(launches.SOFTMAXES) + 2 * len(launches.KERNELS)
    prepared = fit.prepared(noisy(timed, KNOWN, 0.01))
    numbers, errors = fit.fitted(prepared, BEGIN)
    off = dict(zip(COST_NUMBERS, np.abs(np.log(numbers / KNOWN)) - 4 * errors, strict=True))
    assert max(off.values()) < 0.03, off
    assert np.median(errors) < 0.03
    assert fit.accuracy(prepared, fit.left_out(prepared, BEGIN))[0] < 0.02, "regret"
    us, bandwidth = np.where(np.arange(len(prepared.us)) % 50 == 0, 3, 1) * prepared.us, COST_NUMBERS.index("bandwidth")
    disturbed, _ = fit.fitted(prepared._replace(us=us), BEGIN)
    assert disturbed[bandwidth] == pytest.approx(numbers[bandwidth], rel=0.01)


@pytest.fixture
def tuned(timed, tmp_path, monkeypatch):
    """Returns a function that tunes with some launches, and a job that fails, and returns the exit code."""
    monkeypatch.setattr(tune, "current_device", lambda: DEVICE)
    fakes = noisy(timed, KNOWN, 0.01)

    def run(error, launched=None):
        jobs = [(lambda launch=launch: launch) for launch in fakes[:launched]]
        jobs.insert(1, mock.Mock(side_effect=error))
        monkeypatch.setattr(launches, "jobs_of", lambda device: jobs)
        return main(["tune", "--minutes", "3", "--out", str(tmp_path)])

    return run


def test_the_profile_is_used_and_a_failed_launch_is_printed(tuned, tmp_path, monkeypatch, capsys):
    assert tuned(PlanError("the result differs")) == 0
    printed = capsys.readouterr()
    assert "PlanError: the result differs" in printed.err
    assert f"PORTABLE_SOFTMAX_PROFILES={tmp_path}" in printed.out
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    profile = Device.from_profile(NAME).profile
    cost = profile.launch.cost
    assert cost.bandwidth == pytest.approx(KNOWN[COST_NUMBERS.index("bandwidth")], rel=0.02)
    assert 0 < cost.error_90 < 0.1
    assert profile.sources[cost.source].verified == "measured"


def test_too_few_launches_or_no_cost_write_nothing(tuned, tmp_path, monkeypatch, capsys):
    assert tuned(RuntimeError("lost")) == tuned(PlanError("one"), 5) == 2
    assert capsys.readouterr().err.count("too few to fit; increase --minutes") == 2
    monkeypatch.setattr(tune, "current_device", lambda: Device.from_profile("ascend/910b3"))
    assert main(["tune"]) == 2
    assert "ascend/910b3 lacks `cost`" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.yaml"))


SOFTMAXES = {"row": (8, 256), "unaligned": (8, 33), "across": (4, 16, 32)}


@pytest.fixture
def local(device, monkeypatch):
    """Returns the local device, whose interpreter reports no resources."""
    here = current_device()
    if here.index is None:
        monkeypatch.setattr(launches, "resources_of", lambda *_: KernelResources(1, 32))
        monkeypatch.setattr(launches, "kernel_resources", lambda *_: (KernelResources(1, 32), []))
        monkeypatch.setattr(LaunchPlan, "unfit", None)
    return here


@pytest.mark.kernel
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("kind", SOFTMAXES)
def test_a_timed_softmax_is_right(local, monkeypatch, kind, backward):
    problem = launches.softmax_problem(SOFTMAXES[kind], "bfloat16", backward, local)
    launch = plan_problem(problem, local)

    assert launches.time_softmax(SOFTMAXES[kind], launch, local).us > 0
    monkeypatch.setattr(launches, "ROUNDING", -1.0)
    with pytest.raises(PlanError, match=r"differs from float64 by .* of its largest element"):
        launches.time_softmax(SOFTMAXES[kind], launch, local)


@pytest.mark.kernel
def test_a_timed_kernel_is_right(local):
    assert launches.time_kernel((12, 300), "float32", 128, 4, True, local).us > 0
