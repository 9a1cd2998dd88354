"""Computed launches keep their promises for every problem on every device, without a compiler."""

import dataclasses
import itertools

import pytest
from offline import GPUS, H200, PRODUCTS, every_candidate, foremost, light, planned, read_problem
from portable_softmax.planning.candidates import MOST_BLOCKS, MOST_ELEMENTS, candidates
from portable_softmax.planning.numbers import numbers_of
from portable_softmax.planning.rows import MOST_SPLITS
from random_plans import random_problems

from portable_softmax import Device
from portable_softmax.planning.planner import choose
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.reading import as_read

COUNT = 200  # random problems of each product


def problems(product):
    """Yields random problems as the product's launches read them."""
    device = Device.from_profile(product)
    for problem in itertools.islice(random_problems(device, seed=1), COUNT):
        yield as_read(problem, device)


@pytest.mark.parametrize("product", foremost(PRODUCTS))
def test_triton_has_every_tile(product):
    """Powers of two, tiles of at most 2**20 elements, programs of at most as many threads as there may be."""
    hardware = (device := Device.from_profile(product)).hardware
    for problem in problems(product):
        found = every_candidate(problem, device)
        assert found
        for tiling in found:
            assert {each.bit_count() for each in (tiling.tile_rows, tiling.width, tiling.num_warps or 1)} == {1}, tiling
            assert tiling.tile_rows * (tiling.tile_cols if tiling.held else tiling.width) <= MOST_ELEMENTS
            assert tiling.blocks <= MOST_BLOCKS or not tiling.held
            assert (tiling.num_warps is None) == (hardware.warp_size is None)
            if tiling.num_warps:
                assert tiling.num_warps * hardware.warp_size <= hardware.max_threads_per_program


@pytest.mark.parametrize("product", foremost(PRODUCTS))
def test_tiles_and_splits_cover_a_row_and_no_split_is_empty(product):
    device = Device.from_profile(product)
    for problem in problems(product):
        for tiling in every_candidate(problem, device):
            if tiling.strategy != "online":
                assert (tiling.splits - 1) * tiling.tile_cols < problem.width <= tiling.splits * tiling.tile_cols
                assert tiling.splits <= MOST_SPLITS or not tiling.held or problem.layout != "rows"
            else:
                assert tiling.splits == 1
            assert (tiling.strategy == "shared") == (tiling.splits > 1 or problem.folded > 1)


@pytest.mark.parametrize("product", foremost(PRODUCTS))
def test_no_launch_is_a_candidate_twice(product):
    device = Device.from_profile(product)
    for problem in problems(product):
        found = [(each.tiling, each.spilled_bytes) for each in candidates(problem, device)]
        assert len(set(found)) == len(found), problem


@pytest.mark.parametrize("profile", foremost(GPUS))
def test_a_tile_takes_at_most_half_of_the_registers_for_an_operand_and_for_rows_that_follow_each_other_for_all(profile):
    half = (device := Device.from_profile(profile)).hardware.registers_per_multiprocessor // 2
    for problem in problems(profile):
        operands = 2 if problem.backward and problem.layout == "rows" else 1
        held = operands * problem.n_cols * (1 if problem.layout == "rows" else problem.registers_per_element)
        for tiling in every_candidate(problem, device):
            assert tiling.strategy != "tile" or tiling.tile_rows * held <= half, (problem, tiling)


