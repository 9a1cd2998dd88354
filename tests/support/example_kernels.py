"""A vector addition, plain and under the decorators that people use, to inspect and to run."""

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


def add_case():
    """A launch of add_kernel with BLOCK_SIZE 64: (grid, arguments, expected)."""
    x, y = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0)) * 100
    arguments = {"x_ptr": x, "y_ptr": y, "out_ptr": torch.full((1000,), float("nan")), "n_elements": 1000}
    return (16,), arguments, {"out_ptr": x.double() + y}


def wide_case():
    """The launch of add_kernel along y, of more programs than NVIDIA's devices take there, and more threads than AMD's."""
    _, arguments, expected = add_case()
    return (lambda meta: (1, 2**20 * meta["BLOCK_SIZE"])), arguments, expected
