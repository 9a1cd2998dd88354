"""Times softmax against its peers on the local device: ratios to a copy and to the best peer.

The time is the median of a call with the L2 cache flushed. The providers of a problem take turns in one process, and every
result is checked against float64. The ceiling is torch's copy of as many bytes: clone forward, add of two tensors backward; of
log-probabilities, which read logits alone, a copy of half of them, beside `read`, their maximum. Gradients are calls of kernels
from this thread; `both`, and peers' gradients of log-probabilities, go through torch.autograd. `report` reads the CSV, with the
columns of scripts/results/README.md.

    python scripts/benchmark --sweep tutorial unaligned --dtype float32 bfloat16 --out rows.csv
    python scripts/benchmark --direction backward both --every 4
    python scripts/benchmark --sweep attention sampling      # scales, masks and temperatures
    python scripts/benchmark --sweep own                     # row kernels of examples/
    python scripts/benchmark --quick         # under a minute
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmark import own, rows, scores
from benchmark.here import here
from benchmark.problems import SWEEPS, Problem, problems
from benchmark.providers import NAMES
from benchmark.report import text_of
from benchmark.results import DTYPE_BYTES, OURS, Result, write
from benchmark.timing import Timed, results_of
from portable_softmax import current_device

MAKERS = {"attention": scores.timed, "sampling": scores.timed, "own": own.timed}  # others: rows.timed


def main() -> int:
    """Measures what the command line selects, writes CSV, and prints tables; returns 1 if this package failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", nargs="+", choices=SWEEPS, default=["tutorial"])
    parser.add_argument("--direction", nargs="+", default=[], help="instead of the sweep's: see problems.py")
    parser.add_argument("--dtype", nargs="+", choices=tuple(DTYPE_BYTES), default=["float32", "bfloat16"])
    parser.add_argument("--providers", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--every", type=int, default=1, metavar="K", help="only each K-th shape of a sweep")
    parser.add_argument("--turns", type=int, default=3, help="times that each provider has its turn; the median counts")
    parser.add_argument("--out", type=Path, default=Path("rows.csv"))
    parser.add_argument("--quick", action="store_true", help="the sweep `quick` forward: six shapes")
    options = parser.parse_args()
    sweeps, directions = (["quick"], ["forward"]) if options.quick else (options.sweep, options.direction)
    where, columns = current_device().vendor.torch_device_type, here()

    def measured() -> Iterator[Result]:
        for problem in problems(sweeps, options.dtype, directions, options.every):
            torch._dynamo.reset()  # torch.compile runs eagerly after too many recompilations
            yield from results_of(columns | problem.columns, timed(problem, where, options.providers), options.turns)

    results = write(options.out, measured())
    print(text_of(results))
    return int(any(result.failure for result in results if result.provider == OURS))


def timed(problem: Problem, where: str, names: list[str]) -> Timed:
    """Makes the operands and calls of a problem."""
    return MAKERS.get(problem.sweep, rows.timed)(problem, where, names)
