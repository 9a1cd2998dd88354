"""A matrix product under @triton.autotune with one list of configurations for all vendors, which `fits` prunes.

`python examples/matmul_fits.py`, or without a device `TRITON_INTERPRET=1 python examples/matmul_fits.py`.
"""

import os
from functools import partial

import torch
import triton
import triton.language as tl

from portable_softmax import fits

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # where nothing can be timed
SIZES = [(64, 64, 32), (128, 256, 64), (256, 256, 64)]
CONFIGS = [
    triton.Config({"M": m, "N": n, "K": k}, num_warps=warps, num_stages=stages)
    for m, n, k in SIZES
    for warps, stages in ((4, 2), (8, 4))
]


@triton.jit
def matmul_kernel(a, b, c, n_rows, n_cols, n_inner, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Computes a block of c = a @ b, all with contiguous rows."""
    rows = tl.program_id(0) * M + tl.arange(0, M)[:, None]
    cols = tl.program_id(1) * N + tl.arange(0, N)[None, :]
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, n_inner, K):
        inner = start + tl.arange(0, K)
        left = tl.load(a + rows * n_inner + inner[None, :], mask=(rows < n_rows) & (inner[None, :] < n_inner), other=0.0)
        right = tl.load(b + inner[:, None] * n_cols + cols, mask=(inner[:, None] < n_inner) & (cols < n_cols), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + rows * n_cols + cols, total.to(c.dtype.element_ty), mask=(rows < n_rows) & (cols < n_cols))


tuned = triton.autotune(
    CONFIGS[: 1 if INTERPRETED else None], ["n_rows", "n_cols", "n_inner"], prune_configs_by={"early_config_prune": fits}
)(matmul_kernel)


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns the product of two matrices with contiguous rows."""
    c = torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
    sizes = a.shape[0], b.shape[1], a.shape[1]
    tuned[lambda meta: (triton.cdiv(sizes[0], meta["M"]), triton.cdiv(sizes[1], meta["N"]))](a, b, c, *sizes)
    return c


def main() -> None:
    """Prints which configurations absent devices can run, and compares with torch on the local one."""
    if not INTERPRETED:
        arguments = {"a": "f16[4096,4096]", "b": "f16[4096,4096]", "c": "f16[4096,4096]"}
        arguments |= dict.fromkeys(("n_rows", "n_cols", "n_inner"), 4096)
        for name in ("nvidia/rtx-5090", "nvidia/h200", "amd/mi300x"):
            kept = partial(fits, kernel=matmul_kernel, device=name)(CONFIGS, arguments)
            print(f"{name} can run {len(kept)} of {len(CONFIGS)} configurations")
    where = torch.device("cpu") if INTERPRETED else torch.accelerator.current_accelerator()
    if where is None:
        print("no local accelerator; TRITON_INTERPRET=1 runs the kernel on a CPU")
        return
    a, b = torch.randn(100, 200, device=where, dtype=torch.float16), torch.randn(200, 300, device=where, dtype=torch.float16)
    torch.testing.assert_close(matmul(a, b).float(), a.float() @ b.float(), rtol=1e-2, atol=1e-1)
    print("right on", where)


if __name__ == "__main__":
    main()
