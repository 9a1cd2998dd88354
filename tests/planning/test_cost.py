"""A launch's expected time is the sum of its terms, follows its facts, and ranks measured launches."""

import csv
import itertools
import math
from pathlib import Path

import msgspec
import pytest
from offline import with_hardware

from portable_probe.tune.launches import SOFTMAXES, softmax_problem
from portable_softmax import Device
from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.schema import COST_NUMBERS
from portable_softmax.planning.cost import Work, cost, limits_of
from portable_softmax.planning.operands import contiguous_problem
from portable_softmax.planning.planner import ranked
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.tiling import Tiling, softmax_work

H100 = "nvidia/h100-sxm"
H100_DEVICE = Device.from_profile(H100)
NUMBERS = H100_DEVICE.profile.launch.cost
LAUNCHES = Path(__file__).parents[1] / "support" / "recorded" / "launches_h100.csv"
TILES = Tiling(1, 1024, 4)
SPLITS = Tiling(1, 1024, 4, splits=8)
TWICE = Tiling(1, 256, 4, in_registers=False)
FASTER = {"bandwidth", "l2_bandwidth"}  # numbers of which more is less time


def work_of(problem, tiling, resident=8, spilled=0, device=H100_DEVICE):
    """Returns what a launch of one program for each tile does, and the device's limits."""
    limits = limits_of(device)
    programs = problem.tiles(tiling.tile_rows) * tiling.splits
    return softmax_work(problem, tiling, limits, programs, resident, spilled), limits


def costs(n_rows=4096, n_cols=1024, dtype="bfloat16", tiling=TILES, resident=8, spilled=0, **kind):
    """Returns the terms of a launch of contiguous rows on an H100."""
    return cost(*work_of(contiguous_problem(n_rows, n_cols, dtype, **kind), tiling, resident, spilled), NUMBERS)


def problems_of(product=H100):
    """Returns problems of all classes, in both types and directions, as the device reads them; and the device."""
    device = Device.from_profile(product)
    kinds = itertools.product(SOFTMAXES, ("float32", "bfloat16"), (False, True))
    return [softmax_problem(*kind, device) for kind in list(kinds)[::3]], device