@pytest.mark.parametrize("profile", foremost(GPUS))
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("backward", [False, True])
def test_short_rows_give_each_thread_its_words(profile, dtype, backward):
    """Rows that share a tile make at most so many words a thread, and twice as many would make more."""
    device = Device.from_profile(profile)
    threads = device.hardware.partitions_per_multiprocessor * device.hardware.warp_size
    for n_cols in range(1, 257):
        problem = read_problem(10**7, n_cols, dtype, device, backward=backward)
        if problem.unaligned:
            continue  # an edge takes a block too
        numbers, _ = numbers_of(problem, device)
        words = numbers.words_backward / 2 if backward else numbers.words_forward
        row = max(-(-problem.n_cols * problem.element_bytes // 4), -(-problem.n_cols // problem.vector))
        tiling = every_candidate(problem, device)[0]
        assert (tiling.strategy, tiling.num_warps * device.hardware.warp_size) == ("tile", threads)
        assert tiling.tile_rows * row <= words * threads < 2 * tiling.tile_rows * row


@pytest.mark.parametrize("profile", foremost(GPUS))
def test_few_short_rows_keep_half_of_the_programs_that_a_multiprocessor_holds(profile):
    """Rather than tiles of more rows."""
    hardware = Device.from_profile(profile).hardware
    of_warps = hardware.max_warps_per_multiprocessor // hardware.partitions_per_multiprocessor
    half = hardware.multiprocessor_count * (hardware.max_programs_per_multiprocessor or of_warps) // 2
    for n_rows, n_cols in itertools.product((1, 64, 1000, 5000, 20_000, 100_000), (1, 7, 33, 100, 128, 256)):
        tile_rows = planned(profile, n_rows, n_cols).tiling.tile_rows
        assert tile_rows == 1 or n_rows / (tile_rows // 2) > half, "half as many rows would be enough"
        assert tile_rows == 1 or n_rows > half


@pytest.mark.parametrize("product", foremost(PRODUCTS))
def test_batch_invariant_rows_are_cut_by_their_length_alone(product):
    device = Device.from_profile(product)
    lengths = 1, 20, 64, 500, 781, 4096, 16384, 20_480, 20_484, 32_768, 32_769, 50_257, 10**6
    for n_cols, backward, dtype in itertools.product(lengths, (False, True), ("float32", "float16")):
        cut = [
            every_candidate(read_problem(n_rows, n_cols, dtype, device, backward=backward, batch_invariant=True), device)
            for n_rows in (1, 132, 10**6, 2**31)
        ]
        assert cut[0] == cut[1] == cut[2] == cut[3]


@pytest.mark.parametrize("kind", [{"inner": 2**9}, {"inner": 2**9, "transposed": True}, {"transposed": True}], ids=str)
def test_batch_invariant_rows_side_by_side_are_cut_by_their_length_alone(kind):
    device = Device.from_profile(H200)
    for n_cols in (20, 4096, 50_000, 10**6):
        cut = [
            every_candidate(Problem(n_rows, n_cols, "float32", "float32", 4, batch_invariant=True, **kind), device)
            for n_rows in (2**9, 2**12, 2**20)
        ]
        assert cut[0] == cut[1] == cut[2]


@pytest.mark.parametrize("product", foremost(PRODUCTS))
def test_float64_is_never_shared(product):
    """A word of the exchange holds a number of 32 bits."""
    device = Device.from_profile(product)
    for problem in problems(product):
        double = as_read(
            dataclasses.replace(problem, y_dtype="float64", vector=1, unaligned=False, paired=False, lines=None), device
        )
        assert {tiling.splits for tiling in every_candidate(double, device)} == {1}


@pytest.mark.parametrize("product", foremost(PRODUCTS))
def test_steps_of_sharded_rows_take_whole_tiles_alone(product):
    """Their kernels go tile by tile, and know neither splits nor blocks, nor numbers by place."""
    device = Device.from_profile(product)
    columns, rows = (20, 781, 2000, 16384, 131_072), ((32, 1), (32, 32), (4096, 32), (64_000, 64))
    for step, (n_rows, inner), n_cols, dtype in itertools.product(
        ("reduce", "map"), rows, columns, {"float32", "float16"} & set(device.profile.dtypes)
    ):
        problem = Problem(n_rows, n_cols, dtype, dtype, 1 if inner < 64 else 4, inner=inner, step=step)
        assert all(each.splits == each.blocks == 1 and not each.is_shared for each in every_candidate(problem, device))
        assert any(step in reason for reason in choose(problem, device, light).reasons)


@pytest.mark.parametrize(
    ("n_rows", "n_cols", "kind", "said"),
    [
        (10**6, 20, {}, "{rows} rows of 20 words give 128 threads {each:.2g} words each of an operand"),
        (4096, 4096, {}, "a row of 4096 columns fits 25% of the register file"),
        (4096, 50_257, {"dtype": "float64"}, "32 elements for each thread"),
        (1, 32_768, {}, "few rows: splits of half the size keep more programs resident"),
    ],
)
def test_the_first_reason_says_how_a_launch_was_computed(n_rows, n_cols, kind, said):
    plan = planned(H200, n_rows, n_cols, **kind)
    rows = plan.tiling.tile_rows
    assert plan.reasons[0] == f"computed for nvidia/h200: {said.format(rows=rows, each=rows * n_cols / 128)}"


@pytest.mark.parametrize(("n_cols", "cols"), [(640, 640), (8320, 9216), (1000, 1024), (8192, 8192), (20_000, 20_480)])
def test_a_row_in_blocks_ends_nearer_to_its_end_than_a_power_of_two(n_cols, cols):
    found = planned(H200, 4096, n_cols).tiling
    assert found.splits * found.tile_cols == cols
