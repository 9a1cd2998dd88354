"""Fills the caches on disk of Triton, Inductor and QuACK with many processes. Without this a benchmark mostly compiles."""

import contextlib
import io
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any

import torch

Calls = Callable[[Any], Iterable[Callable[[], object]]]


def compile_ahead(cells: Sequence[Any], calls: Calls, jobs: int) -> None:
    """Makes each call once. It ignores errors: they occur again, and are printed, when a cell is measured.

    Args:
        cells: what is measured.
        calls: returns those of a cell; other processes import it by its name.
        jobs: processes; 0 for none.
    """
    if not jobs or not cells:
        return
    run = partial(_run, calls)
    processes = ProcessPoolExecutor(min(jobs, len(cells)), multiprocessing.get_context("spawn"), _start)
    with processes as pool, contextlib.suppress(BrokenProcessPool):
        futures = [pool.submit(run, cell) for cell in cells]
        for future in futures:
            future.result()


def _start() -> None:
    from torch._inductor import config

    config.compile_threads = 1  # there are many processes already
    sys.stderr = io.StringIO()  # warnings and errors are printed when a cell is measured


def _run(calls: Calls, cell: Any) -> None:
    with contextlib.suppress(Exception):
        for call in calls(cell):
            with contextlib.suppress(Exception):
                call()
    torch.get_device_module().synchronize()
    torch.get_device_module().empty_cache()
    torch._dynamo.reset()