SHORT = {"n_rows": 2**18, "n_cols": 64}
FEW_ROWS = {"n_rows": 8, "n_cols": 2048}
DEARER = {
    "rows": ({"n_rows": 4096}, {"n_rows": 8192}),
    "bytes of an element": ({"dtype": "bfloat16"}, {"dtype": "float32"}),
    "spills": ({"spilled": 0}, {"spilled": 64}),
    "one program after the other": ({"resident": 8}, {"resident": 1}),
    "read twice": ({"tiling": TILES}, {"tiling": TWICE}),
    "a program for each row": ({**SHORT, "tiling": Tiling(16, 64, 4)}, {**SHORT, "tiling": Tiling(1, 64, 1)}),
    "lines requested again": ({**SHORT, "tiling": Tiling(16, 64, 4)}, {**SHORT, "tiling": Tiling(16, 8, 4, blocks=8)}),
    "an exchange that nothing needs": (
        {**FEW_ROWS, "tiling": Tiling(1, 2048, 8)}, {**FEW_ROWS, "tiling": Tiling(1, 256, 1, splits=8)},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("cheaper", "dearer"), DEARER.values(), ids=DEARER)
def test_what_costs_more(cheaper, dearer):
    assert costs(**cheaper).total < costs(**dearer).total


def test_only_launches_that_exchange_wait_for_other_programs():
    problems = {
        "softmax": (contiguous_problem(4096, 8192, "bfloat16"), SPLITS, True),
        "log-probabilities": (contiguous_problem(4096, 8192, "bfloat16", form="token_log_probs"), SPLITS, True),
        "their gradient": (contiguous_problem(4096, 8192, "bfloat16", form="token_log_probs", backward=True), SPLITS, False),
        "two launches": (contiguous_problem(4096, 8192, "bfloat16"), SPLITS._replace(two_launches=True), False),
        "one program a row": (contiguous_problem(4096, 1024, "bfloat16"), TILES, False),
    }
    for name, (problem, tiling, exchanges) in problems.items():
        assert (cost(*work_of(problem, tiling), NUMBERS).exchange > 0) == exchanges, name


@pytest.mark.parametrize("kernel", ["softmax", "row kernel"])
def test_what_the_l2_cache_has_lost_is_read_again_from_memory(kernel):
    """Half of it is lost where programs move as many bytes between the two reads as the cache holds."""

    def memory(l2_bytes, twice=True):
        device = with_hardware(H100, l2_cache_bytes=l2_bytes)
        if kernel == "softmax":
            problem, tiling = contiguous_problem(4096, 65536, "bfloat16"), TWICE if twice else TILES
            return cost(*work_of(problem, tiling, device=device), NUMBERS).memory
        work = Work(row=2**18, again=2**17 * twice, element=2, row_operands=3, elements=65536, vector=8, blocks=64)
        work = work._replace(turns=4096, programs=4096, resident=8, warps=4)
        return cost(work, limits_of(device), NUMBERS).memory

    once, between = memory(2**40, twice=False), 65536 * 4 * 8 * 132
    assert memory(2**40) == pytest.approx(once, rel=1e-3)
    assert memory(1) == pytest.approx(1.5 * once, rel=1e-3)
    assert memory(between) == pytest.approx(1.25 * once, rel=1e-3)


def test_a_launch_takes_no_less_than_its_bytes_and_the_sum_of_its_terms():
    problems, device = problems_of()
    bandwidth = device.hardware.memory_bandwidth_gb_per_s
    for problem in problems:
        operands = 3 if problem.backward else 2
        floor = operands * problem.n_rows * problem.n_cols * DTYPE_BYTES[problem.y_dtype] / bandwidth / 1e3
        for launch in ranked(problem, device)[::24]:
            terms = cost(*work_of(launch.problem, launch.tiling, launch.occupancy.programs_per_multiprocessor), NUMBERS)
            assert terms.total == pytest.approx(sum(terms))
            assert min(terms) >= 0
            assert floor < terms.total <= launch.us, launch


LAUNCHES_OF_ALL_TERMS = [
    work_of(contiguous_problem(2**16, 64, "float32"), Tiling(8, 8, 1, blocks=8), 2, 16),
    work_of(contiguous_problem(512, 16384, "float32"), Tiling(1, 1024, 4, splits=8, blocks=2), 2, 16),
    work_of(Problem(4096, 4096, "float32", "float32", 4, inner=1024), Tiling(8, 512, 8, splits=8), 2, 16),
    work_of(contiguous_problem(2**22, 4, "float32"), Tiling(1, 4, 1), 32),
    *(
        (Work(4096, 8, 0, 4, 2, 9, 1, turns=4096, elements=512, warps=4)._replace(**more), limits_of(H100_DEVICE))
        for more in (
            {"programs": 1056, "resident": 8, "vector": 4, "ahead": 1},
            {"programs": 4096, "resident": 2, "again": 4096, "blocks": 2, "launches": 2},
            {"programs": 4096, "resident": 8, "vector": 4, "clocks": 2000},
            {"programs": 4096, "resident": 1, "vector": 4, "clocks": 2000, "chained": 9},
        )
    ),
]


@pytest.mark.parametrize("name", COST_NUMBERS)
def test_every_number_counts_and_has_a_sign(name):
    more = msgspec.structs.replace(NUMBERS, **{name: 2 * getattr(NUMBERS, name)})
    changes = [round(cost(*work, more).total - cost(*work, NUMBERS).total, 6) for work in LAUNCHES_OF_ALL_TERMS]
    assert any(changes)
    assert all(change <= 0 if name in FASTER else change >= 0 for change in changes)


@pytest.mark.parametrize("name", [*{*Work._fields} - {"adjacent", "loaded", "loads", "programs", "resident", "warps"}])
def test_all_work_counts_and_has_a_sign(name):
    """Programs beside others hide waiting, and wait for each other."""
    changes = []
    for work, limits in LAUNCHES_OF_ALL_TERMS:
        more = work._replace(**{name: 2 * getattr(work, name) or 1})
        changes.append(round(cost(more, limits, NUMBERS).total - cost(work, limits, NUMBERS).total, 6))
    assert any(changes)
    assert max(changes) <= 0 if name in ("ahead", "steps", "vector") else min(changes) >= 0, changes


def test_it_ranks_measured_launches():
    """Checks the launches of the least cost against the fastest that were timed."""
    times = {}
    for row in csv.DictReader(LAUNCHES.read_text().splitlines()):
        sizes = {name: int(row[name]) for name in ("tile_rows", "width", "num_warps", "splits", "blocks")}
        tiling = Tiling(**sizes, in_registers=row["held"] == "1")
        shape = int(row["n_rows"]), int(row["n_cols"]), row["dtype"], row["backward"] == "1"
        terms = costs(*shape[:3], tiling, int(row["resident"]), int(row["spilled_bytes_per_thread"]), backward=shape[3])
        times.setdefault(shape, []).append((terms.total, float(row["us"])))
    regrets = sorted(min(launches)[1] / min(us for _, us in launches) for launches in times.values())
    assert regrets[len(regrets) // 2] < 1.02
    assert math.prod(regrets) ** (1 / len(regrets)) < 1.025
