"""Times the softmax of scores as attention and sampling call it: scale, masks, causal, temperature.

`copy` moves the bytes that must move: x where no mask hides it, the mask once, the result; of a gradient all three tensors.
`torch` takes an operator for each step, and `compile` fuses those. Results are compared with float64. `plain` is this package's
softmax of the same types. The CSV has the columns of scripts/results/README.md; directions are named in words.

    python scripts/benchmark scores --out scores.csv
    python scripts/benchmark scores --sweep sampling --turns 3
"""

import argparse
import math
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from benchmark.ahead import compile_ahead
from benchmark.here import here
from benchmark.ratios import mean, text
from benchmark.report import text_of
from benchmark.results import OURS, Result, cells_of, write
from benchmark.scored_calls import Problem, timed
from benchmark.timing import Call, results_of
from portable_softmax import current_device

HEADS = ((64, 16, 197, 197), (32, 12, 512, 512), (8, 16, 2048, 2048), (1, 16, 4096, 4096), (1, 4, 8192, 8192))
SAMPLED = tuple((n_rows, n_cols) for n_rows in (1, 8, 64, 256) for n_cols in (32_000, 128_256, 256_000))
MASKS = "boolean mask", "added mask", "causal"


def problems(sweeps: list[str], dtypes: list[str]) -> Iterator[Problem]:
    """Yields what is timed."""
    for dtype in dtypes:
        if "attention" in sweeps:
            directions = *MASKS, "gradient, boolean mask", "gradient, causal"
            yield from (Problem("attention", shape, dtype, direction) for shape in HEADS for direction in directions)
        if "sampling" in sweeps:
            yield from (
                Problem("sampling", shape, dtype, direction) for shape in SAMPLED for direction in ("temperature", "plain")
            )


def main() -> int:
    """Times all problems, writes CSV, and prints tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", nargs="+", choices=("attention", "sampling"), default=["attention", "sampling"])
    parser.add_argument(
        "--dtype", nargs="+", choices=("float32", "bfloat16", "float16"), default=["bfloat16", "float32", "float16"]
    )
    parser.add_argument("--turns", type=int, default=2, help="times that each provider has its turn; the median counts")
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 2) - 1, help="processes that compile ahead; 0 for none")
    parser.add_argument("--out", type=Path, default=Path("scores.csv"))
    options = parser.parse_args()
    where, columns = current_device().vendor.torch_device_type, here()
    wanted = list(problems(options.sweep, options.dtype))
    compile_ahead(wanted, partial(_calls, where), options.jobs)

    def measured() -> Iterator[Result]:
        for problem in wanted:
            torch._dynamo.reset()  # torch.compile runs eagerly after too many recompilations
            cell = {"shape": "x".join(map(str, problem.shape)), "dim": len(problem.shape) - 1, "dtype": problem.dtype}
            names = {"sweep": problem.sweep, "direction": problem.direction}
            yield from results_of({**columns, **cell, **names}, *timed(problem, where), options.turns)

    results = write(options.out, measured())
    print(text_of(results))
    print(_beside_plain(results))
    return int(any(result.failure for result in results if result.provider == OURS))


def _calls(where: str, problem: Problem) -> list[Call]:
    return list(timed(problem, where).calls.values())


def _beside_plain(results: list[Result]) -> str:
    """Returns how a temperature's time compares with that of the plain softmax."""
    us = {
        (cell.result.shape, cell.result.dtype, cell.result.direction): cell.us.get(OURS, math.nan) for cell in cells_of(results)
    }
    ratios = [time / us[shape, dtype, "plain"] for (shape, dtype, direction), time in us.items() if direction == "temperature"]
    return f"time with a temperature: {text(mean(ratios))} of a plain softmax's, at most {text(max(ratios, default=math.nan))}"
