"""Computes log_softmax of rows that two processes hold halves of: `python examples/sharded_rows.py`.

With two GPUs or more each process takes one, over NCCL; else both run on the CPU, over Gloo.
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from portable_softmax import log_softmax

RANKS = 2


def rank(number: int, meeting: str) -> None:
    """Computes this process's columns, and compares them with those of whole rows."""
    on_gpus = torch.cuda.is_available() and torch.cuda.device_count() >= RANKS
    where = torch.device("cuda", number) if on_gpus else torch.device("cpu")
    dist.init_process_group("nccl" if on_gpus else "gloo", f"file://{meeting}", rank=number, world_size=RANKS)
    torch.manual_seed(0)
    x = torch.randn(8, 1000).to(where)  # the same on both; a real model has only its own part
    mine = slice(number * 500, (number + 1) * 500)
    part = x[:, mine].contiguous().requires_grad_()

    y = log_softmax(part, dim=-1, group=dist.group.WORLD)  # this rank's columns of the result
    y.exp().square().sum().backward()  # gradients need one more collective

    error = (y - torch.log_softmax(x.double(), -1)[:, mine]).abs().max().item()
    assert error < 1e-5, error
    print(f"rank {number} on {where}: columns {mine.start} to {mine.stop}, largest error {error:.1e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank, args=(str(Path(folder) / "meeting"),), nprocs=RANKS)
