"""Kernels of which Ascend's compiler has reported the Unified Buffer that they ask for, written anew, with what it reported.

A report is in bits, as the compiler tells them where they are more than there are; COMPILES says that there were enough, and
OVERFLOWS that there were too few. All are of Ascend 910B with 192 KiB, and of double buffering as it is by default.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

COMPILES, OVERFLOWS = "compiles", "overflows"


class Reported(NamedTuple):
    """A kernel, types and constants that it was compiled with, what was reported, and where."""

    kernel: Any
    types: dict[str, str]
    constants: dict[str, int]
    told: int | str
    source: str


@triton.jit
def layer_norm(x, w, b, y, n_rows, n_cols, ROWS: tl.constexpr, OF_ROWS: tl.constexpr, COLS: tl.constexpr):
    for start in range(0, OF_ROWS, ROWS):
        rows = tl.program_id(0) * OF_ROWS + start + tl.arange(0, ROWS)[:, None]
        total = tl.zeros((ROWS, COLS), tl.float32)
        for first in range(0, n_cols, COLS):
            cols = first + tl.arange(0, COLS)[None, :]
            inside = (rows < n_rows) & (cols < n_cols)
            value = tl.load(x + rows * 4096 + cols, inside, other=0.0).to(tl.float32)
            total = tl.where(inside, total + value, total)
        mean = tl.sum(total, 1)[:, None] / 4096.0
        squares = tl.zeros((ROWS, COLS), tl.float32)
        for first in range(0, n_cols, COLS):
            cols = first + tl.arange(0, COLS)[None, :]
            inside = (rows < n_rows) & (cols < n_cols)
            centred = tl.load(x + rows * 4096 + cols, inside, other=0.0).to(tl.float32) - mean
            squares = tl.where(inside, squares + centred * centred, squares)
        variance = tl.sum(squares, 1)[:, None]
        for first in range(0, n_cols, COLS):
            cols = first + tl.arange(0, COLS)[None, :]
            inside = (rows < n_rows) & (cols < n_cols)
            value = tl.load(x + rows * 4096 + cols, inside, other=0.0).to(tl.float32)
            weight = tl.load(w + cols, cols < n_cols, other=0.0).to(tl.float32)
            bias = tl.load(b + cols, cols < n_cols, other=0.0).to(tl.float32)
            scaled = (value - mean) * tl.rsqrt(variance / 4096.0 + 1e-5)
            tl.store(y + rows * 4096 + cols, scaled * weight + bias, inside)


@triton.jit
def bias_silu(x, b, n_rows, n_cols, ROWS: tl.constexpr, OF_ROWS: tl.constexpr, COLS: tl.constexpr):
    for start in range(0, OF_ROWS, ROWS):
        rows = tl.program_id(0) * OF_ROWS + start + tl.arange(0, ROWS)[:, None]
        for first in range(0, n_cols, COLS):
            cols = first + tl.arange(0, COLS)[None, :]
            inside = (rows < n_rows) & (cols < n_cols)
            value = tl.load(x + rows * 16384 + cols, inside).to(tl.float32) + tl.load(b + cols, cols < n_cols).to(tl.float32)
            tl.store(x + rows * 16384 + cols, value * tl.sigmoid(value), inside)


@triton.jit
def weighted_sum(x, h, y, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    parts = tl.arange(0, 4)
    weights = tl.load(h + rows[:, None] * 4 + parts[None, :], mask=rows[:, None] < n_rows, other=0.0)
    at = rows[:, None, None] * (4 * n_cols) + parts[None, :, None] * n_cols + cols[None, None, :]
    value = tl.load(x + at, mask=(rows[:, None, None] < n_rows) & (cols[None, None, :] < n_cols), other=0.0).to(tl.float32)
    total = tl.sum(value * weights[:, :, None], axis=1)
    inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    tl.store(y + rows[:, None] * n_cols + cols[None, :], total.to(tl.bfloat16), mask=inside)


@triton.jit
def swiglu(gate, up, y, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n_cols
    cols = tl.arange(0, BLOCK)
    a = tl.load(gate + row + cols, mask=cols < n_cols, other=0).to(tl.float32)
    b = tl.load(up + row + cols, mask=cols < n_cols, other=0)
    tl.store(y + row + cols, (a * tl.sigmoid(a)).cast(b.dtype) * b, mask=cols < n_cols)


@triton.jit
def argmax_prob(x, ids, probabilities, n_rows, n_cols, BLOCK: tl.constexpr):
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        most = tl.full((), -float("inf"), tl.float32)
        at = tl.zeros((), tl.int64)
        total = tl.zeros((), tl.float32)
        for first in range(0, n_cols, BLOCK):
            cols = first + tl.arange(0, BLOCK)
            value = tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            here = tl.max(value, axis=0)
            more = tl.maximum(most, here)
            total = total * tl.exp(most - more) + tl.sum(tl.exp(value - more), axis=0)
            found = tl.argmax(value, axis=0).to(tl.int64) + first
            at = tl.where(here > most, found, at)
            most = more
        tl.store(ids + row, at)
        tl.store(probabilities + row, 1.0 / total)


def of(kind, *names):
    return dict.fromkeys(names, f"*{kind}:16")


SIZES = dict.fromkeys(("n_rows", "n_cols"), "i32")
NORM = of("bf16", "x", "w", "b", "y") | SIZES
SILU = of("bf16", "x", "b") | SIZES
SUM = of("bf16", "x", "y") | of("fp32", "h") | SIZES
ARGMAX = of("fp32", "x", "probabilities") | of("i64", "ids") | SIZES
HALF_ARGMAX = ARGMAX | of("fp16", "x")
HSTU, MHC, SGL = "Ascend/pytorch#102", "a page on mHC kernels", "sgl-kernel-npu, argmax_softmax_prob"
REPORTS = [
    Reported(layer_norm, NORM, {"ROWS": 4, "OF_ROWS": 64, "COLS": 4096}, 3277568, HSTU),
    Reported(layer_norm, NORM, {"ROWS": 2, "OF_ROWS": 64, "COLS": 4096}, 1966848, HSTU),
    Reported(bias_silu, SILU, {"ROWS": 2, "OF_ROWS": 64, "COLS": 16384}, 3145728, HSTU),
    Reported(bias_silu, SILU, {"ROWS": 1, "OF_ROWS": 64, "COLS": 16384}, 2097152, HSTU),
    Reported(weighted_sum, SUM, {"ROWS": 32, "COLS": 256}, 2625536, MHC),
    Reported(weighted_sum, SUM, {"ROWS": 32, "COLS": 128}, COMPILES, MHC),
    Reported(swiglu, of("fp16", "gate", "up", "y") | {"n_cols": "i32"}, {"BLOCK": 32768}, 2621440, "a port of Liger's SwiGLU"),
    Reported(argmax_prob, ARGMAX, {"BLOCK": 16384}, OVERFLOWS, SGL),
    Reported(argmax_prob, ARGMAX, {"BLOCK": 8192}, COMPILES, SGL),
    Reported(argmax_prob, HALF_ARGMAX, {"BLOCK": 16384}, COMPILES, SGL),
]
