# mypy: ignore-errors
"""Row kernels whose launches are in own_h100.csv beside those of examples/: weights_first_layer_norm is one by its WAY."""

import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x, w, y, n_rows, n_cols: tl.constexpr, eps, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Scales each row to a root mean square of 1, and by w, which is loaded ahead of all rows."""
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    weight = tl.load(w + cols, mask=mask, other=0.0).to(tl.float32)
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=STAGES):
        at = tl.cast(row, tl.int64) * n_cols + cols
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        scale = 1 / tl.sqrt(tl.sum(value * value, 0) / n_cols + eps)
        tl.store(y + at, value * scale * weight, mask=mask)


@triton.jit
def layer_norm_kernel(
    x, w, b, y, n_rows, n_cols: tl.constexpr, eps, BLOCK: tl.constexpr, STAGES: tl.constexpr, WAY: tl.constexpr
):
    """Brings each row to a mean of 0 and a variance of 1, scales it by w and adds b, which are loaded where WAY says."""
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    if WAY == "weights_first":
        weight = tl.load(w + cols, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(b + cols, mask=mask, other=0.0).to(tl.float32)
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=STAGES):
        at = tl.cast(row, tl.int64) * n_cols + cols
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        if WAY == "weights_beside":
            weight = tl.load(w + cols, mask=mask, other=0.0).to(tl.float32)
            bias = tl.load(b + cols, mask=mask, other=0.0).to(tl.float32)
        centred = tl.where(mask, value - tl.sum(value, 0) / n_cols, 0.0)
        scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / n_cols + eps)
        if WAY == "weights_last":
            weight = tl.load(w + cols, mask=mask, other=0.0).to(tl.float32)
            bias = tl.load(b + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(y + at, centred * scale * weight + bias, mask=mask)


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
