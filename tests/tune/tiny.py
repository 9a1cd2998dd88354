"""Jobs for processes of a tuning run, and small runs in Triton's interpreter: `python tiny.py whole|faults DIR`."""

import os
import sys
import time
import warnings
from pathlib import Path

import pytest

from portable_probe.tune import cells, files, measuring, report
from portable_probe.tune.__main__ import main
from portable_probe.tune.run import Limits, Run
from portable_probe.tune.variations import with_rows
from portable_softmax import Device
from portable_softmax.devices.detect import current_device

GRID = {"row": ((2048,), ()), "across": ((16,), ()), "unaligned": ((257, 351), (301,))}
ELEMENTS = 2**17


def act(what):
    """One job of a process: an answer, or something that goes wrong."""
    if what == "abort":
        os.abort()
    if what == "hang":
        while True:
            pass
    if what == "fail":
        raise RuntimeError("the device\nis lost")
    if what == "wrong":
        raise measuring.WrongResultError("not like float64")
    return what, os.getpid()


def plan_for_h200(cell, rows):
    """A plan of a device that is not here, by its compiler."""
    return measuring.Launch.of(measuring.plan_on(cell, with_rows(Device.from_profile("nvidia/h200"), rows)))


def plan_unless_tuned(cell, rows):
    """The same, but for a cell of 128 columns the rows that are chosen crash the compiler."""
    if cell.n_cols == 128 and any(row.source == "tuned" for row in rows):
        os.abort()
    return plan_for_h200(cell, rows)


def time_by_size(cell, launch, with_copy):
    """A time by which tiles of 512 elements are 1.25 times as fast, with no device."""
    smaller = launch.tiling.tile_rows * launch.tiling.tile_cols == 512
    return measuring.Timing(80.0 if smaller else 100.0, 0.5, 75.0 if with_copy else None)


def faulty_plan(cell, rows):
    """The compiler crashes for the larger tile of whole vectors."""
    if cell.kind == "row" and any((row.tile_elements or 0) == 131072 for row in rows):
        os.abort()
    return measuring.planned(cell, rows)


def faulty_time(cell, launch, with_copy):
    """Half as large tiles are twice as fast; but those of whole vectors hang for float32, and are wrong for bfloat16."""
    smaller = launch.tiling.tile_rows * launch.tiling.tile_cols == 32768
    faulty = smaller and cell.kind == "row"
    if faulty and cell.dtype == "float32":
        act("hang")
    with pytest.MonkeyPatch.context() as patched:
        if faulty:
            patched.setattr(measuring, "prepare", lambda *arguments: lambda out, *given: out.fill_(0.5))
        timing = measuring.timed(cell, launch, with_copy)
    return timing._replace(us=50.0 if smaller else 100.0, copy_us=timing.copy_us and 20.0)


def made_small():
    """Lets a run have a few cells of a size for the interpreter."""
    warnings.simplefilter("ignore", RuntimeWarning)
    cells.ELEMENTS = ELEMENTS
    cells.GRID.clear()
    cells.GRID.update(GRID)


def faults(directory):
    """A run whose candidates go wrong in three ways."""
    device = current_device()
    limits = Limits(plan_s=60, time_s=3, processes=2)
    found = [cell for cell in cells.cells_of(device, ("row", "unaligned")) if not cell.backward]
    run = Run(device, found, "tuned", limits, faulty_plan, faulty_time)
    run.tune(3)
    files.write(run, directory)
    print(report.text_of(run, files.lines_of(run)))


if __name__ == "__main__":
    made_small()
    began = time.monotonic()
    if sys.argv[1] == "faults":
        faults(Path(sys.argv[2]))
    else:
        assert main(["--minutes", "2", "--out", sys.argv[2], "--classes", "row", "across"]) == 0
    print(f"{time.monotonic() - began:.0f} s")
