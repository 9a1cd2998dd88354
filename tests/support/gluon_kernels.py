"""A matrix product in Gluon, whose accumulator is in the tensor memory of an SM or of a pair of SMs."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, allocate_tensor_memory, tcgen05_mma


@gluon.jit
def product(out, COLS: gl.constexpr, PAIR: gl.constexpr):
    rows: gl.constexpr = 256 if PAIR else 128
    by_rows: gl.constexpr = [[1, 0]] if PAIR else []
    by_cols: gl.constexpr = [[0, 1]] if PAIR else []
    a_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([rows, 64], gl.float16, cga_layout=by_rows)
    b_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, COLS], gl.float16, cga_layout=by_cols)
    layout: gl.constexpr = TensorMemoryLayout((128, COLS), col_stride=1, two_ctas=PAIR, cga_layout=by_rows)
    a = gl.allocate_shared_memory(gl.float16, [rows, 64], a_layout)
    b = gl.allocate_shared_memory(gl.float16, [64, COLS], b_layout)
    total = allocate_tensor_memory(gl.float32, [rows, COLS], layout)
    tcgen05_mma(a, b, total, use_acc=False)
    of_registers: gl.constexpr = total.get_reg_layout()
    i = gl.arange(0, rows, gl.SliceLayout(1, of_registers))
    j = gl.arange(0, COLS, gl.SliceLayout(0, of_registers))
    gl.store(out + i[:, None] * COLS + j[None, :], total.load(of_registers))
