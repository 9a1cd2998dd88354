"""Prints the occupancy of a kernel on devices that are not present: `python examples/my_kernel.py`.

The command line prints more: `portable-softmax kernel examples/my_kernel.py:subtract_max --on amd/mi300x nvidia/h200 --args
'x=f32[4096] y=f32[4096] n=4096 BLOCK=1024'`.
"""

import triton
import triton.language as tl

from portable_softmax import CompileError, inspect_kernel


@triton.jit
def subtract_max(x, y, n, BLOCK: tl.constexpr):
    """Subtracts the maximum of a block from its elements: y[i] = x[i] - max(block)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=-float("inf"))
    tl.store(y + at, values - tl.max(values, 0), mask=at < n)


def main() -> None:
    """Prints programs per multiprocessor for each device and block."""
    for device in ("nvidia/h200", "nvidia/rtx-4090", "amd/mi300x", "amd/rx-7900-xtx"):
        for block in (1024, 16384):
            arguments = {"x": "f32[65536]", "y": "f32[65536]", "n": 65536, "BLOCK": block}  # or tensors
            inspected = inspect_kernel(subtract_max, arguments, device=device, num_warps=4)
            used, fits = inspected.resources, inspected.occupancy
            limit = " and ".join(fits.limited_by)
            print(
                f"{device:16} BLOCK {block:5}: {fits.programs_per_multiprocessor:2} programs, limited by {limit}; "
                f"{used.registers_per_thread} registers, {used.spilled_bytes_per_thread} bytes spilled"
            )


if __name__ == "__main__":
    try:
        main()
    except CompileError as error:  # in Triton's interpreter
        print(error)
