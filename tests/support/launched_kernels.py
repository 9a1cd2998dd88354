"""Kernels of all kinds, as users write them: those whose launch Triton specialises, and launches that use many resources.

Trigonometric functions have arrays in memory on NVIDIA; large tiles of few warps spill; matrix products use shared and tensor
memory.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa, pb = a + rm[:, None] * sam + rk[None, :] * sak, b + rk[:, None] * sbk + rn[None, :] * sbn
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(pa, mask=(rm[:, None] < M) & (rk[None, :] + k < K), other=0.0)
        y = tl.load(pb, mask=(rk[:, None] + k < K) & (rn[None, :] < N), other=0.0)
        total += tl.dot(x.to(y.dtype), y)
        pa += BK * sak
        pb += BK * sbk
    pc = c + rm[:, None] * scm + rn[None, :] * scn
    tl.store(pc, total.to(tl.float16), mask=(rm[:, None] < M) & (rn[None, :] < N))


TILE = {"BM": 64, "BN": 64, "BK": 64}
CONFIGS = [
    triton.Config(TILE),
    triton.Config(TILE, num_warps=8, num_stages=2, maxnreg=64),
    triton.Config({**TILE, "waves_per_eu": 4, "matrix_instr_nonkdim": 16}, num_stages=2),
]
tuned = triton.autotune(configs=CONFIGS, key=["M", "N", "K"])(matmul)
pruned = triton.autotune(CONFIGS, [], prune_configs_by={"early_config_prune": lambda configs, *_, **__: configs[:1]})(matmul)


@triton.heuristics(
    {"BLOCK": lambda args: triton.next_power_of_2(args["cols"]), "num_warps": lambda args: 8 if args["cols"] > 512 else 4}
)
@triton.jit
def layernorm(x, y, w, b, stride, cols, eps, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i, mask=i < cols, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / cols
    d = tl.where(i < cols, v - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(d * d, 0) / cols + eps)
    result = d * rstd * tl.load(w + i, mask=i < cols) + tl.load(b + i, mask=i < cols)
    tl.store(y + row * stride + i, result, mask=i < cols)


tuned_layernorm = triton.autotune([triton.Config({"BLOCK": 2048})], key=["cols"])(layernorm)  # which heuristics win over


@triton.jit
def attention(q, k, v, out, scale, length, stride, BLOCK: tl.constexpr = 64, D: tl.constexpr = 64):
    rows, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D)
    query = tl.load(q + rows[:, None] * stride + d[None, :], mask=rows[:, None] < length, other=0.0)
    most = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    result = tl.zeros((BLOCK, D), tl.float32)
    for start in range(0, length, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        keys = tl.load(k + cols[None, :] * stride + d[:, None], mask=cols[None, :] < length, other=0.0)
        scores = tl.where(cols[None, :] < length, tl.dot(query, keys) * scale, -float("inf"))
        new = tl.maximum(most, tl.max(scores, 1))
        p = tl.exp(scores - new[:, None])
        kept = tl.exp(most - new)
        values = tl.load(v + cols[:, None] * stride + d[None, :], mask=cols[:, None] < length, other=0.0)
        result = tl.dot(p.to(values.dtype), values, result * kept[:, None])
        total, most = total * kept + tl.sum(p, 1), new
    tl.store(out + rows[:, None] * stride + d[None, :], (result / total[:, None]).to(tl.float16), mask=rows[:, None] < length)


@triton.jit
def add(x, y, z, n, BLOCK: tl.constexpr = 1024):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def reading(x, y, device, n, num_warps: tl.constexpr, maxnreg: tl.constexpr = None, BLOCK: tl.constexpr = 1024):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * num_warps + device, mask=i < n)


add_any = triton.jit(do_not_specialize=["n"])(add.fn)


@triton.jit
def block(x, y, n, WHAT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, tl.sin(v) if WHAT == "sin" else tl.sin(v) * tl.cos(v), mask=i < n)


@triton.jit(noinline=True)
def helper(v, k):
    return tl.sin(v) * k


@triton.jit
def calling(x, y, n, BLOCK: tl.constexpr = 1024):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    scale = helper(tl.load(x), 3.0) + helper(tl.load(x + 1), 4.0)
    tl.store(y + i, tl.load(x + i, mask=i < n, other=0.0) * scale, mask=i < n)


VECTORS = {"x": "f32[4096]", "y": "f32[4096]", "n": 4096}
MATRICES = {**dict.fromkeys("abc", "f16[4096,4096]"), **dict.fromkeys(("M", "N", "K", "sam", "sbk", "scm"), 4096)}
MATRICES |= {"sak": 1, "sbn": 1, "scn": 1, "BM": 128, "BN": 128, "BK": 64}
HEADS = {**dict.fromkeys(("q", "k", "v", "out"), "f16[4096,128]"), "scale": 0.1, "length": 4096, "stride": 128}
LAUNCHES = {  # a kernel, its arguments, and options of the compiler
    "sin": (block, VECTORS | {"WHAT": "sin", "BLOCK": 1024}, {}),
    "sin and cos, few registers": (block, VECTORS | {"WHAT": "sin cos", "BLOCK": 512}, {"num_warps": 1, "maxnreg": 24}),
    "sum, one warp": (add, VECTORS | {"z": VECTORS["y"], "BLOCK": 4096}, {"num_warps": 1, "maxnreg": 64}),
    "matmul": (matmul, MATRICES, {"num_warps": 8}),
    "matmul, converted": (matmul, MATRICES | {"a": "i16[4096,4096]"}, {"num_warps": 8, "num_stages": 2}),
    "matmul, few registers": (matmul, MATRICES | {"BK": 32}, {"num_warps": 4, "num_stages": 2, "maxnreg": 96}),
    "attention": (attention, HEADS, {}),
    "attention, few registers": (attention, HEADS, {"num_warps": 8, "maxnreg": 96}),
    "function": (calling, VECTORS, {}),
}
FEW = "sin", "sin and cos, few registers", "sum, one warp", "matmul", "function"  # of each way to count


def matmul_case():
    """A launch of matmul with blocks of 16 x 16 x 16: (grid, arguments, expected)."""
    a, b = torch.randn(2, 20, 20, generator=torch.Generator().manual_seed(0)).half()
    arguments = {"a": a, "b": b, "c": torch.full_like(a, float("nan")), **dict.fromkeys("MNK", 20)}
    arguments |= dict.fromkeys(("sam", "sbk", "scm"), 20) | dict.fromkeys(("sak", "sbn", "scn"), 1)
    return (2, 2), arguments, {"c": a.double() @ b.double()}
