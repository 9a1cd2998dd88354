"""Cross-entropy of rows too long for registers: a plain kernel that reads each row once, launched without tuning.

`python examples/cross_entropy.py`, or without a device `TRITON_INTERPRET=1 python examples/cross_entropy.py`.
"""

import os

import torch
import triton
import triton.language as tl

from portable_softmax import persistent


@triton.jit
def cross_entropy_kernel(logits, targets, losses, n_rows, n_cols: tl.constexpr, BLOCK: tl.constexpr):
    """Computes log(sum(exp(row))) - row[target], with a running maximum and sum."""
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        start = logits + tl.cast(row, tl.int64) * n_cols
        label = tl.load(targets + row)
        highest = tl.full((), -float("inf"), tl.float32)
        total = tl.zeros((), tl.float32)
        for first in range(0, n_cols, BLOCK):
            cols = first + tl.arange(0, BLOCK)
            part = tl.load(start + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(highest, tl.max(part, 0))
            base = tl.where(higher > -float("inf"), higher, 0.0)
            total = total * tl.exp(highest - base) + tl.sum(tl.exp(part - base), 0)
            highest = higher
        target = tl.load(start + label).to(tl.float32)
        tl.store(losses + row, highest + tl.log(total) - target)


forward = persistent(cross_entropy_kernel, rows="n_rows", cols="n_cols", block="BLOCK")


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the float32 loss of each row of logits, with the index of its target."""
    losses = torch.empty(logits.shape[0], device=logits.device, dtype=torch.float32)
    forward(logits.contiguous(), targets, losses, *logits.shape)
    return losses


def main() -> None:
    """Plans for an absent device, and compares with torch on the local one."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not interpreted:
        print(forward.plan("bf16[4096,128256]", "i64[4096]", "f32[4096]", 4096, 128256, device="amd/mi300x"))
    where = torch.device("cpu") if interpreted else torch.accelerator.current_accelerator()
    if where is None:
        print("no local accelerator; TRITON_INTERPRET=1 runs the kernel on a CPU")
        return
    logits, targets = torch.randn(4, 128256, device=where), torch.tensor([0, 7, 4095, 128255], device=where)
    theirs = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    torch.testing.assert_close(cross_entropy(logits, targets), theirs, rtol=1e-5, atol=1e-5)
    print("right on", where)


if __name__ == "__main__":
    main()
