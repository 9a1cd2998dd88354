"""No program reads or writes past a row unmasked, whatever a profile says."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from offline import every_candidate, with_numbers

from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.specialization import KernelSpec

POWERS = st.integers(0, 20).map(lambda power: 2**power)
LENGTHS = st.one_of(
    st.integers(1, 3000),
    st.integers(1, 2**21),
    POWERS,
    st.builds(lambda power, off: max(1, power + off), POWERS, st.integers(-9, 9)),
)


@st.composite
def rows(draw):
    """A row of numbers that loads, with any of them."""
    shares, powers = st.floats(0.001, 1), st.integers(0, 10).map(lambda power: 2**power)
    numbers = {
        "words_forward": st.floats(0.1, 1024),
        "words_backward": st.floats(0.1, 1024),
        "elements_per_thread": st.integers(4, 10).map(lambda power: 2**power),
        "bytes_per_block": st.sampled_from([4, 8, 16, 32]),
        "row_share": shares,
        "beside_share": shares,
        "elements_per_split": st.integers(1, 4096),
        "split_warps": powers,
        "split_registers": st.integers(1, 255),
        "fewest_programs": st.integers(1, 100),
        "numbers_per_thread": st.integers(1, 100),
        "held_across": st.sampled_from([2, 4]),
        "spilled_bytes": st.integers(1, 1000),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(numbers)), min_size=1, unique=True))
    return {key: draw(numbers[key]) for key in chosen}


@st.composite
def problems(draw):
    n_cols, dtype = draw(LENGTHS), draw(st.sampled_from(["float32", "bfloat16", "float64"]))
    widest = {"float32": 4, "bfloat16": 8, "float64": 2}[dtype]
    inner = draw(st.sampled_from([1, 1, 1, 2, 17, 512]))
    unaligned = inner == 1 and n_cols >= widest and draw(st.booleans())
    dividing = [vector for vector in (1, 2, 4, 8) if vector <= widest and (n_cols if inner == 1 else inner) % vector == 0]
    return Problem(
        n_rows=draw(st.sampled_from([1, 7, 132, 4096, 10**6])) * inner,
        n_cols=n_cols,
        x_dtype=dtype,
        y_dtype=dtype,
        vector=widest if unaligned else draw(st.sampled_from(dividing)),
        backward=draw(st.booleans()),
        inner=inner,
        transposed=not unaligned and draw(st.booleans()),
        batch_invariant=draw(st.booleans()),
        unaligned=unaligned,
    )


def unmasked_past(spec: KernelSpec, tiling: Tiling, n_cols: int) -> int:
    """The columns behind a row's last one that programs take without a mask; see `LAST` in addressing.py."""
    if spec.padded and (tiling.splits > 1 or tiling.strategy == "online"):
        return 0
    if tiling.strategy == "online":
        return -n_cols % tiling.tile_cols
    blocks = tiling.blocks - 1 if spec.padded else tiling.blocks  # the last one is masked
    reached = (tiling.splits - 1) * tiling.tile_cols + blocks * tiling.width
    whole = (
        n_cols // spec.problem.vector * spec.problem.vector if spec.problem.unaligned else n_cols
    )  # vectors, wherever a row starts
    return max(0, reached - whole)


@pytest.mark.parametrize("profile", ["nvidia/h200", "nvidia/t4", "amd/mi300x", "amd/rx-7900-xtx"])
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(row=rows(), problem=problems())
@example(row={"beside_share": 1.0}, problem=Problem(512, 1, "bfloat16", "bfloat16", 8, inner=512))
def test_what_reaches_past_a_row_is_masked(profile, row, problem):
    device = with_numbers(profile, row)
    for tiling in every_candidate(problem, device):
        spec = KernelSpec.of(problem, tiling)
        assert spec.padded == (problem.unaligned or tiling.covers(problem.n_cols) != problem.n_cols)
        assert not unmasked_past(spec, tiling, problem.n_cols), tiling
        columns = problem.n_cols if problem.across else problem.width
        assert tiling.covers(columns) >= columns
        for size in (tiling.tile_rows, tiling.width, tiling.num_warps or 1):
            assert size.bit_count() == 1, f"{tiling}: Triton has powers of two only"
        if tiling.num_warps:
            assert tiling.num_warps * device.hardware.warp_size <= device.hardware.max_threads_per_program
