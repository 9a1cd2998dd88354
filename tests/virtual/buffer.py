"""The Unified Buffer that a lowered kernel needs, counted in its code, and the compiler's error when that is too much.

The count is a model: the compiler's own allocation is part of CANN. It works on the code that the compiler gets, has
nothing of the plan, and so also checks the planner's arithmetic.
"""

import math
import re
import subprocess

BLOCK_BYTES = 32  # a narrower row is padded to it
BITS = {"f32": 32, "f16": 16, "bf16": 16, "i64": 64, "i32": 32, "i8": 8}
LOADED = re.compile(r"memref\.alloc\(\).* : memref<([\dx]+)x(\w+)>")
STORED = re.compile(r"tensor\.extract_slice .* : tensor<([\dx]+)x(\w+)> to")


def unified_buffer_bits(linalg: str, multibuffer: bool) -> int:
    """Counts bits of the largest tile: where it lands and where it leaves from (each twice, if double-buffered), a copy in
    fp32, and half of that for the reduction."""
    buffers = 2 if multibuffer else 1
    loaded, stored = (
        max((_padded(shape, kind) for shape, kind in form.findall(linalg)), default=(0, 0)) for form in (LOADED, STORED)
    )
    elements = max(loaded[0], stored[0])
    return elements * (buffers * (loaded[1] + stored[1]) + 32 + 16)


def check_unified_buffer(linalg: str, available_bytes: int, multibuffer: bool) -> None:
    """Raises what the real last stage raises; Triton quotes it in its MLIRCompilationError."""
    needed, available = unified_buffer_bits(linalg, multibuffer), 8 * available_bytes
    if needed > available:
        message = (
            f"error: ub overflow, requires {needed} bits while {available} bits available! (possible reason: tiling basic "
            "block is too large or block number is more than what user expect due to multi-buffer feature is enabled and "
            "some ops need extra local buffer.)"
        )
        raise subprocess.CalledProcessError(1, ["bishengir-compile"], stderr=message.encode())


def _padded(shape: str, kind: str) -> tuple[int, int]:
    """(elements, bits of one) of a tile."""
    *outer, columns = map(int, shape.split("x"))
    return math.prod(outer) * max(columns, BLOCK_BYTES * 8 // BITS[kind]), BITS[kind]
