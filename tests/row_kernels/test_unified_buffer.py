"""Bounds of Ascend's Unified Buffer, of kernels of which only the front end runs here, next to what its compiler reported."""

import logging
from functools import partial
from typing import Any, NamedTuple

import pytest
import row_kernels
import triton
import triton.language as tl

from portable_softmax import CompileError, Device, PlanError, fits, inspect_kernel

COMPILES, OVERFLOWS = "compiles", "overflows"


class Reported(NamedTuple):
    """A kernel, types and constants that it was compiled with, what was reported, and where."""

    kernel: Any
    types: dict[str, str]
    constants: dict[str, int]
    bits: int | str
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
def rope_part(x, row, n_heads, cosine, sine, HEAD: tl.constexpr, HALF: tl.constexpr, HEADS: tl.constexpr):
    for first in range(0, n_heads, HEADS):
        heads = first + tl.arange(0, HEADS)[:, None]
        at = x + row * (n_heads * HEAD) + heads * HEAD + tl.arange(0, HALF)[None, :]
        inside = (heads < n_heads) & (tl.arange(0, HALF)[None, :] < HALF)
        a = tl.load(at, mask=inside, other=0).to(tl.float32)
        b = tl.load(at + HALF, mask=inside, other=0).to(tl.float32)
        tl.store(at, a * cosine - b * sine, mask=inside)
        tl.store(at + HALF, b * cosine + a * sine, mask=inside)


@triton.jit
def rope(
    q,
    k,
    cosines,
    sines,
    n_tokens,
    N_Q: tl.constexpr,
    N_K: tl.constexpr,
    HEAD: tl.constexpr,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,
):
    for row in tl.range(tl.program_id(0), n_tokens, tl.num_programs(0)):
        cosine = tl.load(cosines + row * HALF + tl.arange(0, HALF)).to(tl.float32)
        sine = tl.load(sines + row * HALF + tl.arange(0, HALF)).to(tl.float32)
        rope_part(q, row, N_Q, cosine, sine, HEAD, HALF, HEADS)
        rope_part(k, row, N_K, cosine, sine, HEAD, HALF, HEADS)


@triton.jit
def move(x, y, n_layers, n_heads, n_v, n_k, HEADS: tl.constexpr, V: tl.constexpr, K: tl.constexpr):
    v, k = tl.arange(0, V), tl.arange(0, K)
    for layer in range(n_layers):
        for first in range(0, n_heads, HEADS):
            heads = first + tl.arange(0, HEADS)
            inside = (heads < n_heads)[:, None, None] & (v < n_v)[None, :, None] & (k < n_k)[None, None, :]
            at = heads[:, None, None] * n_v * n_k + v[None, :, None] * n_k + k[None, None, :] + layer * 1000000
            tl.store(y + at, tl.load(x + at, mask=inside, other=0), mask=inside)


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
            place = tl.argmax(value, axis=0).to(tl.int64) + first
            at = tl.where(here > most, place, at)
            most = more
        tl.store(ids + row, at)
        tl.store(probabilities + row, 1.0 / total)


def of(kind, *names):
    return dict.fromkeys(names, f"*{kind}:16")


SIZES = dict.fromkeys(("n_rows", "n_cols"), "i32")
NORM = of("bf16", "x", "w", "b", "y") | SIZES
SILU = of("bf16", "x", "b") | SIZES
SUM = of("bf16", "x", "y") | of("fp32", "h") | SIZES
ROPE = of("bf16", "q", "k", "cosines", "sines") | {"n_tokens": "i32"}
HEADS = {"N_Q": 64, "N_K": 64, "HEAD": 128, "HALF": 64}
MOVE = of("fp32", "x", "y") | dict.fromkeys(("n_layers", "n_heads", "n_v", "n_k"), "i32")
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
    Reported(rope, ROPE, HEADS | {"HEADS": 64}, 1839104, "vllm-ascend, ops/triton/rope.py"),
    Reported(rope, ROPE, HEADS | {"HEADS": 32}, COMPILES, "vllm-ascend, ops/triton/rope.py"),
    Reported(move, MOVE, {"HEADS": 2, "V": 128, "K": 128}, 2097152, "sgl-kernel-npu#477"),
    Reported(argmax_prob, ARGMAX, {"BLOCK": 16384}, OVERFLOWS, SGL),
    Reported(argmax_prob, ARGMAX, {"BLOCK": 8192}, COMPILES, SGL),
    Reported(argmax_prob, HALF_ARGMAX, {"BLOCK": 16384}, COMPILES, SGL),
]


