"""A launch's expected time is the sum of its terms, follows its facts, and ranks measured launches."""

import csv
import dataclasses
import math
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from offline import with_hardware

from portable_probe.tune.cells import Cell, cells_of, problem_on
from portable_softmax import Device
from portable_softmax.devices.policy import COST_NUMBERS
from portable_softmax.errors import PlanError
from portable_softmax.planning.cost import cost, terms
from portable_softmax.planning.estimate import estimated
from portable_softmax.planning.facts import facts
from portable_softmax.planning.grid import grid, is_possible
from portable_softmax.planning.plan import Terms, Tiling
from portable_softmax.planning.planner import ranked
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.reading import readings
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.runtime.specialization import KernelSpec

H100 = "nvidia/h100-sxm"
H100_DEVICE = Device.from_profile(H100)
LAUNCHES = Path(__file__).parents[1] / "support" / "recorded" / "launches_h100.csv"
TILES = Tiling(1, 1024, 4, 1)
SPLITS = Tiling(1, 1024, 4, 1, splits=8)
FASTER = {"bandwidth", "overlap", "again", "spilled"}  # numbers of which more is less time


def costs(n_rows=4096, n_cols=1024, dtype="bfloat16", tiling=TILES, resident=8, spilled=0, **kind):
    """Returns the terms of a launch of contiguous rows on an H100."""
    device = Device.from_profile(H100)
    problem = contiguous_problem(n_rows, n_cols, dtype, **kind)
    return cost(problem, tiling, problem.tiles(tiling.tile_rows) * tiling.splits, resident, device, spilled)


def problems_of(product=H100):
    """Returns problems of all classes, in both types and directions, as the device reads them; and the device."""
    device = Device.from_profile(product)
    return [problem_on(cell, device) for cell in cells_of(device)[::3]], device


SHORT = {"n_rows": 2**18, "n_cols": 64}


@pytest.mark.parametrize(
    ("cheaper", "dearer"),
    [
        pytest.param({"n_rows": 4096}, {"n_rows": 8192}, id="rows"),
        pytest.param({"dtype": "bfloat16"}, {"dtype": "float32"}, id="bytes of an element"),
        pytest.param({"spilled": 0}, {"spilled": 64}, id="spills"),
        pytest.param({"resident": 8}, {"resident": 1}, id="one program after the other"),
        pytest.param({"tiling": TILES}, {"tiling": Tiling(1, 256, 4, 1, held=False)}, id="read twice"),
        pytest.param(
            {**SHORT, "tiling": Tiling(16, 64, 4, 1)}, {**SHORT, "tiling": Tiling(1, 64, 1, 1)}, id="a program for each row"
        ),
        pytest.param(
            {**SHORT, "tiling": Tiling(16, 64, 4, 1)},
            {**SHORT, "tiling": Tiling(16, 8, 4, 1, blocks=8)},
            id="lines that warps ask for more than once",
        ),
        pytest.param(
            {"n_rows": 8, "n_cols": 8192, "tiling": Tiling(1, 8192, 8, 1)},
            {"n_rows": 8, "n_cols": 8192, "tiling": SPLITS},
            id="an exchange that nothing needs",
        ),
    ],
)
def test_what_costs_more(cheaper, dearer):
    assert costs(**cheaper).total < costs(**dearer).total


def test_of_log_probabilities_the_last_program_of_a_row_waits_and_of_their_gradient_each_for_its_tokens():
    device = Device.from_profile(H100)
    asked, softmax, gradient = (
        facts(contiguous_problem(4096, 8192, "bfloat16", form=form, backward=backward), SPLITS, 4096 * SPLITS.splits, 8, device)
        for form, backward in (("token_log_probs", False), ("log_softmax", False), ("token_log_probs", True))
    )
    assert (asked.shared, asked.lookups, asked.sums) == (softmax.shared, softmax.lookups, softmax.sums)
    assert softmax.waiting == asked.waiting * SPLITS.splits == 1
    assert (gradient.shared, gradient.waiting, gradient.lookups, gradient.sums) == (1, 1, 0, 0)


