"""Computed launches keep their promises for every problem on every device, without a compiler."""

import itertools
from dataclasses import replace

import pytest
from offline import H200, PRODUCTS, every_launch, foremost
from random_plans import random_problems

from portable_softmax import Device
from portable_softmax.planning.budget import MOST_SPLITS
from portable_softmax.planning.grid import MOST_BLOCKS, MOST_ELEMENTS
from portable_softmax.planning.lines import lines_of
from portable_softmax.planning.log_probs import LogProbs
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.request import contiguous_problem, problem_of
from portable_softmax.runtime.kernel_form import config_of
from portable_softmax.runtime.specialization import KernelSpec

COUNT = 60  # random problems of each product


def assert_triton_has(tiling, hardware):
    """Powers of two, tiles of at most 2**20 elements, programs of at most as many threads as there may be."""
    assert {each.bit_count() for each in (tiling.tile_rows, tiling.width, tiling.num_warps or 1)} == {1}, tiling
    assert tiling.tile_rows * (tiling.tile_cols if tiling.held else tiling.width) <= MOST_ELEMENTS
    assert tiling.blocks <= MOST_BLOCKS or not tiling.held
    assert (tiling.num_warps is None) == (hardware.warp_size is None)
    assert not tiling.num_warps or tiling.num_warps * hardware.warp_size <= hardware.max_threads_per_program


def assert_covers(tiling, problem):
    """No split is empty."""
    assert (tiling.strategy == "shared") == (tiling.splits > 1)
    if tiling.strategy == "online":
        assert tiling.splits == 1
    else:
        assert (tiling.splits - 1) * tiling.tile_cols < problem.width <= tiling.splits * tiling.tile_cols
        assert tiling.splits <= MOST_SPLITS


@pytest.mark.parametrize("product", foremost(PRODUCTS))
def test_launches_of_random_problems(product):
    """Each is one that Triton has, covers a row, has the lanes of its exchange, and is there once."""
    device = Device.from_profile(product)
    for problem in itertools.islice(random_problems(device, seed=1), COUNT):
        found = every_launch(problem, device)
        assert len(set(found)) == len(found) > 0, problem
        for problem, tiling in found:
            assert_triton_has(tiling, device.hardware)
            assert_covers(tiling, problem)
            if tiling.splits > 1:
                assert tiling.splits <= config_of(KernelSpec.of(problem, tiling), device).WORDS_READ


def tilings_of(problem, device):
    """Returns the launches that are weighed in their order, without what depends on the most programs of a launch."""
    return [replace(tiling, walk=False) for _, tiling in every_launch(problem, device)]


@pytest.mark.parametrize("product", foremost(PRODUCTS))
def test_batch_invariant_rows_are_cut_by_their_length_alone(product):
    device = Device.from_profile(product)
    lengths = 1, 20, 64, 500, 781, 4096, 16384, 20_480, 20_484, 32_768, 32_769, 50_257, 10**6
    for n_cols, (backward, dtype) in itertools.product(lengths, ((False, "float16"), (True, "float32"))):
        cut = [
            tilings_of(contiguous_problem(n_rows, n_cols, dtype, backward=backward, batch_invariant=True), device)
            for n_rows in (1, 132, 2**31)
        ]
        assert cut[0] == cut[1] == cut[2]


def test_batch_invariant_rows_side_by_side_are_cut_by_their_length_alone():
    device = Device.from_profile(H200)
    for n_cols in (20, 4096, 50_000, 10**6):
        cut = [
            tilings_of(Problem(n_rows, n_cols, "float32", "float32", 4, batch_invariant=True, inner=2**9), device)
            for n_rows in (2**9, 2**12, 2**20)
        ]
        assert cut[0] == cut[1] == cut[2]


def test_batch_invariant_log_probabilities_are_cut_as_the_log_softmax_is():
    """Their bits are equal only then."""
    device = Device.from_profile(H200)
    for n_cols in (1000, 12_000, 128_256):
        lines = lines_of((7, n_cols), 1, [(n_cols, 1)] * 2, True)
        kind = {"form": "log_softmax", "batch_invariant": True}
        softmax, tokens = (problem_of(lines, "bfloat16", "float32", log_probs=each, **kind) for each in (None, LogProbs()))
        assert tilings_of(tokens, device) == tilings_of(softmax, device)
