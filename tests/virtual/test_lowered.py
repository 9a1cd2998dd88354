"""The lint of lowered code: the package's kernels are clean, and a planted fault is found."""

from dataclasses import replace

import pytest
import triton
import triton.language as tl

from portable_softmax import current_device
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem, Scores
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.compiler import compile_for
from portable_softmax.runtime.specialization import KernelSpec
from virtual.lint import RULES, lint

TILINGS = {
    "tile 1 x 8192": Tiling(1, 8192),
    "tile 8 x 1024": Tiling(8, 1024),
    "tile 512 x 16": Tiling(512, 16),
    "online 1 x 4096": Tiling(1, 4096, held=False),
}
KINDS = [  # form, backward, loads of a tile and of each of the two passes over longer rows
    ("softmax", False, (1, 1)),
    ("softmax", True, (2, 2)),
    ("log_softmax", False, (1, 1)),
    ("log_softmax", True, (2, 1)),
]
STEPS = [  # what is done to x, loads of a tile and of each of the two passes over longer rows
    (Scores(scale="number", cap=30.0, causal="lower_right"), (1, 2)),
    (Scores(scale="rows", mask="bool", causal="upper_left"), (3, 5)),
    (Scores(temperature="rows", mask="float32", sink=True, zero_rows=True), (4, 6)),
]


def linted(machine, problem, tiling):
    compiled = compile_kernel(KernelSpec.of(problem, tiling), current_device(machine.index("Ascend910B3")))
    return lint(compiled.asm["ttadapter"])


@pytest.mark.each_value
@pytest.mark.parametrize("vector", [1, 2, 4, 8])
@pytest.mark.parametrize("dtypes", ["float32", "float16", "bfloat16", "float16 float32", "float32 bfloat16"])
@pytest.mark.parametrize("tiling", TILINGS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_plain_rows_move_whole_tiles(machine, kind, tiling, dtypes, vector):
    form, backward, loads = kind
    tile = TILINGS[tiling] if not backward else replace(TILINGS[tiling], width=TILINGS[tiling].width // 2)
    types = dtypes.split()[0], dtypes.split()[-1]
    found = linted(machine, Problem(64, min(64, tile.tile_cols), *types, vector, form=form, backward=backward), tile)
    reads = loads[1] + max(loads) if "online" in tiling else loads[0]
    assert (found.loads, found.stores, found.findings) == (reads, 1, frozenset())


@pytest.mark.each_value
@pytest.mark.parametrize("tiling", ["tile 8 x 1024", "online 1 x 4096"])
@pytest.mark.parametrize("kind", STEPS, ids=str)
def test_scores_move_whole_tiles(machine, kind, tiling):
    """They hide columns past the end by comparing numbers of columns, which is slow on A2; gradients do not."""
    (scores, loads), tile = kind, TILINGS[tiling]
    problem = Problem(64, 64, "bfloat16", "bfloat16", 4, scores=scores, mask_vector=4)
    found = linted(machine, problem, tile)
    gradient = linted(machine, replace(problem, backward=True), replace(tile, width=tile.width // 2))
    assert (found.loads, found.stores) == (loads["online" in tiling], 1)
    last = {"extract in a loop"} if scores.causal and "online" in tiling else set()  # the last column that a row shows
    assert found.findings <= {"int64 vector", "vector integer compare", *last}
    assert not gradient.findings


@triton.jit
def reversed_kernel(y, x, stride, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Loads columns that are not next to each other in memory."""
    cols = tl.arange(0, COLS)
    for row in tl.range(tl.program_id(0) * ROWS, n_rows, tl.num_programs(0) * ROWS):
        rows = row + tl.arange(0, ROWS)
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        offsets = rows[:, None] * stride + (n_cols - 1 - cols)[None, :]
        tile = tl.load(x + offsets, mask=mask, other=-float("inf"))
        tl.store(y + offsets, tile - tl.max(tile, 1)[:, None], mask=mask)


def test_a_planted_fault_is_seen():
    signature = {"y": "*fp32", "x": "*fp32", "stride": "i32", "n_rows": "i32", "n_cols": "i32"}
    compiled = compile_for(current_device(0), reversed_kernel, signature, {"ROWS": 4, "COLS": 1024}, None, None)
    assert lint(compiled.asm["ttadapter"]).findings == {*RULES, "extract in a loop"} - {"int64 vector"}
