"""Times softmax against its peers on the local device: contiguous rows, ratios to a copy and to the best peer.

The time is the median of a call with the L2 cache flushed. The providers of a cell take turns in one process, and every result
is checked against float64. The ceiling is torch's copy of as many bytes: clone forward, add of two tensors backward; of
log-probabilities, which read logits alone, a copy of half of them, beside `read`, their maximum. `both`, and peers' gradients
of log-probabilities, go through torch.autograd, so the host's time shows for small matrices. `report` reads the CSV, with
the columns of scripts/results/README.md.

    python scripts/benchmark --sweep tutorial unaligned --dtype float32 bfloat16 --out rows.csv
    python scripts/benchmark --direction backward both --every 4
    python scripts/benchmark --sweep log_probs --direction token_log_probs token_entropy token_backward token_both
    python scripts/benchmark --quick         # under a minute
    python scripts/benchmark --host          # time of a call on the host, without waiting for the device
"""

import argparse
import os
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch

from benchmark.ahead import compile_ahead
from benchmark.directions import DIRECTIONS, Timed, worst_error
from benchmark.here import here
from benchmark.host import host_results
from benchmark.providers import NAMES, Provider, load
from benchmark.report import text_of
from benchmark.results import OURS, Result, write
from benchmark.sweeps import SWEEPS
from benchmark.timing import results_of
from portable_softmax import PortableSoftmaxError, current_device, plan
from portable_softmax.devices.device import Device

Wanted = tuple[str, str, str, int, int]  # direction, sweep, dtype, rows, columns
# FlagGems is not compiled ahead: it tunes itself by time, and needs a device of its own for that.
COMPILED = ("compile", "compiled_cross_entropy", "liger", "quack", "ours")


def main() -> int:
    """Measures what the command line asks for, writes CSV, and prints tables."""
    options = _options()
    providers, device = load(options.providers), current_device()
    where = device.vendor.torch_device_type
    if options.host:
        results = write(options.out, host_results(providers, where, here()))
    else:
        results = _measured(options, providers, device)
    print(text_of(results))
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
    parser.add_argument("--out", type=Path, default=Path("rows.csv"))
    parser.add_argument("--quick", action="store_true", help="the sweep `quick`: six shapes")
    parser.add_argument("--host", action="store_true", help="only microseconds on the host per call")
    options = parser.parse_args()
    options.sweep = ["quick"] if options.quick else options.sweep
    return options


def _measured(options: argparse.Namespace, providers: dict[str, Provider], device: Device) -> list[Result]:
    wanted = [
        (direction, sweep, dtype, *shape)
        for direction in options.direction
        for sweep in options.sweep
        for dtype in options.dtype
        for shape in SWEEPS[sweep][:: options.every]
    ]
    where, columns = device.vendor.torch_device_type, here()
    compile_ahead(wanted, partial(_calls, [name for name in providers if name in COMPILED], where), options.jobs)
    return write(
        options.out, (result for cell in wanted for result in _results(cell, providers, where, columns, options.turns))
    )


def _results(wanted: Wanted, providers: dict[str, Provider], where: str, columns: dict[str, Any], turns: int) -> list[Result]:
    name, sweep, dtype, n_rows, n_cols = wanted
    torch._dynamo.reset()  # torch.compile runs eagerly after too many recompilations
    direction = DIRECTIONS[name]
    inputs = direction.inputs(n_rows, n_cols, dtype, where)
    cell = {"sweep": sweep, "shape": f"{n_rows}x{n_cols}", "dim": 1, "dtype": dtype, "direction": name}
    calls = {peer: direction.call(provider, inputs) for peer, provider in providers.items()}
    results = results_of({**columns, **cell}, calls, partial(worst_error, inputs=inputs, direction=direction), turns)
    launch = _launch(n_rows, n_cols, dtype, name)
    return [msgspec.structs.replace(result, launch=launch) if result.provider == OURS else result for result in results]


def _calls(names: list[str], where: str, wanted: Wanted) -> list[Timed]:
    name, _, dtype, n_rows, n_cols = wanted
    inputs = DIRECTIONS[name].inputs(n_rows, n_cols, dtype, where)
    calls = (DIRECTIONS[name].call(provider, inputs) for provider in load(names).values())
    return [call for call in calls if call]


def _launch(n_rows: int, n_cols: int, dtype: str, direction: str) -> str:
    if direction.startswith("token"):
        return ""  # `plan` takes none
    form = "log_softmax" if direction == "log_softmax" else "softmax"
    try:
        return str(plan(n_rows, n_cols, dtype, form=form, backward=direction == "backward").tiling)
    except PortableSoftmaxError:
        return ""