DEVICE, A5 = "ascend/910b3", "ascend/950pr_957x"
THERE = Device.from_profile(DEVICE).hardware.shared_memory_per_program_max


def used(kernel, types, constants, device=DEVICE):
    return inspect_kernel(kernel, types, constants, device=device)


@pytest.mark.parametrize("case", REPORTS, ids=lambda case: f"{case.kernel.__name__}-{case.bits}-{case.constants}")
def test_what_the_compiler_reported_lies_between(case):
    inspected = used(case.kernel, case.types, case.constants)
    least, most = inspected.resources.shared_memory_bytes, inspected.resources.shared_memory_most
    reported = {COMPILES: (0, THERE), OVERFLOWS: (THERE + 1, 10**9)}.get(case.bits) or (case.bits // 8, case.bits // 8)
    assert least <= reported[1]
    assert most >= reported[0]
    assert most <= 4 * least
    assert inspected.occupancy.programs_per_multiprocessor == (least <= THERE)


@triton.jit
def online_unrolled(x, y, N: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    peak = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for start in tl.static_range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * N + at, mask=at < N, other=float("-inf")).to(tl.float32)
        new = tl.maximum(peak, tl.max(value, 0))
        total = total * tl.exp(peak - new) + tl.sum(tl.exp(value - new), 0)
        peak = new
    tl.store(y + row, peak + tl.log(total))


def test_blocks_that_were_unrolled_are_kept_on_the_950():
    """triton-lang/triton-ascend issue 2246: its compiler requires 541,696 bytes on the 950, and compiles for the 910B."""
    types, constants = of("bf16", "x") | of("fp32", "y"), {"N": 151936, "BLOCK": 8192}
    most = {name: used(online_unrolled, types, constants, name).resources.shared_memory_most for name in (DEVICE, A5)}
    assert most[DEVICE] <= THERE
    assert 541_696 <= most[A5] <= 2 * 541_696
    once = used(online_unrolled, types, constants | {"N": 8192}, A5).resources.shared_memory_most
    assert once == used(online_unrolled, types, constants | {"N": 8192}).resources.shared_memory_most


def test_options_of_ascends_compiler():
    """The most of a kernel that loads blocks in a loop follows from multibuffer; another compiler's options are no options."""
    types, constants = of("fp32", "x", "probabilities") | of("i64", "ids") | SIZES, {"BLOCK": 1024}
    usual, single = (
        inspect_kernel(argmax_prob, types, constants, device=DEVICE, **options).resources
        for options in ({"multibuffer": True}, {"multibuffer": False, "unit_flag": True})
    )
    assert single.shared_memory_bytes == usual.shared_memory_bytes <= single.shared_memory_most < usual.shared_memory_most
    with pytest.raises(CompileError, match=r"Keyword argument waves was specified"):
        inspect_kernel(argmax_prob, types, constants, device=DEVICE, waves=2)


def test_fits_prefers_what_certainly_fits(caplog):
    caplog.set_level(logging.INFO, "portable_softmax.fits")
    configs = [triton.Config({"BLOCK": block}) for block in (4096, 16384, 131072)]
    chosen = partial(fits, kernel=swiglu, device=DEVICE)
    arguments = of("fp16", "gate", "up", "y") | {"n_cols": "i32"}
    assert chosen(configs, arguments) == configs[:1]
    assert "may not fit: a program takes" in caplog.text
    assert f"and there are {THERE}" in caplog.text
    assert chosen(configs[1:], arguments) == configs[1:2], "what may fit is tried where nothing certainly does"
    with pytest.raises(PlanError, match="limited by unified buffer; a program has at most"):
        chosen(configs[2:], arguments)


def test_a_row_that_does_not_fit_in_one_block_is_refused():
    x, w = "f32[64,16384]", "f32[16384]"
    with pytest.raises(PlanError, match=r"a block of 16384 uses .*; use a smaller BLOCK"):
        row_kernels.example("layer_norm").forward.plan(x, w, w, x, 64, 16384, 1e-5, device=DEVICE)
