"""LayerNorm: a plain kernel, launched on any vendor's device without tuning.

`python examples/layer_norm.py`, or without a device `TRITON_INTERPRET=1 python examples/layer_norm.py`.
"""

import os

import torch
import triton
import triton.language as tl

from portable_softmax import persistent


@triton.jit
def layer_norm_kernel(x, w, b, y, n_rows, n_cols: tl.constexpr, eps, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Normalizes rows to mean 0 and variance 1, scales them by w and adds b."""
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=STAGES):
        at = tl.cast(row, tl.int64) * n_cols + cols
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(w + cols, mask=mask, other=0.0)
        centred = tl.where(mask, value - tl.sum(value, 0) / n_cols, 0.0)
        scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / n_cols + eps)
        bias = tl.load(b + cols, mask=mask, other=0.0)
        tl.store(y + at, centred * scale * weight.to(tl.float32) + bias.to(tl.float32), mask=mask)


forward = persistent(layer_norm_kernel, rows="n_rows", cols="n_cols", block="BLOCK")


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """Returns x, normalized along its last dimension, times w plus b."""
    x = x.contiguous()
    y = torch.empty_like(x)
    forward(x, w, b, y, x.numel() // x.shape[-1], x.shape[-1], eps)
    return y


def main() -> None:
    """Plans for an absent device, and compares with torch on the local one."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not interpreted:
        print(
            forward.plan(
                "bf16[16384,4096]", "bf16[4096]", "bf16[4096]", "bf16[16384,4096]", 16384, 4096, 1e-5, device="amd/mi300x"
            )
        )
    where = torch.device("cpu") if interpreted else torch.accelerator.current_accelerator()
    if where is None:
        print("no local accelerator; TRITON_INTERPRET=1 runs the kernel on a CPU")
        return
    x, w, b = (torch.randn(shape, device=where) for shape in ((64, 3000), (3000,), (3000,)))
    torch.testing.assert_close(layer_norm(x, w, b), torch.nn.functional.layer_norm(x, (3000,), w, b), rtol=1e-5, atol=1e-5)
    print("right on", where)


if __name__ == "__main__":
    main()
