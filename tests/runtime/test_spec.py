"""A KernelSpec holds all that a kernel is compiled for; only the last test runs one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.specialization import KernelSpec

SIZES = st.integers(1, 300)


def spec(n_cols, width, splits=1, blocks=1, held=True, **kind):
    problem = Problem(5, n_cols, "float32", "float32", 4 if kind.get("unaligned") else 1, **kind)
    return KernelSpec.of(problem, Tiling(1, width, splits=splits, blocks=blocks, held=held))


@given(SIZES, SIZES, st.integers(1, 20))
def test_a_tiling_that_does_not_cover_its_rows_is_refused(n_cols, tile_cols, splits):
    if tile_cols * splits < n_cols:
        with pytest.raises(ValueError, match=rf"covers {tile_cols * splits} columns of {n_cols}; give it more"):
            spec(n_cols, tile_cols, splits)
    else:
        assert spec(n_cols, tile_cols, splits).padded == (tile_cols * splits != n_cols)


@given(st.integers(1, 40), st.integers(1, 20), st.integers(2, 8))
def test_a_tile_with_a_block_past_its_rows_is_refused(n_cols, block, blocks):
    """Only the last block has a mask: others would read and write what lies behind a row."""
    n_cols = min(n_cols, block * blocks)
    if (blocks - 1) * block > n_cols:
        with pytest.raises(ValueError, match=f"has whole blocks past the {n_cols} columns; give it fewer"):
            spec(n_cols, block, blocks=blocks)
    else:
        assert spec(n_cols, block, blocks=blocks).padded == (n_cols < block * blocks)
    assert spec(n_cols, block, 2, blocks), "all blocks of splits have masks"


@given(SIZES, SIZES)
def test_tiles_of_long_rows_are_masked_but_where_all_end_with_them(n_cols, tile_cols):
    given = spec(n_cols, tile_cols, held=False)
    assert given.padded == (n_cols % tile_cols != 0)
    assert given == spec(n_cols + 5 * tile_cols, tile_cols, blocks=7, held=False), "the same kernel, however long rows are"


@given(st.integers(8, 300), SIZES, st.sampled_from(({"held": True}, {"held": False}, {"splits": 7})))
def test_unaligned_rows_are_masked(n_cols, more, cut):
    assert spec(n_cols, n_cols + more, unaligned=True, **cut).padded
