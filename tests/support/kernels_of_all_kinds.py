"""Kernels of all kinds, as users write them, and launches of which each uses other resources.

Trigonometric functions have arrays in memory on NVIDIA; large tiles of few warps spill; matrix products use shared and tensor
memory.
"""

import triton
import triton.language as tl
from launched_kernels import attention, layernorm


@triton.jit
def pointwise(x, y, n, WHAT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    if WHAT == "sin":
        v = tl.sin(v)
    elif WHAT == "sin cos":
        v = tl.sin(v) * tl.cos(v)
    tl.store(y + i, v, mask=i < n)


@triton.jit
def rowwise(x, y, cols, WHAT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * cols
    v = tl.load(x + row + i, mask=i < cols, other=0.0)
    if WHAT == "sort":
        v = tl.sort(v)
    elif WHAT == "softmax":
        e = tl.exp(v - tl.max(v, 0))
        v = e / tl.sum(e, 0)
    elif WHAT == "norm":
        v *= tl.rsqrt(tl.sum(v * v, 0) / cols + 1e-6)
    tl.store(y + row + i, v, mask=i < cols)


@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        y = tl.load(b + (rk[:, None] + k) * N + rn[None, :])
        x = tl.load(a + rm[:, None] * K + (rk[None, :] + k)).to(y.dtype)
        total = tl.dot(x, y, total)
    tl.store(c + rm[:, None] * N + rn[None, :], total.to(c.dtype.element_ty))


@triton.jit(noinline=True)
def helper(v, k):
    return tl.sin(v) * k


@triton.jit
def calling(x, y, n, BLOCK: tl.constexpr = 1024):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    scale = helper(tl.load(x), 3.0) + helper(tl.load(x + 1), 4.0)
    tl.store(y + i, tl.load(x + i, mask=i < n, other=0.0) * scale, mask=i < n)


def _pointwise(what, kind="f32", block=1024, **options):
    return pointwise, {"x": f"{kind}[4096]", "y": f"{kind}[4096]", "n": 4096, "WHAT": what, "BLOCK": block}, options


def _rowwise(what, cols=1024, kind="f32", **options):
    return rowwise, {"x": f"{kind}[64,{cols}]", "y": f"{kind}[64,{cols}]", "cols": cols, "WHAT": what, "BLOCK": cols}, options


def a_product(a, b, rows, cols, depth, **options):
    tensors = {"a": f"{a}[4096,4096]", "b": f"{b}[4096,4096]", "c": f"{b}[4096,4096]"}
    return product, {**tensors, **dict.fromkeys("MNK", 4096), "BM": rows, "BN": cols, "BK": depth}, options


def _attention(block, width, **options):
    tensors = dict.fromkeys(("q", "k", "v", "out"), "f16[4096,128]")
    return attention, {**tensors, "scale": 0.1, "length": 4096, "stride": 128, "BLOCK": block, "D": width}, options


_ROWS = {
    "x": "f16[64,4096]",
    "y": "f16[64,4096]",
    "w": "f16[4096]",
    "b": "f16[4096]",
    "stride": 4096,
    "cols": 4096,
    "eps": 1e-5,
}
LAUNCHES = {  # a kernel, its arguments, and options of the compiler
    "sin": _pointwise("sin"),
    "sin and cos, few registers": _pointwise("sin cos", block=512, num_warps=1, maxnreg=24),
    "sort, one warp": _rowwise("sort", 1024, num_warps=1, maxnreg=32),
    "softmax, four warps": _rowwise("softmax", 32768, num_warps=4),
    "norm, float64": _rowwise("norm", 8192, "f64", num_warps=4),
    "layernorm": (layernorm, _ROWS, {}),
    "matmul": a_product("f16", "f16", 128, 128, 64, num_warps=8),
    "matmul, converted": a_product("i16", "f16", 128, 128, 64, num_warps=8, num_stages=2),
    "matmul, few registers": a_product("f16", "f16", 128, 128, 32, num_warps=4, num_stages=2, maxnreg=96),
    "attention": _attention(64, 64),
    "attention, few registers": _attention(64, 64, num_warps=8, maxnreg=96),
    "function": (calling, {"x": "f32[4096]", "y": "f32[4096]", "n": 4096}, {}),
}
# Of each way to count.
FEW = "sin", "sin and cos, few registers", "sort, one warp", "matmul", "function"