def test_what_the_l2_cache_has_lost_is_read_again_from_memory():
    twice = Tiling(1, 1024, 4, 1, held=False)
    problem = contiguous_problem(4096, 65536, "bfloat16")
    read, all_cached, none_cached = (
        facts(problem, tiling, 4096, 8, with_hardware(H100, l2_cache_bytes=size))
        for tiling, size in ((TILES, 2**20), (twice, 2**40), (twice, 1))
    )
    assert all_cached.bytes_us == read.bytes_us
    assert all_cached.again_us == pytest.approx(read.bytes_us / 2)
    assert none_cached.bytes_us == pytest.approx(1.5 * read.bytes_us)
    assert none_cached.again_us == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("tiling", [TILES, SPLITS, Tiling(4, 1024, 8, 1), Tiling(1, 256, 4, 1, held=False)], ids=str)
@pytest.mark.parametrize("resident", [1, 3, 8])
def test_more_bytes_are_never_cheaper(tiling, resident):
    n_cols = 1000 * tiling.splits
    told = [costs(n_rows, n_cols, tiling=tiling, resident=resident).total for n_rows in range(1, 9000, 53)]
    assert told == sorted(told)
    assert told == [costs(n_rows, n_cols, tiling=tiling, resident=resident).total for n_rows in range(1, 9000, 53)]
    for rows in (100, 4000):
        told = [costs(rows, n_cols, dtype, tiling, resident).total for dtype in ("bfloat16", "float32")]
        assert told == sorted(told)


def test_a_launch_takes_no_less_than_its_bytes_and_the_sum_of_its_terms():
    problems, device = problems_of()
    bandwidth = device.hardware.memory_bandwidth_gb_per_s
    for problem in problems:
        operands = 3 if problem.backward else 2
        floor = operands * problem.n_rows * problem.n_cols * problem.element_bytes / bandwidth / 1e3
        for read, tiling, told in ranked(problem, device)[::24]:
            used = estimated(read, tiling, device)
            resident = device.vendor.occupancy(used, device.hardware).programs_per_multiprocessor
            found = cost(read, tiling, read.tiles(tiling.tile_rows) * tiling.splits, resident, device)
            assert found.total == pytest.approx(sum(dataclasses.astuple(found)))
            assert min(dataclasses.astuple(found)) >= 0
            assert floor < found.total <= told.total, (read, tiling)


def test_the_text_gives_the_terms_that_count_the_largest_first():
    found = dataclasses.replace(nothing(), start=4.0, moving=20.04, again=0.04)
    assert str(found) == "24.1 us: moving 20.0, start 4.0"


def nothing():
    """Returns terms of which none takes any time."""
    return Terms(**{each.name: 0.0 for each in dataclasses.fields(Terms)})


@pytest.mark.parametrize(
    ("n_rows", "resident", "beside", "waves"), [(66, 3, 1, 1), (264, 3, 2, 1), (396, 3, 3, 1), (397, 3, 3, 2), (4000, 8, 8, 4)]
)
def test_programs_go_in_waves(n_rows, resident, beside, waves):
    """Checks the facts of one program for each row, on 132 multiprocessors with 3,350 bytes in a nanosecond."""
    device, size = Device.from_profile(H100), n_rows * 1024 * 2 * 2
    found = facts(contiguous_problem(n_rows, 1024, "bfloat16"), TILES, n_rows, resident, device)
    assert (found.programs, found.beside, found.waves) == (n_rows / 132, beside, waves)
    assert found.bytes_us == pytest.approx(size / 3.35e6)
    assert (found.each, found.exponents, found.again_us, found.spilled_us, found.pieces, found.steps) == (8, 1024, 0, 0, 0, 0)
    assert found.requests == 2 * 1024 * 2 / 128, "whole lines of both operands"


@pytest.mark.parametrize("name", COST_NUMBERS)
def test_every_number_counts_and_has_a_sign(name):
    device = Device.from_profile(H100)
    numbers = device.profile.launch.cost
    launches = [
        (contiguous_problem(2**16, 64, "float32"), Tiling(8, 8, 1, 1, blocks=8)),
        (contiguous_problem(512, 16384, "float32"), Tiling(1, 1024, 4, 1, splits=8, blocks=2)),
        (contiguous_problem(512, 2**17, "float32"), Tiling(1, 4096, 8, 1, splits=8, blocks=4, held=False)),
        (replace(contiguous_problem(2**16, 99, "float32"), unaligned=True, vector=4), Tiling(4, 128, 4, 1)),
        (Problem(4096, 4096, "float32", "float32", 4, inner=1024), Tiling(8, 512, 8, 1, splits=8)),
    ]
    more = msgspec.structs.replace(numbers, **{name: 2 * getattr(numbers, name)})
    changes = []
    for problem, tiling in launches:
        given = facts(problem, tiling, problem.tiles(tiling.tile_rows) * tiling.splits, 2, device, 16)
        changes.append(terms(given, more).total - terms(given, numbers).total)
    assert any(changes)
    assert all(change <= 0 if name in FASTER else change >= 0 for change in changes)


