"""Triton's tutorial on the fused softmax, in short: resident programs walk over rows, with 8 warps and up to 4 stages.

It plans like the tutorial, for comparison; tests/devices/test_occupancy.py has what its formula forgets.
"""

import functools

import torch
import triton
import triton.language as tl
from triton.runtime import driver

NUM_WARPS = 8


@triton.jit
def textbook_kernel(y_ptr, x_ptr, y_row_stride, x_row_stride, n_rows, n_cols, BLOCK_SIZE: tl.constexpr, STAGES: tl.constexpr):
    """Computes the softmax of rows that each fit a block, walking over rows."""
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=STAGES):
        x = tl.load(x_ptr + row * x_row_stride + cols, mask=mask, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + row * y_row_stride + cols, e / tl.sum(e, axis=0), mask=mask)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Computes the softmax of the rows of a matrix.

    Raises:
        ValueError: a row does not fit.
    """
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    programs, constants = _resident(x.dtype, n_rows, n_cols, x.stride(0), x.device.index or 0)
    textbook_kernel[(min(programs, n_rows),)](y, x, y.stride(0), x.stride(0), n_rows, n_cols, **constants)
    return y


@functools.cache
def _resident(dtype: torch.dtype, n_rows: int, n_cols: int, stride: int, index: int) -> tuple[int, dict[str, int]]:
    """Returns the resident programs by the tutorial's formula, and the kernel's constants."""
    device = driver.active.utils.get_device_properties(index)
    block, stages = triton.next_power_of_2(n_cols), 4 if device["max_shared_mem"] > 200000 else 2
    if (stages - 1) * block * dtype.itemsize > device["max_shared_mem"]:  # checked first, because the compiler would take long
        raise ValueError(f"{stages - 1} rows of {n_cols} {dtype} do not fit into shared memory")
    constants = {"BLOCK_SIZE": block, "STAGES": stages, "num_warps": NUM_WARPS}
    kernel = textbook_kernel.warmup(dtype, dtype, n_cols, stride, n_rows, n_cols, **constants, grid=(1,))
    kernel._init_handles()
    programs = device["max_num_regs"] // (kernel.n_regs * device["warpSize"] * NUM_WARPS)
    if kernel.metadata.shared:
        programs = min(programs, device["max_shared_mem"] // kernel.metadata.shared)
    if not programs:
        raise ValueError(f"no program with rows of {n_cols} {dtype} fits")
    return device["multiprocessor_count"] * programs, constants
