"""A kernel of row_launches.py: rows in one block, whose length is no constexpr."""

import triton
import triton.language as tl


@triton.jit
def swiglu_kernel(x, z, y, n_rows, n_cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Computes x * sigmoid(x) * z."""
    cols = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=STAGES):
        at = tl.cast(row, tl.int64) * n_cols + cols
        a = tl.load(x + at, mask=cols < n_cols).to(tl.float32)
        b = tl.load(z + at, mask=cols < n_cols).to(tl.float32)
        tl.store(y + at, a / (1 + tl.exp(-a)) * b, mask=cols < n_cols)