def test_programs_of_a_multiprocessor_take_turns_in_its_units():
    """One wave of two programs and of eight: what each adds up and asks for is done one after the other."""
    device = Device.from_profile(H100)
    given = facts(contiguous_problem(264, 1024, "float32"), TILES, 264, 8, device)
    two, eight = (terms(given._replace(beside=beside, waves=1), device.profile.launch.cost).threads for beside in (2, 8))
    alone = terms(given._replace(beside=1, waves=1, sums=0, requests=0, exponents=0), device.profile.launch.cost).threads
    assert eight - alone == pytest.approx(4 * (two - alone))


def test_threads_of_scattered_rows_have_neighbouring_columns():
    """Triton does not see that they are neighbours, unless a vector of them is: so more threads add up a wide block."""
    odd, even = (
        next(each for each in readings(problem, H100_DEVICE) if each.scattered)
        for problem in (problem_on(Cell(f"across {inner}", 2**16 * inner, 64, "float32"), H100_DEVICE) for inner in (3, 4))
    )
    sums = {
        (problem.inner, width): facts(problem, Tiling(16, width, 2, 1, blocks=64 // width), 1, 1, H100_DEVICE).sums
        for problem in (odd, even)
        for width in (8, 64)
    }
    assert sums[3, 64] > 8 * sums[3, 8]
    assert sums[4, 64] < 8 * sums[4, 8]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_programs_share_a_row_by_any_number_of_blocks_of_four_elements_a_thread(dtype):
    found = {
        each.blocks
        for each in grid(contiguous_problem(48, 129280, dtype), H100_DEVICE)
        if each.is_shared and each.held and each.width == 4 * 32 * each.num_warps
    }
    assert found >= {4, 6, 8, 12, 16}


def test_no_program_and_no_numbers():
    with pytest.raises(PlanError, match="no program is resident"):
        costs(resident=0)
    device = Device.from_profile("ascend/910b3")
    assert cost(contiguous_problem(64, 64, "float32"), TILES, 64, 1, device) is None


def test_launches_of_the_grid_have_a_kernel_each_once_and_in_one_order():
    for product in (H100, "amd/mi300x", "intel/max-1550"):
        problems, device = problems_of(product)
        for problem in (way for each in problems for way in readings(each, device)):
            found = grid(problem, device)
            assert found == grid(problem, device)
            assert len(set(found)) == len(found)
            for tiling in found:
                assert is_possible(tiling)
                assert KernelSpec.of(problem, tiling)


def test_more_multiprocessors_are_no_slower():
    few, many = (with_hardware(H100, multiprocessor_count=count) for count in (66, 132))
    problem = contiguous_problem(4096, 4096, "float32")
    assert ranked(problem, many)[0].us < ranked(problem, few)[0].us


def test_it_ranks_measured_launches():
    """Checks the launches of the least cost against the fastest that were timed."""
    found = {}
    for row in csv.DictReader(LAUNCHES.read_text().splitlines()):
        sizes = {name: int(row[name]) for name in ("tile_rows", "width", "num_warps", "splits", "blocks")}
        tiling = Tiling(**sizes, num_stages=1, held=row["held"] == "1")
        shape = int(row["n_rows"]), int(row["n_cols"]), row["dtype"], row["backward"] == "1"
        told = costs(*shape[:3], tiling, int(row["resident"]), int(row["spilled_bytes_per_thread"]), backward=shape[3])
        found.setdefault(shape, []).append((told.total, float(row["us"])))
    regrets = sorted(min(each)[1] / min(us for _, us in each) for each in found.values())
    assert regrets[len(regrets) // 2] < 1.02
    assert math.prod(regrets) ** (1 / len(regrets)) < 1.025
