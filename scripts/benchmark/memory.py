"""Prints peak bytes of log-probabilities of tokens with their gradient, beside torch's: `python scripts/benchmark memory`."""

from collections.abc import Callable
from typing import Any

import torch
from tabulate import tabulate

from portable_softmax import current_device, token_log_probs

SHAPES = ((4096, 128256), (16384, 32000))
CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "log_softmax(logits.float()).gather(ids)": lambda x, ids: x.float().log_softmax(-1).gather(-1, ids[:, None]),
    "log_softmax(logits).gather(ids)": lambda x, ids: x.log_softmax(-1).gather(-1, ids[:, None]),
    "cross_entropy(logits, ids)": lambda x, ids: -torch.nn.functional.cross_entropy(x, ids, reduction="none"),
    "token_log_probs(logits, ids)": token_log_probs,
    "token_log_probs(logits, ids, grad_inplace=True)": lambda x, ids: token_log_probs(x, ids, grad_inplace=True),
}


def main() -> int:
    """Prints gigabytes above the logits, forward and backward."""
    where = current_device().vendor.torch_device_type
    rows = []
    for name, call in CALLS.items():
        peaks = []
        for n_rows, n_cols in SHAPES:
            leaf = torch.randn(n_rows, n_cols, device=where, dtype=torch.bfloat16, requires_grad=True)
            ids = torch.randint(n_cols, (n_rows,), device=where)
            logits = leaf.mul(1)  # of a model: the gradient in place overwrites no leaf
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            torch.autograd.grad(call(logits, ids).sum(), logits)
            peaks.append(f"{(torch.cuda.max_memory_allocated() - before) / 1e9:.2f}")
            del leaf, logits
        rows.append((name, *peaks))
    shapes = [" x ".join(map(str, shape)) for shape in SHAPES]
    print(tabulate(rows, ["GB above bfloat16 logits", *shapes], "github", disable_numparse=True))
    return 0
