"""Jobs that crash, hang or fail cost their own process; the others are answered."""

import time

import pytest
from tiny import act

from portable_probe.tune.processes import Failed, answers

SOON = 120


def answered(jobs, n_processes=1, limit_s=5, for_s=SOON):
    began = time.monotonic()
    return dict(answers(act, [(job,) for job in jobs], n_processes, limit_s, began + for_s)), time.monotonic() - began


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        pytest.param("abort", "the process ended by signal 6", marks=pytest.mark.slow),
        ("hang", "no answer in 1 s"),
        pytest.param("fail", "RuntimeError: the device is lost", marks=pytest.mark.slow),
    ],
)
def test_a_job_that_goes_wrong_costs_its_process(job, reason):
    found, _ = answered(["one", job, "two"], limit_s=1)
    assert found[job,] == Failed(reason)
    (_, before), (_, after) = found["one",], found["two",]
    assert before != after


@pytest.mark.slow
def test_a_refusal_costs_nothing():
    found, _ = answered(["one", "wrong", "two"])
    assert found["wrong",] == Failed("WrongResultError: not like float64")
    assert found["one",][1] == found["two",][1]


@pytest.mark.slow
def test_several_processes_share_the_jobs():
    found, _ = answered([f"job {number}" for number in range(40)], n_processes=2)
    assert len(found) == 40
    assert len({process for _, process in found.values()}) == 2


@pytest.mark.slow
def test_it_ends_when_time_is_up():
    found, took = answered(["hang", "one"], limit_s=100, for_s=4)
    assert not found
    assert took < 10
