"""Times softmax against its peers on the device here: GB/s, and ratios to a copy and to the best peer.

GB/s counts the bytes that must move: x and y forward (also log_softmax); dy, y and dx backward; all five for both. The time is
the median of a call with the L2 cache flushed. The providers of a cell take turns in one process, and every result is checked
against float64. The ceiling is torch's copy of as many bytes: clone forward, add of two tensors backward. `both` goes through
torch.autograd, so the host's time shows for small matrices. `report` reads the CSV.

    python scripts/benchmark --sweep tutorial ragged --dtype float32 bfloat16 --out results
    python scripts/benchmark --direction backward both --every 4
    python scripts/benchmark --quick         # under a minute
    python scripts/benchmark --host          # time of a call on the host, without waiting for the device
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
from pathlib import Path

import torch
import triton
from tqdm import tqdm
from triton.testing import do_bench

from benchmark.ahead import compile_ahead
from benchmark.directions import DIRECTIONS, Direction, Inputs, Timed, worst_error
from benchmark.host import host_table, host_times
from benchmark.providers import NAMES, Provider, load
from benchmark.report import plot, report
from benchmark.results import Cell, save
from benchmark.sweeps import SWEEPS
from portable_softmax import current_device

PEER_ERROR = 20  # times our allowed error: a peer that is only less exact is still timed


def main() -> int:
    """Measures what the command line asks for, writes CSV, JSON and plots, and prints tables."""
    options = _options()
    providers, device = load(options.providers), current_device()
    where = device.vendor.torch_device_type
    cells = [] if options.host else _measured(options, providers, where)
    host = {} if options.quick else host_times(providers, where)
    print(f"{device.name}, torch {torch.__version__}, Triton {triton.__version__}", host_table(host), sep="\n\n")
    if cells:
        run = {"device": device.name, "torch": torch.__version__, "triton": triton.__version__, "host_us": host, "unit": "GB/s"}
        run["cells"] = [dataclasses.asdict(cell) for cell in cells]
        (options.out / "benchmark.json").write_text(json.dumps(run, indent=1) + "\n")
        plot(cells, options.out)
        print(report(cells))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--direction", nargs="+", choices=tuple(DIRECTIONS), default=["forward"])
    parser.add_argument("--sweep", nargs="+", choices=tuple(SWEEPS), default=["tutorial"])
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16", "float16"), default=["float32", "bfloat16"])
    parser.add_argument("--providers", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--every", type=int, default=1, metavar="K", help="only each K-th shape of a sweep")
    parser.add_argument("--turns", type=int, default=3, help="times that each provider has its turn; the median counts")
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 2) - 1, help="processes that compile ahead; 0 for none")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the CSV, the JSON and the plots")
    parser.add_argument("--quick", action="store_true", help="the sweep `quick`: six shapes, and no host times")
    parser.add_argument("--host", action="store_true", help="only microseconds on the host per call")
    options = parser.parse_args()
    options.sweep = ["quick"] if options.quick else options.sweep
    return options


def _measured(options: argparse.Namespace, providers: dict[str, Provider], where: str) -> list[Cell]:
    wanted = [
        Cell(direction, sweep, dtype, *shape, {})
        for direction in options.direction
        for sweep in options.sweep
        for dtype in options.dtype
        for shape in SWEEPS[sweep][:: options.every]
    ]
    compile_ahead(wanted, list(providers), where, options.jobs)
    options.out.mkdir(parents=True, exist_ok=True)
    cells = (_measure(cell, providers, where, options.turns) for cell in tqdm(wanted, desc="measure", file=sys.stderr))
    return save(cells, list(providers), options.out / "benchmark.csv")


def _measure(cell: Cell, providers: dict[str, Provider], where: str, turns: int) -> Cell:
    torch._dynamo.reset()  # torch.compile runs eagerly after too many recompilations
    given, direction = Inputs.random(cell.n_rows, cell.n_cols, cell.dtype, where), DIRECTIONS[cell.direction]
    timed = {name: call for name, provider in providers.items() if (call := _checked(name, provider, given, direction))}
    times: dict[str, list[float]] = {name: [] for name in timed}
    for name, call in turns * list(timed.items()):
        times[name].append(do_bench(call, warmup=3, rep=12, return_mode="median"))
    moved = 1e-6 * direction.streams * given.x.nbytes
    return dataclasses.replace(cell, rates={name: moved / statistics.median(each) for name, each in times.items()})


def _checked(name: str, provider: Provider, given: Inputs, direction: Direction) -> Timed | None:
    """Returns the call to time; None if there is none, if it fails, or if its result is wrong."""
    try:
        call = direction.call(provider, given)
        if call is None or name == "copy":
            return call
        worst = worst_error(call(), given, direction)
        if worst <= (1 if name == "ours" else PEER_ERROR):
            return call
        trouble = f"WRONG: {worst:.3g} times the error that is allowed"
    except Exception as error:  # each peer refuses a shape in its own way
        trouble = f"{type(error).__name__}: {str(error)[:100]}"
    tqdm.write(f"{name} {tuple(given.x.shape)} {given.x.dtype}: {trouble}", file=sys.stderr)
    return None
