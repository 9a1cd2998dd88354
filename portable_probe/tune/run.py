"""A run: compiles and times one launch after another, for as many minutes as there are."""

import contextlib
import logging
import random
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest

from portable_probe.tune.cells import Cell, problem_on
from portable_probe.tune.files import Launch
from portable_probe.tune.measuring import compiled, timed
from portable_softmax.devices.device import Device
from portable_softmax.errors import PortableSoftmaxError
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.planner import ranked
from portable_softmax.planning.problem import Problem

BEST, BY_CHANCE = 6, 14  # launches of a problem: those of the least cost by the numbers that there are, and others
Job = tuple[Cell, Problem, Tiling]


def timed_launches(device: Device, cells: Sequence[Cell], minutes: float) -> list[Launch]:
    """Returns launches with their times: all that there are when the minutes are up, at Ctrl-C, or when the device fails.

    A launch that does not compile, or whose result is wrong, is printed and left out. After any other error the device may be
    unusable, so it ends the run.
    """
    began, found = time.monotonic(), list[Launch]()
    jobs = _in_turns(cells, device)
    with _errors_alone(), contextlib.suppress(KeyboardInterrupt):
        for job in jobs:
            if time.monotonic() - began > 60 * minutes:
                break
            try:
                found.append(timed(compiled(*job)))
            except Exception as error:
                print(f"{', '.join(map(str, job))}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                if not isinstance(error, PortableSoftmaxError):
                    break
    print(f"{len(found)} of {len(jobs)} launches timed in {time.monotonic() - began:.0f} s", flush=True)
    return found


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


def _in_turns(cells: Sequence[Cell], device: Device) -> list[Job]:
    """Returns a launch of each problem in an order by chance, then the next one of each."""
    turns = [[job for job in turn if job] for turn in zip_longest(*(jobs_of(cell, device) for cell in cells))]
    for number, turn in enumerate(turns):
        random.Random(number).shuffle(turn)
    return list(chain.from_iterable(turns))


def jobs_of(cell: Cell, device: Device) -> list[Job]:
    """Returns a problem's launches: those of the least cost and others by chance in turn, each time the same."""
    problem = problem_on(cell, device)
    found = [(cell, each.problem, each.tiling) for each in ranked(problem, device)] if problem else []
    others = found[BEST:]
    random.Random(f"{cell.kind} {cell.n_cols} {cell.dtype} {cell.backward}").shuffle(others)  # one length shares kernels
    return [job for pair in zip_longest(found[:BEST], others[:BY_CHANCE]) for job in pair if job]
