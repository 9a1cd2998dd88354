"""Operands by their strides alone: the rows that a kernel would find are those that torch means."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from portable_softmax.planning.lines import SHORTEST_LINE, lines_of
from portable_softmax.planning.problem import Scores, problem_of


def view(sizes, order, steps, cut):
    """A tensor of numbers that say where they lie: permuted, of every so manieth element, cut at its ends."""
    whole = torch.arange(math.prod(size * step + cut for size, step in zip(sizes, steps, strict=True)))
    x = whole.view([size * step + cut for size, step in zip(sizes, steps, strict=True)])
    x = x[tuple(slice(0, size * step, step) for size, step in zip(sizes, steps, strict=True))]
    return x.permute(order)


def rows_of(lines, operand):
    """Where each row's elements lie, [rows, columns], in the kernel's order."""
    sizes = [size for size, _ in lines.levels] + [lines.length]
    *outer, line = [strides[operand] for _, strides in lines.levels]
    strides = [*outer, line, 1]
    addresses = sum(
        (torch.arange(size) * stride).view([-1 if at == axis else 1 for at in range(4)])
        for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True))
    )
    if lines.across:
        addresses = addresses.transpose(2, 3)
    return addresses.reshape(-1, addresses.shape[-1])


@st.composite
def layouts(draw):
    rank = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 5, 16, 17]), min_size=rank, max_size=rank))
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 2]), min_size=rank, max_size=rank))
    return view(sizes, draw(st.permutations(range(rank))), steps, draw(st.sampled_from([0, 0, 3])))


@settings(max_examples=400, deadline=None)
@given(x=layouts(), dim=st.integers(0, 3), scattered=st.booleans(), backward=st.booleans())
def test_the_rows_found_are_the_rows_meant(x, dim, scattered, backward):
    dim %= x.dim()
    y = torch.arange(x.numel()).view(x.shape)
    operands = (y, x, y) if backward else (y, x)
    lines = lines_of(x.shape, dim, [each.stride() for each in operands], scattered)
    if lines is None:
        return
    assert all(size >= 1 for size, _ in lines.levels)
    assert {len(strides) for _, strides in lines.levels} == {len(operands)}
    meant = [tensor.movedim(dim, -1).reshape(-1, x.shape[dim]) for tensor in operands]
    found = [rows_of(lines, operand) + tensor.storage_offset() for operand, tensor in enumerate(operands)]
    order = torch.argsort(found[0][:, 0])  # of the result, where each element has a place of its own
    assert torch.equal(order, torch.arange(len(order)))
    for rows, expected in zip(found, meant, strict=True):
        assert torch.equal(rows[order], expected)  # in one order in all operands, so results go where they belong
    if not scattered:
        assert lines.depth == 1 if not lines.across else lines.depth < 3 and lines.length >= SHORTEST_LINE


@settings(max_examples=400, deadline=None)
@given(x=layouts(), dim=st.integers(0, 3), causal=st.booleans())
@example(x=view([2, 17, 1], [0, 2, 1], [1, 1, 1], 3), dim=2, causal=True)  # one row, and its elements are apart
def test_rows_of_scores_keep_their_order_and_their_numbers(x, dim, causal):
    causal = causal and x.dim() > 1
    dim = x.dim() - 1 if causal else dim % x.dim()
    lines = lines_of(x.shape, dim, [x.stride()] * 2, mask=[0] * x.dim(), causal=causal)
    if lines is None:
        return
    rows = rows_of(lines, 1) + x.storage_offset()
    assert torch.equal(rows, x.movedim(dim, -1).reshape(-1, x.shape[dim]))
    problem = problem_of(lines, "float32", "float32", scores=Scores(causal="upper_left" if causal else None, sink=True))
    assert (problem.n_rows, problem.n_cols, problem.tiles(1)) == (*rows.shape, len(rows))
    assert not causal or problem.neighbours == x.shape[-2], "a row's number is that in its matrix"


HEADS = torch.empty(2, 20, 4, 8).transpose(1, 2)


@pytest.mark.parametrize(
    ("x", "dim", "depth", "across"),
    [
        (torch.empty(5, 7), 1, 1, False),
        (torch.empty(5, 9)[:, :7], 1, 1, False),
        (torch.empty(3, 9, 7)[:, :5], 2, 2, False),
        (HEADS, 3, 3, False),
        (torch.empty(7, 5), 0, 1, True),
        (torch.empty(3, 7, 5), 1, 2, True),
        (torch.empty(2, 3, 7, 5).transpose(0, 1), 2, 3, True),
        (torch.empty(3, 7, 4, 9)[..., :5], 1, None, None),  # columns of the result lie within its matrices
        (torch.empty(3, 7, 1, 1), 1, 1, False),
        (torch.empty(()), 0, 1, False),
        (torch.empty(4, 1).expand(4, 9), 0, None, None),  # a column of one element, which all columns are
        (torch.empty(5, 7).t(), 0, None, None),
        (torch.empty(3, 5, 7).permute(0, 2, 1), 2, None, None),
        (torch.empty(5, 14)[:, ::2], 1, None, None),
        (torch.empty(3, 2, 20, 4, 8).permute(1, 3, 0, 2, 4), 4, None, None),  # four levels
    ],
)
def test_what_is_taken_as_it_lies(x, dim, depth, across):
    lines = lines_of(x.shape, dim, [torch.empty(x.shape).stride(), x.stride()], True)
    assert (lines and (lines.depth, lines.across)) == (None if depth is None else (depth, across))
