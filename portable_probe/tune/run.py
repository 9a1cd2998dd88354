"""A run: compiles and times one launch after another, for as many minutes as there are."""

import contextlib
import functools
import logging
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, product, zip_longest

from portable_probe.tune.cells import FULL, Cell, problem_on
from portable_probe.tune.launches import Launch
from portable_softmax.devices.device import Device
from portable_softmax.errors import PortableSoftmaxError
from portable_softmax.planning.planner import ranked
from portable_softmax.planning.problem import next_power_of_2

BEST, BY_CHANCE = 6, 14  # launches of a softmax: those of the least cost by the numbers that there are, and others
KERNEL_BY_CHANCE = 20  # launches of a row kernel
KERNEL_COLS = {"rms_norm": (1024, 4096, 8192), "gelu": (1001, 4096), "two_pass_norm": (4096, 14336, 65536)}
KERNEL_ROWS = FULL, FULL // 16  # elements of all rows
BLOCKS, STAGES, MOST_EACH = (1024, 2048, 4096, 8192), (1, 3), 64
Job = Callable[[], Launch]  # compiles


def timed_launches(device: Device, jobs: Sequence[Job], minutes: float) -> list[Launch]:
    """Returns launches with their times: all that there are when the minutes are up, at Ctrl-C, or when the device fails.

    A launch that does not compile, or whose result is wrong, is printed and left out. After any other error the device may be
    unusable, so it ends the run.
    """
    from portable_probe.tune.measuring import timed

    began, launches = time.monotonic(), list[Launch]()
    with _errors_alone(), contextlib.suppress(KeyboardInterrupt):
        for job in jobs:
            if time.monotonic() - began > 60 * minutes:
                break
            try:
                launches.append(timed(job()))
            except Exception as error:
                words = ", ".join(map(str, getattr(job, "args", ())))
                print(f"{words}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                if not isinstance(error, PortableSoftmaxError):
                    break
    print(f"{len(launches)} of {len(jobs)} launches timed in {time.monotonic() - began:.0f} s", flush=True)
    return launches


@contextlib.contextmanager
def _errors_alone() -> Iterator[None]:
    """Silences warnings of slow launches, which most of the timed ones are on purpose."""
    logger = logging.getLogger("portable_softmax")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def in_turns(problems: Sequence[Sequence[Job]]) -> list[Job]:
    """Returns a launch of each problem in an order by chance, then the next one of each."""
    turns = [[job for job in turn if job] for turn in zip_longest(*problems)]
    for number, turn in enumerate(turns):
        random.Random(number).shuffle(turn)
    return list(chain.from_iterable(turns))


def softmax_jobs(cell: Cell, device: Device) -> list[Job]:
    """Returns a softmax's launches: those of the least cost and others by chance in turn, each time the same."""
    from portable_probe.tune.measuring import compiled

    problem = problem_on(cell, device)
    jobs = (
        [functools.partial(compiled, cell, choice.problem, choice.tiling) for choice in ranked(problem, device)]
        if problem
        else []
    )
    others = jobs[BEST:]
    random.Random(f"{cell.kind} {cell.n_cols} {cell.dtype} {cell.backward}").shuffle(others)  # one length shares kernels
    return [job for pair in zip_longest(jobs[:BEST], others[:BY_CHANCE]) for job in pair if job]


def kernel_jobs(device: Device) -> list[list[Job]]:
    """Returns launches of row kernels by chance, of each kernel, length and type."""
    from portable_probe.tune.measuring import compiled_kernel

    warp, threads = device.hardware.warp_size or 1, device.hardware.max_threads_per_program or 1
    warps = [1 << power for power in range((threads // warp).bit_length())]
    jobs: list[list[Job]] = []
    for kernel, dtype, elements in product(KERNEL_COLS, ("float32", "bfloat16"), KERNEL_ROWS):
        for n_cols in KERNEL_COLS[kernel]:
            blocks = [next_power_of_2(n_cols)] if kernel != "two_pass_norm" else [b for b in BLOCKS if b < n_cols]
            settings = [
                ({"BLOCK": block, "STAGES": stages, "num_warps": num_warps}, walks)
                for block, stages, num_warps, walks in product(blocks, STAGES, warps, (False, True))
                if 1 <= block / (num_warps * warp) <= MOST_EACH
            ]
            random.Random(f"{kernel} {dtype} {n_cols}").shuffle(settings)
            of = kernel, dtype, (elements // n_cols, n_cols)
            jobs.append([functools.partial(compiled_kernel, *of, *setting) for setting in settings[:KERNEL_BY_CHANCE]])
    return jobs
