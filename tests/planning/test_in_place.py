"""A softmax that overwrites its input: planned as any other, but no programs share a row."""

import itertools
from dataclasses import replace

import pytest
from offline import PRODUCTS, every_launch, foremost, light

from portable_softmax import Device
from portable_softmax.planning.planner import choose
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.request import contiguous_problem

ALONE = "in place: no programs share a row, as one may read again what another has overwritten"
SIZES = list(itertools.product((1, 64, 4096), (37, 4096, 40_000, 151_936, 10**6)))


def beside(n_rows, n_cols, inner, vector=4):
    return Problem(n_rows, n_cols, "float32", "float32", vector, inner=inner)


PROBLEMS = [contiguous_problem(*size, dtype) for dtype in ("float32", "bfloat16") for size in SIZES]
PROBLEMS += [beside(4096, 50_257, 1024), beside(16, 151_936, 16), beside(4096, 20_000, 8), beside(4096, 50_257, 1024, 1)]


@pytest.mark.parametrize("profile", foremost(PRODUCTS))
def test_no_programs_share_a_row_in_place(profile):
    device = Device.from_profile(profile)
    for problem in PROBLEMS:
        in_place = replace(problem, in_place=True)
        assert {tiling.splits for _, tiling in every_launch(in_place, device)} == {1}
        fresh, plan = choose(problem, device, light), choose(in_place, device, light)
        assert fresh.tiling.is_shared or (plan.tiling, plan.num_programs) == (fresh.tiling, fresh.num_programs)
        assert plan.reasons.count(ALONE) == bool(device.profile.launch.polls)
        assert ALONE not in fresh.reasons
