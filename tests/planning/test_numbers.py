"""Launch rules: which of them take a problem, and that they are complete on every profile."""

import dataclasses
import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offline import A2, GPUS, H200, MI300X, light, planned, read_problem, with_rules

from portable_softmax import Device, KernelResources, profiles
from portable_softmax.devices.policy import LaunchRule, RaggedRows
from portable_softmax.planning.candidates import candidates
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.planner import choose
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.planning.rules import load_of, matching, takes
from portable_softmax.runtime.specialization import KernelSpec

FLOAT32 = Problem(4096, 4096, "float32", "float32", 4)


def rule(**conditions) -> LaunchRule:
    return msgspec.convert({"strategy": "online", "tile_cols": 1024, "source": "any", **conditions}, LaunchRule)


@pytest.mark.parametrize(
    ("condition", "problem", "holds"),
    [
        ({}, FLOAT32, True),
        ({"step": "reduce"}, FLOAT32, False),
        ({"step": "reduce"}, dataclasses.replace(FLOAT32, step="reduce"), True),
        ({"step": "map"}, dataclasses.replace(FLOAT32, step="reduce"), False),
        ({}, dataclasses.replace(FLOAT32, step="map"), True),
        ({"direction": "forward"}, FLOAT32, True),
        ({"direction": "backward"}, FLOAT32, False),
        ({"direction": "backward"}, dataclasses.replace(FLOAT32, backward=True), True),
        ({"element_bytes": 4}, FLOAT32, True),
        ({"element_bytes": 2}, FLOAT32, False),
        ({"element_bytes": 2}, dataclasses.replace(FLOAT32, y_dtype="bfloat16"), True),
        ({"access": "vector"}, FLOAT32, True),
        ({"access": "scalar"}, FLOAT32, False),
        ({"access": "scalar"}, dataclasses.replace(FLOAT32, vector=1), True),
        ({"access": "ragged"}, dataclasses.replace(FLOAT32, ragged=True), True),
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
def test_a_rule_takes_a_problem_if_each_condition_holds(condition, problem, holds):
    assert takes(rule(**condition), problem, load=8.0) is holds


def test_a_condition_on_a_load_that_is_unknown_does_not_hold():
    assert not takes(rule(from_load=1), FLOAT32, None)
    assert not takes(rule(to_load=10**6), FLOAT32, None)
    assert takes(rule(), FLOAT32, None)
    assert load_of(FLOAT32, Device.from_profile(A2)) is None, "vector cores have no threads"


def test_the_load_counts_elements_for_each_thread_that_the_device_holds():
    device = Device.from_profile(H200)
    assert load_of(dataclasses.replace(FLOAT32, n_rows=132 * 64, n_cols=32), device) == 1.0
    any_number = dataclasses.replace(FLOAT32, n_rows=1, batch_invariant=True)
    assert load_of(any_number, device) == float("inf")


@pytest.mark.parametrize("profile", sorted(profiles()))
def test_every_problem_has_a_plan_by_the_first_rule_that_fits(profile):
    device = Device.from_profile(profile)
    for n_rows, n_cols, dtype, backward in itertools.product(
        (1, 4096), (1, 781, 16384, 50_257, 10**6), device.profile.dtypes, (False, True)
    ):
        problem = read_problem(n_rows, n_cols, dtype, device, backward=backward)
        rules = list(matching(problem, device))
        assert rules[-1] == device.profile.launch.rules[-1]
        numbers = [device.profile.launch.rules.index(each) + 1 for each in rules]
        reasons = choose(problem, device, light).reasons
        assert any(f"rule {number} of {profile} (" in reason for reason in reasons for number in numbers)


@pytest.mark.parametrize("profile", sorted(profiles()))
def test_steps_of_sharded_rows_take_whole_tiles_alone(profile):
    """Their kernels go tile by tile, and know neither parts nor pieces, nor numbers by place."""
    device = Device.from_profile(profile)
    columns, rows = (20, 781, 2000, 16384, 131_072), ((32, 1), (32, 32), (4096, 32), (64_000, 64))
    for step, (n_rows, inner), n_cols, dtype in itertools.product(
        ("reduce", "map"), rows, columns, {"float32", "float16"} & set(device.profile.dtypes)
    ):
        problem = Problem(n_rows, n_cols, dtype, dtype, 1 if inner < 64 else 4, inner=inner, step=step)
        plan = choose(problem, device, light)
        assert plan.tiling.parts == plan.tiling.pieces == 1
        assert plan.tiling.held
        assert any(step in reason for reason in plan.reasons)


@pytest.mark.parametrize("profile", sorted(profiles()))
def test_a_profile_has_at_most_twenty_rules_for_rows_and_as_many_for_others_and_none_is_out_of_reach(profile):
    """A rule is out of reach where an earlier one takes all that it takes, of the same strategy, with as many registers."""
    rules = Device.from_profile(profile).profile.launch.rules
    assert len([rule for rule in rules if not {"step", "layout"} & rule.conditions.keys()]) <= 20
    assert len([rule for rule in rules if "layout" in rule.conditions]) <= 20
    for earlier, later in itertools.combinations(rules, 2):
        implied = earlier.conditions.items() <= later.conditions.items()
        alike = earlier.strategy == later.strategy and earlier.max_registers == later.max_registers
        assert not (implied and alike), (earlier, later)


def test_a_tile_of_several_shared_rows_needs_a_layout():
    shared = {"strategy": "shared", "tile_cols": 512, "num_warps": 4, "tile_rows": 16}
    assert rule(**shared, layout="turned").tile_rows == 16
    for layout in ({}, {"layout": "rows"}):
        with pytest.raises(msgspec.ValidationError, match="tile_rows is for rows that lie side by side; give layout"):
            rule(**shared, **layout)


def test_parts_that_are_read_twice_are_as_many_as_registers_let_in():
    twice = {"strategy": "shared", "num_warps": 4, "read_twice": True, "elements_per_piece": 16, "max_registers": 128}
    assert msgspec.convert(twice | {"source": "any"}, LaunchRule).read_twice
    for missing in ("elements_per_piece", "max_registers"):
        with pytest.raises(msgspec.ValidationError, match=f"strategy shared, read twice needs {missing}"):
            msgspec.convert({key: value for key, value in twice.items() if key != missing} | {"source": "any"}, LaunchRule)
    with pytest.raises(msgspec.ValidationError, match="strategy shared, read twice has no use for tile_cols"):
        rule(**twice, tile_cols=4096)


def test_parts_that_are_read_twice_do_not_depend_on_the_number_of_batch_invariant_rows():
    twice = {"strategy": "shared", "num_warps": 4, "read_twice": True, "elements_per_piece": 16, "max_registers": 128}
    given, device = msgspec.convert(twice | {"source": "any"}, LaunchRule), Device.from_profile(H200)
    found = [
        list(candidates(given, dataclasses.replace(FLOAT32, n_rows=n_rows, n_cols=50_000, batch_invariant=True), device))
        for n_rows in (1, 132, 10**6)
    ]
    assert found[0] == found[1] == found[2]
    assert all(tiling.parts == 1 for tiling in found[0]), "many rows fill the device by themselves"


def test_a_tile_of_words_needs_its_warps():
    with pytest.raises(msgspec.ValidationError, match="strategy tile of words needs num_warps"):
        rule(strategy="tile", tile_words=700)
    with pytest.raises(msgspec.ValidationError, match="strategy tile of words has no use for elements_per_thread"):
        rule(strategy="tile", tile_words=700, num_warps=4, elements_per_thread=8)


def test_a_rule_says_once_how_many_warps_a_program_has():
    twice = {"source": "any", "strategy": "tile", "tile_elements": 1024, "num_warps": 4, "elements_per_thread": 32}
    with pytest.raises(msgspec.ValidationError, match="num_warps and elements_per_thread both say how many warps"):
        msgspec.convert(twice, LaunchRule)


@pytest.mark.parametrize(
    ("n_cols", "room", "tiles"),
    [
        (700, 26_624, [(32, 704), (16, 768), (8, 768)]),  # as many rows as there is room for, then ever fewer
        (1000, 26_624, [(16, 1024), (8, 1024)]),
        (100, 2048, [(16, 128), (8, 128)]),  # in one piece each
        (4000, 26_624, []),
    ],
)
def test_a_tile_of_rows_side_by_side_has_the_warps_and_the_room_of_its_rule(n_cols, room, tiles):
    problem = Problem(4096, n_cols, "float32", "float32", 4, inner=4096)
    rules = {"source": "test", "layout": "across", "strategy": "tile", "tile_elements": 512, "max_tile_elements": room}
    found = candidates(LaunchRule(**rules, num_warps=8, elements_per_piece=8), problem, Device.from_profile(H200))
    assert [(each.tile_rows, each.tile_cols) for each in found if each.num_warps == 8] == tiles


@pytest.mark.parametrize(("n_cols", "tile_rows", "tile_cols"), [(7, 64, 8), (20, 32, 20), (100, 32, 100), (3, 128, 3)])
def test_a_tile_of_words_of_rows_side_by_side_has_an_access_per_thread_and_piece(n_cols, tile_rows, tile_cols):
    """It needs a rule of that layout: what is fast for the elements of a row is not for those of its neighbours."""
    problem = Problem(3_000_000, n_cols, "bfloat16", "bfloat16", 1, inner=3, scattered=True)
    words = {"source": "test", "strategy": "tile", "tile_words": 700, "num_warps": 4}
    device = Device.from_profile(H200)
    first = next(candidates(LaunchRule(**words, layout="across"), problem, device))
    assert (first.tile_rows, first.tile_cols, first.num_warps) == (tile_rows, tile_cols, 4)
    assert tile_rows * tile_cols == 128 * first.pieces
    assert not list(candidates(LaunchRule(**words), problem, device))


@pytest.mark.parametrize(
    "choices",
    [
        {"strategy": "tile", "tile_words": 4096, "num_warps": 4},
        {"strategy": "tile", "tile_elements": 4096, "max_tile_elements": 2**20},
        {"strategy": "shared", "tile_rows": 64, "tile_cols": 32_768, "num_warps": 32},
    ],
)
def test_no_tile_has_more_elements_than_triton_has(choices):
    problem = Problem(2**14, 100_000, "float32", "float32", 4, inner=64)
    tilings = list(candidates(LaunchRule(source="test", layout="across", **choices), problem, Device.from_profile(H200)))
    assert all(tiling.tile_rows * tiling.tile_cols <= 2**20 for tiling in tilings)


def test_a_new_rule_for_one_architecture_changes_its_plans():
    before = planned(MI300X, 4096, 12672)
    device = with_rules(MI300X, {"from_cols": 8192, "strategy": "shared", "tile_cols": 4096, "num_warps": 4})
    after = choose(contiguous_problem(4096, 12672, "float32"), device, light)
    assert (before.tiling.strategy, after.tiling.strategy, after.tiling.parts) == ("tile", "shared", 4)
    assert after.reasons[0].startswith("rule 1 of amd/mi300x (from_cols 8192; ")
    assert planned(MI300X, 4096, 4096).tiling == choose(FLOAT32, device, light).tiling


@settings(max_examples=200, deadline=None)
@given(first=st.integers(1, 10**6), last=st.integers(1, 10**6), n_cols=st.integers(1, 10**6))
def test_a_range_of_lengths_takes_its_ends_and_what_lies_between(first, last, n_cols):
    if first > last:
        with pytest.raises(msgspec.ValidationError, match=f"from_cols {first} is above to_cols {last}"):
            rule(from_cols=first, to_cols=last)
    else:
        problem = dataclasses.replace(FLOAT32, n_cols=n_cols)
        assert takes(rule(from_cols=first, to_cols=last), problem, None) is (first <= n_cols <= last)


@pytest.mark.parametrize("profile", GPUS)
def test_gpus_share_long_rows_and_say_how_often_programs_look(profile):
    launch = Device.from_profile(profile).profile.launch
    assert any(each.strategy == "shared" and "from_load" not in each.conditions for each in launch.rules)
    assert 1 <= launch.polls.value <= 2**16


def test_a_tile_may_have_more_registers_where_it_spills_with_fewer():
    tile = {"strategy": "tile", "tile_elements": 1024, "elements_per_thread": 32}
    device = with_rules(H200, tile | {"max_registers": 64}, tile | {"max_registers": 128})

    def spills(problem, tiling, device):
        return KernelResources(tiling.num_warps, 64, 16, 8 if tiling.max_registers == 64 and problem.backward else 0)

    for backward, registers in ((False, 64), (True, 128)):
        problem = read_problem(4096, 4096, "float32", device, backward=backward)
        assert choose(problem, device, spills).tiling.max_registers == registers


def test_a_plan_says_where_registers_are_estimated():
    unknown = planned(H200, 4096, 781, measure=lambda problem, tiling, device: KernelResources(tiling.num_warps))
    assert any("registers are estimated" in reason for reason in unknown.reasons)
    assert not any("estimated" in reason for reason in planned(H200, 4096, 781).reasons)
    assert not any("estimated" in reason for reason in planned(A2, 4096, 781).reasons), "vector cores have no registers"


def test_rows_that_may_lie_inside_one_vector_are_never_ragged():
    """Whatever a profile prefers: each element of such a row would be at both of its edges."""
    device = Device.from_profile(H200)
    policy = msgspec.structs.replace(device.profile.launch, ragged=[RaggedRows(from_cols=1, source="line")])
    device = dataclasses.replace(device, profile=msgspec.structs.replace(device.profile, launch=policy))
    for dtype, vector in (("float16", 8), ("float32", 4), ("float64", 2)):
        for n_cols in range(1, 2 * vector + 2):
            assert read_problem(40, n_cols, dtype, device).ragged == (n_cols > vector and n_cols % vector > 0)
    with pytest.raises(ValueError, match="a vector of 4: they cannot be ragged"):
        KernelSpec.of(Problem(40, 3, "float32", "float32", 4, ragged=True), Tiling("tile", 1, 4))
