"""A vector addition, plain and under the decorators that people use, and a tiled matrix product, to inspect and to run."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


TWO = [triton.Config({"BLOCK_SIZE": 1024}, num_warps=4), triton.Config({"BLOCK_SIZE": 2048}, num_warps=8, num_stages=2)]
tuned = triton.autotune(configs=TWO, key=["n_elements"])(add_kernel)
tuned_once = triton.autotune(configs=TWO[1:], key=["n_elements"])(add_kernel)
by_arguments = triton.heuristics({"BLOCK_SIZE": lambda arguments: triton.next_power_of_2(arguments["n_elements"])})(add_kernel)


@triton.jit
def plain(x_ptr, BLOCK_SIZE: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK_SIZE), 0.0)


@triton.jit
def matmul_kernel(
    a_ptr,  # [m, k], rows contiguous
    b_ptr,  # [k, n]
    c_ptr,  # [m, n]
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,  # row blocks that walk the columns together, so that they share b in the L2 cache
):
    """c = a @ b"""
    blocks_m, blocks_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    group_size = GROUP_M * blocks_n
    group = tl.program_id(0) // group_size
    first_m = group * GROUP_M
    rows_of_group = tl.minimum(blocks_m - first_m, GROUP_M)
    inside = tl.program_id(0) % group_size
    rows = (first_m + inside % rows_of_group) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = inside // rows_of_group * BLOCK_N + tl.arange(0, BLOCK_N)
    steps = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in tl.range(0, k, BLOCK_K):
        inner = start + steps
        a = tl.load(a_ptr + rows[:, None] * k + inner[None, :], mask=(rows[:, None] < m) & (inner[None, :] < k), other=0.0)
        b = tl.load(b_ptr + inner[:, None] * n + cols[None, :], mask=(inner[:, None] < k) & (cols[None, :] < n), other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(
        c_ptr + rows[:, None] * n + cols[None, :],
        total.to(c_ptr.dtype.element_ty),
        mask=(rows[:, None] < m) & (cols[None, :] < n),
    )


def add_case():
    """A launch of add_kernel with BLOCK_SIZE 64: (grid, arguments, expected)."""
    x, y = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0)) * 100
    arguments = {"x_ptr": x, "y_ptr": y, "out_ptr": torch.full((1000,), float("nan")), "n_elements": 1000}
    return (16,), arguments, {"out_ptr": x.double() + y}


def matmul_case():
    """A launch of matmul_kernel with blocks of 16 x 16 x 16 and groups of 1."""
    a, b = torch.randn(2, 20, 20, generator=torch.Generator().manual_seed(0))
    arguments = {"a_ptr": a, "b_ptr": b, "c_ptr": torch.full((20, 20), float("nan")), "m": 20, "n": 20, "k": 20}
    return (4,), arguments, {"c_ptr": a.double() @ b.double()}


def wide_case():
    """The launch of add_kernel along y, of more programs than NVIDIA's devices take there, and more threads than AMD's."""
    _, arguments, expected = add_case()
    return (lambda meta: (1, 2**20 * meta["BLOCK_SIZE"])), arguments, expected
