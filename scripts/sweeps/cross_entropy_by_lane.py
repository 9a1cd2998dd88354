# mypy: ignore-errors
"""The cross-entropy whose launches are in own_h100.csv: each lane of a block has a maximum and a sum of its own."""

import triton
import triton.language as tl


@triton.jit
def cross_entropy_kernel(logits, targets, losses, n_rows, n_cols: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr):
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
