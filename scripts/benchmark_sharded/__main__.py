"""Times a vocabulary-parallel log_softmax against torch's own, and checks every result against float64.

    torchrun --standalone --nproc-per-node 2 scripts/benchmark_sharded --out sharded.csv
    torchrun --standalone --nproc-per-node 2 scripts/benchmark_sharded --shapes 16x400    # without GPUs: over Gloo

`forward` is log_softmax; `both` adds its gradient for any dy; `loss` is the mean cross entropy with its gradient. Tokens per
second are rows divided by the slowest rank's median time. The name of a provider ends in ` x1` if each rank computes all
columns by itself, as one device would. `loss_parallel` has no gradient for any dy; without it, torch's DTensor gathers its
shards. A run that takes longer than --limit ends and prints how far it got; the file has every time until then, in the
columns of scripts/results/README.md.
"""

import argparse
import contextlib
import datetime
import faulthandler
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

if not __package__:  # Python was started with the folder's name and has put the folder itself on the path
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmark import results
from benchmark.here import here

from benchmark_sharded.checks import check
from benchmark_sharded.kernels import time_steps
from benchmark_sharded.providers import DIRECTIONS, Given, Provider, call_of, providers
from benchmark_sharded.tables import tables
from benchmark_sharded.timing import time_call
from portable_softmax import log_softmax

WORDS = {"forward": "log_softmax", "both": "log_softmax and gradient", "loss": "cross entropy and gradient"}


def main() -> int:
    """Measures what the command line asks for; rank 0 prints tables and writes CSV."""
    options = _options()
    faulthandler.dump_traceback_later(options.limit, exit=True)
    where, began = _begin(options), time.monotonic()
    name = "cpu" if where.type == "cpu" else torch.cuda.get_device_name(where)
    run: dict[str, Any] = {"world": dist.get_world_size(), "device": name, "torch": torch.__version__}
    run |= {"cells": [], "steps": [], "runs": [], "told": here()}
    for shape in options.shapes:
        n_rows, n_cols = map(int, shape.split("x"))
        given = Given.random(n_rows, n_cols, where)
        for direction in DIRECTIONS:
            _measure(run, given, direction, options)
            _write(run, options.out)
            _tell(f"{time.monotonic() - began:.0f} s: {direction} of {shape}")
        run["steps"] += time_steps(given, options.calls)
        run["runs"].append(f"{shape}: {_late(given, options.runs)}")
        _write(run, options.out)
    _tell(tables(run))
    if options.graph and where.type == "cuda":
        run["graph"] = _graph(where)
        _tell(f"CUDA graph: {run['graph']}")
    run["seconds"] = time.monotonic() - began
    _write(run, options.out)
    faulthandler.cancel_dump_traceback_later()
    with contextlib.suppress(Exception):
        dist.destroy_process_group()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    switch = argparse.BooleanOptionalAction
    parser.add_argument("--shapes", nargs="+", default=["4096x151936", "8192x262144"], help="ROWSxCOLS, of all ranks together")
    parser.add_argument("--out", type=Path, default=Path("sharded.csv"))
    parser.add_argument("--turns", type=int, default=3, help="times that a provider is timed; the median counts")
    parser.add_argument("--calls", type=int, default=5, help="calls of a turn")
    parser.add_argument("--runs", type=int, default=20, help="in which one rank comes late, and whose bits are compared")
    parser.add_argument("--limit", type=float, default=170, help="seconds after which the process ends")
    parser.add_argument("--graph", action=switch, default=True, help="capture a CUDA graph, last of all")
    parser.add_argument("--cpu", action="store_true", help="Gloo, though there are GPUs")
    return parser.parse_args()


def _begin(options: argparse.Namespace) -> torch.device:
    """Joins the group that torchrun describes, or a group of one without torchrun."""
    for key, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512"}.items():
        os.environ.setdefault(key, value)
    timeout = datetime.timedelta(seconds=60)
    if options.cpu or not torch.cuda.is_available():
        dist.init_process_group("gloo", timeout=timeout)
        return torch.device("cpu")
    where = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(where)
    dist.init_process_group("nccl", timeout=timeout, device_id=where)
    return where


def _measure(run: dict[str, Any], given: Given, direction: str, options: argparse.Namespace) -> None:
    """Adds a cell for each provider that has the direction: its time and its errors, or the reason why it failed."""
    for name, make in providers(given).items():
        cell: dict[str, Any] = {
            "n_rows": given.x.shape[0],
            "n_cols": given.x.shape[1],
            "direction": direction,
            "provider": name,
        }
        try:
            cell |= _cell(make(), given, direction, options)
        except Exception as error:  # a peer refuses a shape on all ranks alike
            cell["error"] = f"{type(error).__name__}: {str(error)[:300]}"
        if len(cell) > 4:
            run["cells"].append(cell)
        if given.x.is_cuda:
            torch.cuda.empty_cache()


def _cell(provider: Provider, given: Given, direction: str, options: argparse.Namespace) -> dict[str, Any]:
    if direction not in provider.directions:
        return {}
    call = call_of(provider, given, direction)
    errors = check(call(), given, direction)
    seconds = time_call(call, given.x.device, options.turns, options.calls)
    return {**errors, "ms": 1e3 * seconds, "tokens_per_s": len(given.x) / seconds}


def _late(given: Given, runs: int) -> str:
    """Runs forward and backward, each time with one late rank, and compares the sums of all results."""
    x, dy = given.own_x(), given.dy[:, given.part].contiguous()
    first, alike = None, 0
    for run in range(runs):
        time.sleep(0.02 * ((run + dist.get_rank()) % dist.get_world_size()))
        y = log_softmax(x, group=dist.group.WORLD)
        (dx,) = torch.autograd.grad(y, x, dy)
        found = y.detach().sum(dtype=torch.float64).item(), dx.sum(dtype=torch.float64).item()
        first = first or found
        alike += found == first
    return f"{runs} of {runs} without a hang, {alike} with the same sums"


def _graph(where: torch.device) -> str:
    """Captures a sharded log_softmax with its collective, and replays it with other numbers."""
    x, group = torch.randn(512, 16384, device=where, dtype=torch.bfloat16), dist.group.WORLD
    try:
        for _ in range(3):
            log_softmax(x, group=group)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            y = log_softmax(x, group=group)
        alike = 0
        for _ in range(20):
            x.copy_(torch.randn_like(x))
            graph.replay()
            alike += torch.equal(y, log_softmax(x, group=group))
    except Exception as error:  # this runs last, because the process may be unusable afterwards
        return f"{type(error).__name__}: {str(error)[:300]}"
    return f"{alike} of 20 replays give the bits of a call"


def _write(run: dict[str, Any], path: Path) -> None:
    """Writes the times on rank 0. What else the run found is printed at its end."""
    if dist.get_rank() == 0:
        results.write(path, (_result(cell, run) for cell in run["cells"]))


def _result(cell: dict[str, Any], run: dict[str, Any]) -> results.Result:
    time_us = {} if "error" in cell else {"median_us": 1e3 * cell["ms"], "error": cell["worst_error"]}
    return results.Result(
        **{**run["told"], "device": f"{run['world']} x {run['device']}"}, sweep="sharded", provider=cell["provider"],
        shape=f"{cell['n_rows']}x{cell['n_cols']}", layout="sharded along 1", dim=1, dtype="bfloat16",
        direction=WORDS[cell["direction"]], failure=cell.get("error", "").replace("\n", " "), **time_us,
    )  # fmt: skip


def _tell(text: str) -> None:
    if dist.get_rank() == 0:
        print(text, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
