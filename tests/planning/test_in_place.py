"""A softmax that overwrites its input: no programs share its rows, whatever else a device does with rows as long."""

import itertools
from dataclasses import replace

import pytest
from offline import GPUS, H200, MI300X, PRODUCTS, every_candidate, light, read_problem

from portable_softmax import Device
from portable_softmax.planning.planner import choose
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.reading import as_read

REASON = "in place: no programs share a row, because one that waited too long would read what others have overwritten"
SIZES = list(itertools.product((1, 64, 4096), (37, 4096, 40_000, 151_936, 10**6)))


def beside(n_rows, n_cols, inner, vector=4, **kind):
    return Problem(n_rows, n_cols, "float32", "float32", vector, inner=inner, **kind)


BESIDE = [beside(4096, 50_257, 1024), beside(16, 151_936, 16), beside(4096, 20_000, 8), beside(4096, 50_257, 1024, 1)]


@pytest.mark.parametrize("profile", GPUS)
def test_no_launch_has_parts_and_each_problem_has_one(profile):
    device = Device.from_profile(profile)
    shared = 0
    problems = [read_problem(*size, dtype, device) for size in SIZES for dtype in ("float32", "bfloat16", "float64")]
    for problem in (*problems, *(as_read(each, device) for each in BESIDE)):
        shared += choose(problem, device, light).tiling.parts > 1
        in_place = replace(problem, in_place=True)
        assert {tiling.parts for tiling in every_candidate(in_place, device)} == {1}
        assert choose(in_place, device, light).reasons.count(REASON) == bool(device.profile.launch.polls)
    assert shared or not device.profile.launch.polls, "none of these would be shared otherwise"


OTHERS = sorted(set(PRODUCTS) - set(GPUS))


@pytest.mark.parametrize("profile", OTHERS)
def test_other_profiles_have_a_launch_too(profile):
    device = Device.from_profile(profile)
    assert choose(replace(read_problem(7, 151_936, "float32", device), in_place=True), device, light).tiling.parts == 1


@pytest.mark.parametrize("profile", [H200, MI300X])
def test_rows_that_are_not_shared_anyway_keep_their_launch(profile):
    device = Device.from_profile(profile)
    for n_cols in (37, 781, 4096):
        problem = read_problem(4096, n_cols, "bfloat16", device)
        assert choose(replace(problem, in_place=True), device, light).tiling == choose(problem, device, light).tiling


def test_elsewhere_the_reason_is_not_given():
    device = Device.from_profile(H200)
    assert REASON not in choose(read_problem(4096, 40_000, "float32", device), device, light).reasons
