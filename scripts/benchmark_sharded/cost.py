"""Cost of a sharded log_softmax at 2 to 1024 ranks, on paper: bytes divided by memory's rate, and NCCL's model of collectives.

    python scripts/benchmark_sharded/cost.py [--shape 8192x262144] [--memory 4000] [--host 30]

Memory: forward reads a shard twice and writes it once; its gradient reads dy twice and y once, and writes dx. The time of a
collective is NCCL's own estimate, by which NCCL chooses algorithms (src/graph/tuning.cc: `ncclTopoTuneModel` and its constants,
protocol LL, which is for few bytes). Nothing overlaps.
"""

import argparse
import math
from collections.abc import Iterator

from tabulate import tabulate

RANKS = 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024
PER_NODE = 8  # GPUs that NVLink joins
BASE = {"tree": 6.8, "ring": 6.6}  # microseconds of any collective: `baseLatencies`, LL
HOP = {"nvlink": 0.6, "tree": 5.0, "ring": 2.7}  # microseconds of a step, within a node and between nodes: `hwLatencies`, LL
RATES = 141.0, 45.0, 35.0  # GB/s that LL reaches on Hopper within a node, on 2 nodes, on more: `llMaxBws`
PAIR, NUMBER = 8, 4  # bytes that ranks tell each other for each row


def all_gather(ranks: int, sent: int) -> float:
    """Returns the microseconds of a ring in which each rank sends `sent` bytes to all others."""
    nodes = -(-ranks // PER_NODE)
    steps, between = ranks - 1, nodes - 1
    return BASE["ring"] + (steps - between) * HOP["nvlink"] + between * HOP["ring"] + steps * sent / _rate(nodes)


def all_reduce(ranks: int, sent: int) -> float:
    """Returns the microseconds of a tree, up and down, with a chain in each node."""
    nodes = -(-ranks // PER_NODE)
    chain = min(ranks, PER_NODE) - 1
    return BASE["tree"] + 2 * (chain * HOP["nvlink"] + math.log2(nodes) * HOP["tree"]) + 2 * sent / _rate(nodes)


def _rate(nodes: int) -> float:
    """Returns bytes per microsecond."""
    return 1e3 * RATES[min(nodes, 3) - 1]


def costs(n_rows: int, n_cols: int, memory: float, host: float) -> Iterator[tuple[float, ...]]:
    """Yields the microseconds of each part, for each of RANKS.

    Args:
        n_rows, n_cols: shape of the bfloat16 matrix.
        memory: GB/s of the kernels.
        host: microseconds that a second collective adds on the host, for the exponentials of the maximum.
    """
    alone = 2 * 2 * n_rows * n_cols / memory / 1e3
    for ranks in RANKS:
        shard = 2 * n_rows * n_cols / ranks / memory / 1e3
        gathered = all_gather(ranks, PAIR * n_rows)
        reduced = 2 * all_reduce(ranks, NUMBER * n_rows) + host
        forward = 3 * shard + min(gathered, reduced)
        backward = 4 * shard + all_reduce(ranks, NUMBER * n_rows)
        yield ranks, 3 * shard, gathered, reduced, forward, 4 * shard, backward, alone / forward / ranks


def main() -> None:
    """Prints the table for the shape of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="8192x262144", help="ROWSxCOLS, of all ranks together")
    parser.add_argument("--memory", type=float, default=4000, help="GB/s that the kernels reach")
    parser.add_argument("--host", type=float, default=30, help="microseconds of what is launched between two collectives")
    options = parser.parse_args()
    n_rows, n_cols = map(int, options.shape.split("x"))
    head = "ranks", "memory", "gather", "max, sum", "forward", "memory of gradient", "gradient", "efficiency"
    rows = (
        (f"{row[0]:g}", *(f"{us:.0f}" for us in row[1:-1]), f"{row[-1]:.2f}")
        for row in costs(n_rows, n_cols, options.memory, options.host)
    )
    print(tabulate(rows, head, disable_numparse=True, stralign="right"))


if __name__ == "__main__":
    main()
