"""A run: compiles a designed set of launches, and times as many of them as there are minutes for."""

import contextlib
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from portable_probe.tune.cells import Cell, problem_on
from portable_probe.tune.files import Launch
from portable_probe.tune.measuring import compiled, timed
from portable_probe.tune.processes import Failed, Job, answers
from portable_softmax.devices.device import Device
from portable_softmax.planning.planner import ranked

COMPILING = 0.45  # of all seconds
BEST, BY_CHANCE = 6, 14  # launches of a problem: those of the least cost by the numbers that there are, and others
LIMIT_S = 20.0  # that one launch may take to compile, and to be timed
PROCESSES = max(1, (os.cpu_count() or 2) - 1)


def timed_launches(device: Device, cells: Sequence[Cell], minutes: float) -> list[Launch]:
    """Returns launches with their times, in an order by chance; all that there are when the minutes are up, or at Ctrl-C."""
    began, found = time.monotonic(), list[Launch]()
    jobs = [job for turn in zip_longest(*(jobs_of(cell, device) for cell in cells)) for job in turn if job]
    with contextlib.suppress(KeyboardInterrupt):
        launches = list(_done(compiled, jobs, PROCESSES, began + 60 * COMPILING * minutes))
        print(f"{len(launches)} of {len(jobs)} launches compiled in {time.monotonic() - began:.0f} s", flush=True)
        random.Random(1).shuffle(launches)
        for launch in _done(timed, [(each,) for each in launches], 1, began + 60 * minutes):
            found.append(launch)
    print(f"{len(found)} launches timed in {time.monotonic() - began:.0f} s", flush=True)
    return found


def jobs_of(cell: Cell, device: Device) -> list[Job]:
    """Returns a problem's launches: those of the least cost and others by chance in turn, each time the same."""
    problem = problem_on(cell, device)
    found = [(cell, each.problem, each.tiling) for each in ranked(problem, device)] if problem else []
    others = found[BEST:]
    random.Random(f"{cell.kind} {cell.n_cols} {cell.dtype} {cell.backward}").shuffle(others)  # one length shares kernels
    return [job for pair in zip_longest(found[:BEST], others[:BY_CHANCE]) for job in pair if job]


def _done(function: Callable[..., Launch], jobs: Sequence[Job], n_processes: int, ends: float) -> Iterator[Launch]:
    """Yields what jobs give, and tells of those that fail."""
    for job, found in answers(function, jobs, n_processes, LIMIT_S, ends):
        if isinstance(found, Failed):
            print(f"{', '.join(map(str, job))}: {found.reason}", file=sys.stderr, flush=True)
        else:
            yield found
