"""A vector addition under the decorators that people's kernels have."""

import functools

import triton
import triton.language as tl
from example_kernels import add_kernel

TWO = [triton.Config({"BLOCK_SIZE": 1024}, num_warps=4), triton.Config({"BLOCK_SIZE": 2048}, num_warps=8, num_stages=2)]
tuned = triton.autotune(configs=TWO, key=["n_elements"])(add_kernel)
tuned_once = triton.autotune(configs=TWO[1:], key=["n_elements"])(add_kernel)
by_heuristic = triton.heuristics({"BLOCK_SIZE": lambda arguments: 512})(add_kernel)
by_arguments = triton.heuristics({"BLOCK_SIZE": lambda arguments: triton.next_power_of_2(arguments["n_elements"])})(add_kernel)


class Logged:
    """Launches a kernel and counts."""

    def __init__(self, kernel):
        self.calls = 0
        functools.update_wrapper(self, kernel, updated=())

    def __getitem__(self, grid):
        self.calls += 1
        return self.__wrapped__[grid]


logged = Logged(tuned_once)


@triton.jit
def plain(x_ptr, BLOCK_SIZE: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK_SIZE), 0.0)
