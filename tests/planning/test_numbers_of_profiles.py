"""Numbers that a launch is computed with: which rows of a profile take a problem, and which of them decides."""

import dataclasses
import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offline import H200, MI300X, PRODUCTS, light, number_row, planned, read_problem, with_numbers

from portable_softmax import Device
from portable_softmax.devices.policy import OF_VECTOR_CORES, OF_WARPS
from portable_softmax.planning.numbers import numbers_of, takes
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.planner import choose
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.reasons import OF_SPLITS
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.runtime.specialization import KernelSpec

FLOAT32 = Problem(4096, 4096, "float32", "float32", 4)


def row(**conditions):
    return number_row(elements_per_split=8, **conditions)


@pytest.mark.parametrize(
    ("condition", "problem", "holds"),
    [
        ({}, FLOAT32, True),
        ({"direction": "forward"}, FLOAT32, True),
        ({"direction": "backward"}, FLOAT32, False),
        ({"direction": "backward"}, dataclasses.replace(FLOAT32, backward=True), True),
        ({"element_bytes": 4}, FLOAT32, True),
        ({"element_bytes": 2}, FLOAT32, False),
        ({"element_bytes": 2}, dataclasses.replace(FLOAT32, y_dtype="bfloat16"), True),
        ({"access": "vector"}, FLOAT32, True),
        ({"access": "scalar"}, FLOAT32, False),
        ({"access": "scalar"}, dataclasses.replace(FLOAT32, vector=1), True),
        ({"access": "narrow"}, dataclasses.replace(FLOAT32, vector=2), True),
        ({"access": "unaligned"}, dataclasses.replace(FLOAT32, unaligned=True), True),
        ({"access": "paired"}, dataclasses.replace(FLOAT32, vector=2, paired=True), True),
        ({"layout": "rows"}, FLOAT32, True),
        ({"layout": "across"}, FLOAT32, False),
        ({"layout": "across"}, dataclasses.replace(FLOAT32, inner=64), True),
        ({"layout": "transposed"}, dataclasses.replace(FLOAT32, transposed=True), True),
        ({"from_cols": 4096}, FLOAT32, True),
        ({"from_cols": 4097}, FLOAT32, False),
        ({"to_cols": 4096}, FLOAT32, True),
        ({"to_cols": 4095}, FLOAT32, False),
        ({"from_load": 8}, FLOAT32, True),
        ({"from_load": 9}, FLOAT32, False),
        ({"to_load": 8}, FLOAT32, True),
        ({"to_load": 7}, FLOAT32, False),
        ({"from_cols": 4096, "to_load": 7}, FLOAT32, False),
    ],
)
def test_a_row_takes_a_problem_if_each_condition_holds(condition, problem, holds):
    assert takes(row(**condition), problem, load=8.0) is holds


@settings(max_examples=200, deadline=None)
@given(first=st.integers(1, 10**6), last=st.integers(1, 10**6), n_cols=st.integers(1, 10**6))
def test_a_range_of_lengths_takes_its_ends_and_what_lies_between(first, last, n_cols):
    if first > last:
        with pytest.raises(msgspec.ValidationError, match=f"from_cols {first} is above to_cols {last}"):
            row(from_cols=first, to_cols=last)
    else:
        problem = dataclasses.replace(FLOAT32, n_cols=n_cols)
        assert takes(row(from_cols=first, to_cols=last), problem, None) is (first <= n_cols <= last)


def test_the_first_row_that_takes_a_problem_and_gives_a_number_decides_it():
    one, two = {"elements_per_split": 8, "to_cols": 5000}, {"elements_per_split": 16, "row_share": 0.5}
    device = with_numbers(H200, {"elements_per_split": 4, "direction": "backward"}, one, two)
    found, rows = numbers_of(FLOAT32, device)
    assert (found.elements_per_split, found.row_share) == (8, 0.5)
    assert rows[:2] == device.profile.launch.numbers[1:3], "the row for gradients gave nothing"
    longer, _ = numbers_of(dataclasses.replace(FLOAT32, n_cols=5001), device)
    assert longer.elements_per_split == 16
    own, _ = numbers_of(FLOAT32, Device.from_profile(H200))
    assert found == dataclasses.replace(own, elements_per_split=8, row_share=0.5), "all others are the profile's"


@pytest.mark.parametrize("profile", PRODUCTS)
def test_every_problem_has_all_numbers_that_its_device_needs(profile):
    device = Device.from_profile(profile)
    needed = OF_WARPS if device.hardware.warp_size else OF_VECTOR_CORES
    for n_rows, n_cols, dtype, backward in itertools.product(
        (1, 4096), (1, 781, 16384, 50_257, 10**6), device.profile.dtypes, (False, True)
    ):
        problem = read_problem(n_rows, n_cols, dtype, device, backward=backward)
        found, rows = numbers_of(problem, device)
        assert all(getattr(found, key) for key in needed)
        plan = choose(problem, device, light)
        for row in rows:  # numbers for splits are no reason where a row has none
            named = any(device.profile.sources[row.source].title in reason and _said(row) in reason for reason in plan.reasons)
            assert named != (bool(row.conditions) and plan.tiling.splits == 1 and row.given.keys() <= OF_SPLITS)


def _said(row):
    return " times as fast" if row.conditions else "tuning constants: "


def test_a_row_for_one_architecture_changes_its_plans_and_says_so():
    before = planned(MI300X, 4096, 65_536)
    device = with_numbers(MI300X, {"from_cols": 8192, "elements_per_split": 64, "gain": 1.5})
    after = choose(contiguous_problem(4096, 65_536, "float32"), device, light)
    assert after.tiling.splits == before.tiling.splits // 2
    line = device.profile.sources["line"].title
    assert f"elements_per_split 64 for from_cols 8192: 1.5 times as fast ({line})" in after.reasons
    assert planned(MI300X, 4096, 4096).tiling == choose(FLOAT32, device, light).tiling


def test_rows_that_may_lie_inside_one_vector_are_never_unaligned():
    """Whatever a profile prefers: each element of such a row would be at both of its edges."""
    device = with_numbers(H200, {"unaligned_cols": 1})
    for dtype, vector in (("float16", 8), ("float32", 4), ("float64", 2)):
        for n_cols in range(1, 2 * vector + 2):
            assert read_problem(40, n_cols, dtype, device).unaligned == (n_cols > vector and n_cols % vector > 0)
    with pytest.raises(ValueError, match="a vector of 4: they cannot be unaligned"):
        KernelSpec.of(Problem(40, 3, "float32", "float32", 4, unaligned=True), Tiling(1, 4))
