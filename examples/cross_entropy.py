"""Cross-entropy of rows too long for registers: a plain kernel that reads each row once, launched with nothing tuned.

`python examples/cross_entropy.py`, or without a device `TRITON_INTERPRET=1 python examples/cross_entropy.py`.
"""

import torch
import triton
import triton.language as tl

from portable_softmax import current_device, persistent


@triton.jit
def cross_entropy_kernel(logits, targets, losses, n_rows, n_cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Computes log(sum(exp(row))) - row[target], with a maximum and a sum that are mended at each block."""
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        start = logits + tl.cast(row, tl.int64) * n_cols
        highest = tl.full((BLOCK,), -float("inf"), tl.float32)
        total = tl.zeros((BLOCK,), tl.float32)
        for first in tl.range(0, n_cols, BLOCK, num_stages=STAGES):
            cols = first + tl.arange(0, BLOCK)
            part = tl.load(start + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(highest, part)
            known = higher > -float("inf")
            total = tl.where(known, total * tl.exp(highest - higher) + tl.exp(part - higher), total)
            highest = higher
        most = tl.max(highest, 0)
        total = tl.sum(tl.where(highest > -float("inf"), total * tl.exp(highest - most), 0.0), 0)
        target = tl.load(start + tl.load(targets + row)).to(tl.float32)
        tl.store(losses + row, most + tl.log(total) - target)


forward = persistent(cross_entropy_kernel, rows="n_rows", cols="n_cols", block="BLOCK")


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the float32 loss of each row of logits, with the index of its target."""
    losses = torch.empty(logits.shape[0], device=logits.device, dtype=torch.float32)
    forward(logits.contiguous(), targets, losses, *logits.shape)
    return losses


def main() -> None:
    """Compares with torch on the device that is here."""
    device = current_device().vendor.torch_device_type
    logits = torch.randn(4, 128256, device=device)
    targets = torch.tensor([0, 7, 4095, 128255], device=device)
    losses = cross_entropy(logits, targets)
    torch.testing.assert_close(
        losses, torch.nn.functional.cross_entropy(logits, targets, reduction="none"), rtol=1e-5, atol=1e-5
    )
    print(forward.plan(logits, targets, losses, *logits.shape))


if __name__ == "__main__":
    main()
