#!/usr/bin/env python3
"""Times launches of the grid and today's plans, with what each uses, for scripts/fit_cost.py. See --help.

Kernels are compiled in as many processes as there are processors; then one process checks and times each launch, the cache
flushed before each run. What was timed is in the file even if the time ends before all is.
"""

import argparse
import csv
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

from portable_probe.tune.cells import DTYPES, INNER, ODD_INNER, Cell, problem_on
from portable_probe.tune.measuring import Launch, plan_on, timed
from portable_probe.tune.processes import Failed, answers
from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.detect import chosen
from portable_softmax.devices.device import Device
from portable_softmax.errors import PortableSoftmaxError
from portable_softmax.planning.grid import grid, ranked
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.reading import as_read
from portable_softmax.runtime.compiled import resources_of
from portable_softmax.runtime.specialization import KernelSpec

COMPILING = 0.4  # of all seconds
KERNEL_S = 20.0  # that one kernel, or one plan, may take
FULL = 2**24  # elements
TILING = "tile_rows", "width", "num_warps", "splits", "blocks", "held", "max_registers"
USED = "registers_per_thread", "shared_memory_bytes", "spilled_bytes_per_thread", "stack_frame_bytes"
COLUMNS = "kind", "n_rows", "n_cols", "dtype", "backward", *TILING, *USED, "resident", "planned", "us", "copy_us"
# Lengths of rows by class, and elements of all rows. Classes of one layout share lengths, as they then share kernels.
SHAPES: dict[tuple[str, int], tuple[int, ...]] = {
    ("short", FULL): (16, 64, 256, 512),
    ("row", FULL): (1024, 2048, 4096, 8192, 12672, 16384),
    ("row", FULL // 8): (256, 1024, 4096, 8192),
    ("long", FULL): (32768, 50304, 131072, 262144),
    ("few", 2**20): (8192, 32768, 131072),
    ("few", 2**17): (1024, 131072),
    ("unaligned", FULL): (33, 201, 781, 1601, 6401, 50257),
    ("unaligned", 2**19): (50257,),
    ("across", FULL): (16, 128, 1024, 8192, 65536),
    ("across odd", FULL): (16, 256, 4096),
    ("transposed", FULL): (64, 512, 4096, 32768),
}
Used = tuple[KernelResources, int]  # and programs on a multiprocessor


def main() -> None:
    """Compiles, times and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", help="file to write")
    parser.add_argument("--seconds", type=float, default=290, help="that all may take")
    parser.add_argument("--each", type=int, default=20, help="launches of the grid for each problem, by chance")
    parser.add_argument("--best", type=int, default=0, help="those of the least cost, with estimated registers")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="that compile at once")
    parser.add_argument("--kinds", nargs="*", default=sorted({kind for kind, _ in SHAPES}), help="classes; all by default")
    parser.add_argument("--dry", metavar="PROFILE", help="compile for a device that is not here, and time nothing")
    options = parser.parse_args()
    began, device = time.monotonic(), chosen(options.dry)
    jobs = _in_turn([_launches(cell, device, options.each, options.best) for cell in cells(device, options.kinds)])
    print(len(jobs), "launches, with one plan for each problem", flush=True)
    compiled = partial(compile_one, options.dry)
    found: dict[Cell, list[tuple[Launch, Used, bool]]] = defaultdict(list)
    ends = began + options.seconds * (COMPILING if not options.dry else 1)
    for (cell, tiling), answer in answers(compiled, jobs, options.processes, KERNEL_S, ends):
        if isinstance(answer, Failed):
            print(f"{cell}, {tiling or 'plan'}: {answer.reason[:150]}", flush=True)
        elif answer:
            found[cell].append(answer)
    print(f"{sum(map(len, found.values()))} compiled in {time.monotonic() - began:.0f} s", flush=True)
    with Path(options.csv).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in _rows(found, not options.dry, began + options.seconds):
            writer.writerow(row)
    print(f"written in {time.monotonic() - began:.0f} s", flush=True)


def cells(device: Device, kinds: list[str]) -> list[Cell]:
    """Returns the problems of classes that the device takes as they lie, of both types and directions."""
    units = {"across": INNER, "across odd": ODD_INNER, "transposed": 64}
    found = []
    for (kind, elements), lengths in SHAPES.items():
        unit = units.get(kind, 1)
        for n_cols, dtype, backward in product(lengths if kind in kinds else (), DTYPES, (False, True)):
            n_rows = max(1, elements // n_cols // unit) * unit
            found.append(Cell(kind, n_rows, n_cols, dtype, backward))
    return [cell for cell in found if problem_on(cell, device)]


def _launches(cell: Cell, device: Device, count: int, best: int) -> list[tuple[Cell, Tiling | None]]:
    """Returns the plan, which is None, and so many launches: the best, and some by chance, the same for one length."""
    problem = read(cell, device)
    found, first = grid(problem, device), [tiling for _, tiling in ranked(problem, device)[:best]]
    by_chance = random.Random(f"{cell.kind} {cell.n_cols} {cell.dtype} {cell.backward}")
    by_chance.shuffle(found)
    return [(cell, None), *((cell, each) for each in dict.fromkeys([*first, *found[:count]]))]


def _in_turn(jobs: list[list[Any]]) -> list[Any]:
    """Returns all jobs, those of each problem in turn, so that none is without when time ends."""
    return [job for each in zip_longest(*jobs) for job in each if job]


def read(cell: Cell, device: Device) -> Problem:
    """Returns the problem as the device's launches read it."""
    problem = problem_on(cell, device)
    assert problem, "cells leaves out what the device does not take"
    return as_read(problem, device)


def compile_one(profile: str | None, cell: Cell, tiling: Tiling | None) -> tuple[Launch, Used, bool] | None:
    """Compiles a launch, or today's plan, in a process of its own; returns what it uses; None if it is not resident."""
    device = chosen(profile)
    if tiling is None:
        plan = plan_on(cell, device)
        return Launch.of(plan), (plan.resources, plan.occupancy.programs_per_multiprocessor), True
    problem = read(cell, device)
    tiling = replace(tiling, walk=False)
    resources = resources_of(KernelSpec.of(problem, tiling), device)
    occupancy = device.vendor.occupancy(resources, device.hardware)
    if device.resident(occupancy) < tiling.splits:
        return None
    launch = Launch(problem, tiling, problem.tiles(tiling.tile_rows) * tiling.splits)
    return launch, (resources, occupancy.programs_per_multiprocessor), False


def _rows(found: dict[Cell, list[Any]], times: bool, ends: float) -> Iterator[list[Any]]:
    """Yields the lines of the file: problems in an order by chance, until time is up."""
    in_order = sorted(found, key=str)
    random.Random(1).shuffle(in_order)
    for cell in in_order:
        copy_us: float | None = None
        for launch, (resources, resident), planned in found[cell]:
            if times and time.monotonic() > ends:
                return
            us = None
            if times:
                try:
                    timing = timed(cell, launch, copy_us is None)
                except PortableSoftmaxError as error:
                    print(f"{cell}, {launch}: {error}", flush=True)
                    continue
                us, copy_us = timing.us, copy_us or timing.copy_us
            problem = cell.kind, cell.n_rows, cell.n_cols, cell.dtype, int(cell.backward)
            tiling = (getattr(launch.tiling, name) for name in TILING)
            used = (getattr(resources, name) for name in USED)
            yield [*problem, *tiling, *used, resident, int(planned), us, copy_us]


if __name__ == "__main__":
    main()
