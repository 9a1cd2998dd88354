#!/usr/bin/env python3
"""Times softmax against its peers on the device that is here: GB/s, and ratios to a copy and to the best peer.

GB/s counts each input read once and each output written once, over the median time of a call with the L2 cache flushed.
The providers of a cell are timed in turns, in one process, and every result is checked against float64.

    python scripts/benchmark.py --sweep tutorial ragged --dtype float32 bfloat16 --out results
    python scripts/benchmark.py --quick
    python scripts/benchmark.py --host          # time of a call on the host, nothing waited for
"""

import argparse
import csv
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import triton
from providers import forward_providers, worst_error
from tqdm import tqdm
from triton.testing import do_bench

SWEEPS = {
    "tutorial": [(4096, 128 * i) for i in range(2, 100)],
    "wide": [(32768, 128 * i) for i in range(1, 17)],
    "long": [(2**28 // n_cols, n_cols) for n_cols in (16384, 32768, 65536, 131072, 262144)],
    "few": [(m, n) for m in (1, 2, 4, 8, 16, 32, 64, 128) for n in (32000, 50257, 128256, 151936, 262144)],
    "ragged": [(m, n) for m in (1823, 4096, 32768) for n in (781, 1000, 1823, 12673)] + [(1024, 50257), (512, 151936)],
}
QUICK = [(4096, 128), (4096, 781), (4096, 4096), (4096, 12672), (1024, 32768), (512, 262144), (8, 128256), (128, 151936)]
PEERS = ("torch", "compile", "liger", "flaggems", "quack")


def main() -> int:
    options = _options()
    providers = {name: make for name, make in forward_providers().items() if name in options.providers or not options.providers}
    if options.host:
        _host_times(providers)
        return 0
    shapes = QUICK if options.quick else [shape for sweep in options.sweep for shape in SWEEPS[sweep]]
    cells = [
        _cell(shape, dtype, providers, options.turns)
        for shape, dtype in tqdm([(shape, dtype) for dtype in options.dtype for shape in shapes], file=sys.stderr)
    ]
    _write(cells, Path(options.out))
    _print_table(cells, list(providers))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", nargs="+", choices=tuple(SWEEPS), default=["tutorial"])
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16", "float16"), default=["float32", "bfloat16"])
    parser.add_argument("--providers", nargs="+", default=[], help="only these")
    parser.add_argument("--turns", type=int, default=3, help="times that each provider has its turn; the median counts")
    parser.add_argument("--out", default="results", help="folder of the CSV, the JSON and the plots")
    parser.add_argument("--quick", action="store_true", help="eight shapes, under a minute")
    parser.add_argument("--host", action="store_true", help="microseconds on the host per call")
    return parser.parse_args()


def _cell(shape: tuple[int, int], dtype: str, providers: dict[str, Any], turns: int) -> dict[str, Any]:
    """GB/s of every provider for one shape and type; None where it fails, refuses or is wrong."""
    x = torch.randn(shape, device="cuda", dtype=getattr(torch, dtype))
    timed = {name: fn for name, make in providers.items() if (fn := _checked(name, make, x)) is not None}
    times: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(turns):
        for name, fn in timed.items():
            times[name].append(do_bench(fn, warmup=5, rep=20, return_mode="median"))
    moved = 2e-6 * x.numel() * x.element_size()
    rates = {name: moved / statistics.median(times[name]) if name in times else None for name in providers}
    return {"n_rows": shape[0], "n_cols": shape[1], "dtype": dtype} | rates


def _checked(name: str, make: Any, x: torch.Tensor) -> Any:
    try:
        fn = make(x)
        right = name == "copy" or worst_error(fn(), x) <= (1 if name == "ours" else 1e4)
    except Exception as error:  # a peer that refuses a shape does so in its own way
        tqdm.write(f"{name} {tuple(x.shape)} {x.dtype}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
        return None
    if not right:
        tqdm.write(f"{name} {tuple(x.shape)} {x.dtype}: WRONG", file=sys.stderr)
    return fn if right else None


def _best_peer(cell: dict[str, Any]) -> float:
    return max((cell[name] for name in PEERS if cell.get(name)), default=math.nan)


def _write(cells: list[dict[str, Any]], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    machine = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    (directory / "benchmark.json").write_text(json.dumps(machine | {"unit": "GB/s", "cells": cells}, indent=1) + "\n")
    with (directory / "benchmark.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(cells[0]))
        writer.writeheader()
        writer.writerows(cells)
    _plot(cells, directory)


def _plot(cells: list[dict[str, Any]], directory: Path) -> None:
    from matplotlib.figure import Figure

    for dtype in dict.fromkeys(cell["dtype"] for cell in cells):
        figure = Figure(figsize=(9, 5), layout="constrained")
        axes = figure.subplots()
        chosen = sorted((cell for cell in cells if cell["dtype"] == dtype), key=lambda cell: (cell["n_cols"], cell["n_rows"]))
        for name in list(cells[0])[3:]:
            rates = [cell[name] for cell in chosen]
            axes.plot(
                [cell["n_cols"] for cell in chosen], rates, "o" if name == "ours" else ".", label=name
            )  # no lines: sweeps differ in rows
        axes.set(xscale="log", xlabel="columns", ylabel="GB/s", title=f"softmax, {dtype}, {torch.cuda.get_device_name()}")
        axes.legend()
        figure.savefig(directory / f"benchmark_{dtype}.png", dpi=150)


def _print_table(cells: list[dict[str, Any]], names: list[str]) -> None:
    print(f"{'dtype':9}{'rows':>8}{'cols':>8}" + "".join(f"{name:>9}" for name in names) + f"{'/copy':>8}{'/best':>8}")
    for cell in cells:
        rates = "".join(f"{cell[name]:9.0f}" if cell[name] else f"{'-':>9}" for name in names)
        ours = cell["ours"] or math.nan
        to_copy, to_best = ours / (cell.get("copy") or math.nan), ours / _best_peer(cell)
        print(f"{cell['dtype']:9}{cell['n_rows']:8}{cell['n_cols']:8}{rates}{to_copy:8.2f}{to_best:8.2f}")
    for title, of in (("copy", lambda cell: cell.get("copy")), ("the best peer", _best_peer)):
        ratios = [cell["ours"] / of(cell) for cell in cells if cell["ours"] and of(cell) and not math.isnan(of(cell))]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            print(f"geometric mean to {title}: {mean:.3f}; below it in {sum(r < 1 for r in ratios)} of {len(ratios)} cells")


def _host_times(providers: dict[str, Any]) -> None:
    x = torch.randn(128, 256, device="cuda")
    for name, make in providers.items():
        fn = make(x)
        for _ in range(100):
            fn()
        best = math.inf
        for _ in range(7):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(500):
                fn()
            best = min(best, (time.perf_counter() - start) / 500 * 1e6)
        print(f"{name:10}{best:8.2f} us per call")


if __name__ == "__main__":
    raise SystemExit(main())
