"""A kernel of Triton's Gluon, which names layouts, and has no TTIR."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def copied(x, y, n_rows, n_cols, BLOCK: gl.constexpr):
    at = gl.arange(0, BLOCK, layout=gl.BlockedLayout([1], [32], [4], [0]))
    here = gl.program_id(0) * n_cols + at
    gl.store(y + here, gl.load(x + here, mask=at < n_cols), mask=at < n_cols)
