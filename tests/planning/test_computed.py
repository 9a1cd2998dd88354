"""Computed launches keep their promises on every device, without a compiler; rows that kernels find by strides are right."""

import itertools
import math

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from offline import PRODUCTS, choose, every_launch, foremost, light, with_hardware
from random_plans import random_problems

from portable_softmax import Device
from portable_softmax.planning.candidates import MAX_BLOCKS, MAX_SPLITS
from portable_softmax.planning.operands import MIN_LINE, contiguous_problem, problem_of
from portable_softmax.planning.problem import MAX_ROWS, Problem, Scores
from portable_softmax.planning.tiling import Tiling
from portable_softmax.runtime.kernel import kernels_of

H200 = Device.from_profile("nvidia/h200")
COUNT = 30  # random problems of each product
LENGTHS = (64, 781, 4096, 16384, 50_257, 10**5)  # rows are several in a tile, one, or shared


def assert_triton_has(tiling, hardware):
    """Powers of two, tiles of at most 2**20 elements, programs of at most as many threads as there may be."""
    assert {size.bit_count() for size in (tiling.tile_rows, tiling.width, tiling.num_warps or 1)} == {1}, tiling
    assert tiling.tile_rows * (tiling.split_cols if tiling.in_registers else tiling.width) <= 2**20
    assert tiling.blocks <= MAX_BLOCKS or not tiling.in_registers
    assert (tiling.num_warps is None) == (hardware.warp_size is None)
    assert not tiling.num_warps or tiling.num_warps * hardware.warp_size <= hardware.max_threads_per_program


def assert_covers(tiling, problem, config):
    """No split is empty, and what reaches past a row is masked."""
    assert (tiling.strategy == "split") == (tiling.splits > 1)
    if tiling.strategy == "two-pass":
        assert tiling.splits == 1
        return
    assert (tiling.splits - 1) * tiling.split_cols < problem.width <= tiling.splits * tiling.split_cols
    assert tiling.splits <= MAX_SPLITS
    blocks = -(-problem.width // tiling.width)  # as kernels cut them: the last splits have one more than the first
    starts = [split * (blocks // tiling.splits) + max(0, split - tiling.splits + blocks % tiling.splits)
              for split in range(tiling.splits + 1)]  # fmt: skip
    assert starts[0] == 0
    assert starts[-1] == blocks
    counts = [past - first for first, past in itertools.pairwise(starts)]
    assert max(counts) <= tiling.blocks
    assert min(counts) >= config.UNMASKED_BLOCKS
    if tiling.in_registers and not problem.scores.causal:
        assert all(
            (first + config.UNMASKED_BLOCKS) * tiling.width <= problem.n_cols or not config.UNMASKED_BLOCKS
            for first in starts[:-1]
        )
        assert min(min(counts), max(counts) - 1 - problem.whole_vectors) <= config.UNMASKED_BLOCKS


@pytest.mark.parametrize("product", foremost(PRODUCTS))
def test_launches_of_random_problems(product):
    """Tilings are Triton's, cover a row, have the lanes of their exchange, and differ; none is shared in place."""
    device = Device.from_profile(product)
    for problem in itertools.islice(random_problems(device, seed=1), COUNT):
        launches = every_launch(problem, device)
        assert len(set(launches)) == len(launches) > 0, problem
        for problem, tiling in launches:
            config = kernels_of(problem, tiling, device)[0].config
            assert_triton_has(tiling, device.hardware)
            assert_covers(tiling, problem, config)
            if tiling.splits > 1:
                assert tiling.splits <= config.SPLITS_READ
                assert not problem.overwrites, "a program may read again what another has overwritten"


def test_two_pass_rows_of_any_length_have_one_kernel():
    short, long = (
        kernels_of(Problem(5, n_cols, "float32", "float32", 1), Tiling(1, 16, in_registers=False), H200) for n_cols in (37, 117)
    )
    assert short == long


@pytest.mark.parametrize("profile", ["nvidia/h200", "amd/mi300x", "ascend/910b3"])
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    most_programs=st.none() | st.integers(1, 2**31),
    most_threads=st.none() | st.integers(1024, 2**32),
    n_rows=st.integers(1, 10_000) | st.integers(1, MAX_ROWS),
    n_cols=st.sampled_from(LENGTHS),
)
def test_programs_are_whole_groups_within_every_limit_and_walk_if_need_be(profile, most_programs, most_threads, n_rows, n_cols):
    device = with_hardware(profile, max_programs=most_programs, max_threads=most_threads)
    plan = choose(contiguous_problem(n_rows, n_cols, "float32"), device, light)
    threads = (plan.tiling.num_warps or 1) * (device.hardware.warp_size or 1)
    assert 0 < plan.num_programs <= (most_programs or plan.num_programs)
    assert plan.num_programs * threads <= (most_threads or plan.num_programs * threads)
    assert plan.num_programs % plan.tiling.splits == 0
    tiles = -(-n_rows // plan.tiling.tile_rows)
    assert plan.tiling.walk or plan.num_programs == plan.tiling.splits * tiles, "every tile is taken"


def view(sizes, order, steps, cut):
    """A tensor of numbers that say where they lie: permuted, of every so manieth element, cut at its ends."""
    whole = torch.arange(math.prod(size * step + cut for size, step in zip(sizes, steps, strict=True)))
    x = whole.view([size * step + cut for size, step in zip(sizes, steps, strict=True)])
    x = x[tuple(slice(0, size * step, step) for size, step in zip(sizes, steps, strict=True))]
    return x.permute(order)


FLOAT = "float32", "float32"


def rows_of(problem, operand):
    """Where each row's elements lie, [rows, columns], in the kernel's order."""
    addresses = sum(
        (torch.arange(size) * strides[operand]).view([-1 if at == axis else 1 for at in range(4)])
        for axis, (size, strides) in enumerate(problem.levels)
    )
    if problem.across:
        addresses = addresses.transpose(2, 3)
    return addresses.reshape(-1, addresses.shape[-1])


@st.composite
def layouts(draw):
    rank = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 5, 16, 17]), min_size=rank, max_size=rank))
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 2]), min_size=rank, max_size=rank))
    return view(sizes, draw(st.permutations(range(rank))), steps, draw(st.sampled_from([0, 0, 3])))


