"""No program reads or writes past a row unmasked."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offline import every_launch

from portable_softmax import Device
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
def problems(draw):
    n_cols, dtype = draw(LENGTHS), draw(st.sampled_from(["float32", "bfloat16"]))
    widest = {"float32": 4, "bfloat16": 8}[dtype]
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
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(problem=problems())
def test_what_reaches_past_a_row_is_masked(profile, problem):
    device = Device.from_profile(profile)
    for read, tiling in every_launch(problem, device):
        spec = KernelSpec.of(read, tiling)
        assert spec.padded == (read.unaligned or tiling.covers(read.n_cols) != read.n_cols)
        assert not unmasked_past(spec, tiling, read.n_cols), tiling
        columns = read.n_cols if read.across else read.width
        assert tiling.covers(columns) >= columns
        for size in (tiling.tile_rows, tiling.width, tiling.num_warps or 1):
            assert size.bit_count() == 1, f"{tiling}: Triton has powers of two only"
        if tiling.num_warps:
            assert tiling.num_warps * device.hardware.warp_size <= device.hardware.max_threads_per_program
