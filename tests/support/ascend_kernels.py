"""Kernels, and what Ascend's compiler says of them, run by hand: bytes of its plan, or words of a refusal."""

import triton
import triton.language as tl


@triton.jit
def relu(y, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.where(value > 0, value, 0.0), mask=at < n)


@triton.jit
def log_softmax(y, x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), n, tl.num_programs(0)):
        value = tl.load(x + row * n + at, mask=at < n, other=-float("inf")).to(tl.float32)
        value -= tl.max(value, 0)
        value -= tl.log(tl.sum(tl.exp(value), 0))
        tl.store(y + row * n + at, value.to(y.dtype.element_ty), mask=at < n)


@triton.jit
def square(y, x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)[:, None]
    j = tl.arange(0, BLOCK)[None, :]
    value = tl.load(x + i * BLOCK + j)
    tl.store(y + i * BLOCK + j, tl.dot(value, value).to(y.dtype.element_ty))


@triton.jit
def ordered(y, x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.sort(tl.load(x + at)))


@triton.jit
def double(y, x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.exp(tl.load(x + at).to(tl.float64)).to(tl.float32))


@triton.jit
def narrow(y, x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at).to(tl.float8e5).to(tl.float32))


@triton.jit
def scaled(y, x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)[:, None]
    j = tl.arange(0, BLOCK)[None, :]
    value = tl.load(x + i * BLOCK + j).to(tl.float8e5)
    scale = tl.full((BLOCK, BLOCK // 32), 1, tl.uint8)
    tl.store(y + i * BLOCK + j, tl.dot_scaled(value, scale, "e5m2", value, scale, "e5m2"))


@triton.jit
def nothing(y, x, n, BLOCK: tl.constexpr):
    pass


A2, A5 = "ascend/910b3", "ascend/950pr_958x"
SAID = [  # kernel, type, BLOCK, device, options, what is said
    (relu, "f32", 8192, A2, {}, 98_368),
    (relu, "f32", 16384, A2, {}, r"requires 1573376 bits while .* \(at least 196672 bytes of 196608\)"),
    (relu, "f32", 16384, A5, {}, 65_536),
    (log_softmax, "bf16", 8192, A2, {}, 147_808),
    (log_softmax, "f32", 16384, A2, {}, 164_192),  # single-buffered, which the compiler tries by itself
    (log_softmax, "f32", 16384, A5, {}, 131_168),
    (log_softmax, "f32", 16384, A5, {"multibuffer": True}, "ub overflow, .*; multibuffer=False takes less"),
    (square, "f16", 64, A2, {}, 0),  # the Unified Buffer is not used
    (nothing, "f32", 64, A5, {}, 0),
    (scaled, "f32", 64, A2, {}, "triton-adapter-opt of triton-ascend 3.2.0: it ended with 1: expected ','"),
    (narrow, "f32", 64, A2, {}, "1.2.0 failed: it ended with 1: Dialect `tt' not found for custom op 'tt.fp_to_fp'"),
    (double, "f32", 64, A2, {}, "1.2.0 failed: it was ended by signal 6"),
]


def arguments_of(kind):
    """Returns the run-time arguments of these kernels."""
    return {"y": f"{kind}[1048576]", "x": f"{kind}[1048576]", "n": 10_000}
