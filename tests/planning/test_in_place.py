"""A softmax that overwrites its input: planned as any other, but where nothing tells that words are seen ahead of results."""

import dataclasses
import itertools
from dataclasses import replace

import msgspec
import pytest
from offline import PRODUCTS, SHARING, every_launch, foremost, light

from portable_softmax import Device
from portable_softmax.planning.planner import choose
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.request import contiguous_problem

ALONE = "in place: no programs share a row, as nothing tells that one's words are seen ahead of what it overwrites"
SIZES = list(itertools.product((1, 64, 4096), (37, 4096, 40_000, 151_936, 10**6)))


def beside(n_rows, n_cols, inner, vector=4, **kind):
    return Problem(n_rows, n_cols, "float32", "float32", vector, inner=inner, **kind)


BESIDE = [beside(4096, 50_257, 1024), beside(16, 151_936, 16), beside(4096, 20_000, 8), beside(4096, 50_257, 1024, 1)]


def problems():
    for dtype in ("float32", "bfloat16", "float64"):
        yield from (contiguous_problem(*size, dtype) for size in SIZES)
    yield from BESIDE


@pytest.mark.parametrize("profile", foremost(PRODUCTS))
def test_a_launch_in_place_is_that_of_a_fresh_result(profile):
    device = Device.from_profile(profile)
    shared = 0
    for problem in problems():
        fresh, plan = choose(problem, device, light), choose(replace(problem, in_place=True), device, light)
        assert (plan.tiling, plan.num_programs) == (fresh.tiling, fresh.num_programs)
        told = [reason for reason in plan.reasons if reason.startswith("in place")]
        assert len(told) == plan.tiling.is_shared
        assert not any(reason.startswith("in place") for reason in fresh.reasons)
        shared += plan.tiling.is_shared
    assert bool(shared) == (profile in SHARING or device.backend == "xpu")


@pytest.mark.parametrize("profile", foremost(SHARING))
def test_where_nothing_tells_the_order_no_programs_share_rows(profile):
    device = Device.from_profile(profile)
    launch = msgspec.structs.replace(device.profile.launch, in_place=msgspec.UNSET)
    device = dataclasses.replace(device, profile=msgspec.structs.replace(device.profile, launch=launch))
    for problem in problems():
        in_place = replace(problem, in_place=True)
        assert {tiling.splits for _, tiling in every_launch(in_place, device)} == {1}
        assert choose(in_place, device, light).reasons.count(ALONE) == 1
        assert ALONE not in choose(problem, device, light).reasons
