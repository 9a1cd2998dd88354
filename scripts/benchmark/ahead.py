"""Fills the caches on disk of Triton, Inductor and QuACK with many processes. Without this a benchmark mostly compiles."""

import contextlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import torch

from benchmark.directions import DIRECTIONS
from benchmark.providers import load
from portable_probe.output import counted_out

Wanted = tuple[str, str, str, int, int]  # direction, sweep, dtype, rows, columns
# FlagGems is missing here: it tunes itself by time, and needs a device of its own for that.
COMPILED = ("compile", "compiled_cross_entropy", "textbook", "liger", "quack", "ours")


def compile_ahead(cells: list[Wanted], names: list[str], where: str, jobs: int) -> None:
    """Runs each provider once in each cell. It ignores errors: they occur again, and are printed, when a cell is measured."""
    names = [name for name in names if name in COMPILED]
    if not jobs or not names:
        return
    run = partial(_run, names, where)
    processes = ProcessPoolExecutor(min(jobs, len(cells)), multiprocessing.get_context("spawn"), _start)
    with processes as pool, contextlib.suppress(BrokenProcessPool):
        futures = [pool.submit(run, cell) for cell in cells]
        for future in counted_out(futures, "compiled"):
            future.result()


def _start() -> None:
    from torch._inductor import config

    config.compile_threads = 1  # there are many processes already


def _run(names: list[str], where: str, wanted: Wanted) -> None:
    name, _, dtype, n_rows, n_cols = wanted
    for provider in load(names).values():
        with contextlib.suppress(Exception):
            given = DIRECTIONS[name].inputs(n_rows, n_cols, dtype, where)
            if call := DIRECTIONS[name].call(provider, given):
                call()
    torch.get_device_module().synchronize()
    torch.get_device_module().empty_cache()
    torch._dynamo.reset()
