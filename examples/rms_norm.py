"""RMSNorm and its gradient: two plain kernels, launched on any vendor's device without tuning.

`python examples/rms_norm.py` plans them for absent devices, and runs them on the local one; without one,
`TRITON_INTERPRET=1 python examples/rms_norm.py`.
"""

import os

import torch
import triton
import triton.language as tl

from portable_softmax import persistent


@triton.jit
def rms_norm_kernel(x, w, y, n_rows, n_cols: tl.constexpr, eps, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Normalizes rows to a root mean square of 1, and scales them by w."""
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=STAGES):
        at = tl.cast(row, tl.int64) * n_cols + cols
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        scale = 1 / tl.sqrt(tl.sum(value * value, 0) / n_cols + eps)
        weight = tl.load(w + cols, mask=mask, other=0.0).to(tl.float32)  # here it takes registers for a moment only
        tl.store(y + at, value * scale * weight, mask=mask)


@triton.jit
def rms_norm_gradient_kernel(dy, x, w, dx, dw, n_rows, n_cols: tl.constexpr, eps, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Computes dx, and one row of dw per program, whose sum is the gradient of w."""
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    weight = tl.load(w + cols, mask=mask, other=0.0).to(tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=STAGES):
        at = tl.cast(row, tl.int64) * n_cols + cols
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        gradient = tl.load(dy + at, mask=mask, other=0.0).to(tl.float32)
        scale = 1 / tl.sqrt(tl.sum(value * value, 0) / n_cols + eps)
        normal = value * scale
        scaled = gradient * weight
        tl.store(dx + at, (scaled - normal * (tl.sum(scaled * normal, 0) / n_cols)) * scale, mask=mask)
        total += gradient * normal
    tl.store(dw + tl.cast(tl.program_id(0), tl.int64) * n_cols + cols, total, mask=mask)


forward = persistent(rms_norm_kernel, rows="n_rows", cols="n_cols", block="BLOCK")
backward = persistent(rms_norm_gradient_kernel, rows="n_rows", cols="n_cols", block="BLOCK")
EPS = 1e-6
launches = {}  # of `backward`, by dtypes and shape: a plan takes some 50 ms


class RMSNorm(torch.autograd.Function):
    """RMSNorm of contiguous rows, with the gradients of x and w."""

    @staticmethod
    def forward(ctx, x, w):
        """Returns the rows of x, scaled."""
        y = torch.empty_like(x)
        forward(x, w, y, *x.shape, EPS)
        ctx.save_for_backward(x, w)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Returns the gradients. Programs sum over their rows, so their number is needed before the launch."""
        x, w = ctx.saved_tensors
        dy, dx = dy.contiguous(), torch.empty_like(x)
        key = x.device, dy.dtype, x.dtype, w.dtype, *x.shape
        if key not in launches:  # BLOCK and warps too: what is computed for a passed number of programs may differ from them
            plan = backward.plan(dy, x, w, dx, "*fp32:16", *x.shape, EPS)
            launches[key] = {"num_programs": plan.num_programs, **plan.meta}
        dw = torch.empty(launches[key]["num_programs"], x.shape[1], device=x.device, dtype=torch.float32)
        backward(dy, x, w, dx, dw, *x.shape, EPS, **launches[key])
        return dx, dw.sum(0).to(w.dtype)


def main() -> None:
    """Plans for an absent device, and compares with torch on the local one."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not interpreted:
        print(forward.plan("bf16[16384,4096]", "bf16[4096]", "bf16[16384,4096]", 16384, 4096, EPS, device="amd/mi300x"))
    where = torch.device("cpu") if interpreted else torch.accelerator.current_accelerator()
    if where is None:
        print("no local accelerator; TRITON_INTERPRET=1 runs the kernel on a CPU")
        return
    x, w = torch.randn(64, 3000, device=where, requires_grad=True), torch.randn(3000, device=where, requires_grad=True)
    ours, theirs = RMSNorm.apply(x, w), torch.nn.functional.rms_norm(x, (3000,), w, EPS)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    dy = torch.randn_like(x)
    gradients = torch.autograd.grad(ours, (x, w), dy), torch.autograd.grad(theirs, (x, w), dy)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    print("right on", where)


if __name__ == "__main__":
    main()