@settings(max_examples=200, deadline=None)
@given(x=layouts(), dim=st.integers(0, 3), scattered=st.booleans(), backward=st.booleans())
def test_rows_are_at_their_strides(x, dim, scattered, backward):
    dim %= x.dim()
    y = torch.arange(x.numel()).view(x.shape)
    operands = (y, x, y) if backward else (y, x)
    problem = problem_of(x.shape, dim, [operand.stride() for operand in operands], FLOAT, may_scatter=scattered)
    if problem is None:
        assert x.dim() != 2 or not x.is_contiguous() or x.shape[1] < MIN_LINE, "long lines are read where they are"
        return
    assert all(size >= 1 for size, _ in problem.levels)
    assert {len(strides) for _, strides in problem.levels} == {len(operands) + 1}, "of a mask too"
    meant = [tensor.movedim(dim, -1).reshape(-1, x.shape[dim]) for tensor in operands]
    offsets = [rows_of(problem, operand) + tensor.storage_offset() for operand, tensor in enumerate(operands)]
    order = torch.argsort(offsets[0][:, 0])  # of the result, where each element has a place of its own
    assert torch.equal(order, torch.arange(len(order)))
    for rows, expected in zip(offsets, meant, strict=True):
        assert torch.equal(rows[order], expected)  # in one order in all operands, so results go where they belong
    if not scattered:
        assert problem.depth < 3
        assert problem.depth == 1 or problem.inner >= MIN_LINE


@settings(max_examples=200, deadline=None)
@given(x=layouts(), dim=st.integers(0, 3), causal=st.booleans())
@example(x=view([2, 17, 1], [0, 2, 1], [1, 1, 1], 3), dim=2, causal=True)  # one row, and its elements are apart
def test_rows_of_scores_keep_their_order_and_their_numbers(x, dim, causal):
    causal = causal and x.dim() > 1
    dim = x.dim() - 1 if causal else dim % x.dim()
    scores = Scores(causal="upper_left" if causal else None, sink=True)
    problem = problem_of(x.shape, dim, [x.stride()] * 2, FLOAT, mask=[0] * x.dim(), scores=scores)
    if problem is None:
        return
    rows = rows_of(problem, 1) + x.storage_offset()
    assert torch.equal(rows, x.movedim(dim, -1).reshape(-1, x.shape[dim]))
    assert (problem.n_rows, problem.n_cols, problem.tiles(1)) == (*rows.shape, len(rows))
    assert not causal or problem.rows_per_matrix == x.shape[-2], "a row's number is that in its matrix"


HEADS = torch.empty(2, 20, 4, 8).transpose(1, 2)


@pytest.mark.parametrize(
    ("x", "dim", "depth", "across"),
    [
        (torch.empty(5, 7), 1, 1, False),
        (torch.empty(3, 9, 7)[:, :5], 2, 2, False),
        (HEADS, 3, 3, False),
        (torch.empty(7, 5), 0, 1, True),
        (torch.empty(2, 3, 7, 5).transpose(0, 1), 2, 3, True),
        (torch.empty(3, 7, 4, 9)[..., :5], 1, None, None),  # columns of the result lie within its matrices
        (torch.empty(()), 0, 1, False),
        (torch.empty(4, 1).expand(4, 9), 0, None, None),  # a column of one element, which all columns are
        (torch.empty(5, 7).t(), 0, None, None),
        (torch.empty(5, 14)[:, ::2], 1, None, None),
        (torch.empty(3, 2, 20, 4, 8).permute(1, 3, 0, 2, 4), 4, None, None),  # four levels
    ],
)
def test_what_is_read_without_a_copy(x, dim, depth, across):
    problem = problem_of(x.shape, dim, [torch.empty(x.shape).stride(), x.stride()], FLOAT)
    assert (problem and (problem.depth, problem.across)) == (None if depth is None else (depth, across))
