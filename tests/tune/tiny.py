"""Work for processes of a tuning run, and a small run in Triton's interpreter: `python tiny.py DIR`."""

import os
import sys
import warnings
from pathlib import Path

import msgspec
import pytest

from portable_probe.tune import cells, measuring, run
from portable_probe.tune.__main__ import kept
from portable_softmax import Device
from portable_softmax.devices.policy import COST_NUMBERS, CostNumbers
from portable_softmax.planning.cost import terms
from portable_softmax.planning.facts import facts
from portable_softmax.planning.planner import estimated

H100 = "nvidia/h100-sxm"
SHAPES = {("row", 2**10): (64, 128), ("unaligned", 2**10): (33,), ("transposed", 2**10): (16,)}
FAULTS = {("row", 64, "float32", False): "abort", ("row", 64, "bfloat16", False): "wrong"}


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


def as_if_compiled(cell, ranked):
    """A launch of a device that is not here, with estimated resources; what is planned is one of its grid."""
    device = Device.from_profile(H100)
    chosen = ranked or run.jobs_of(cell, device)[1][1]
    used = estimated(chosen.problem, chosen.tiling, device)
    resident = device.vendor.occupancy(used, device.hardware).programs_per_multiprocessor
    return measuring.launch_of(cell, chosen.problem, chosen.tiling, used, resident, planned=ranked is None)


def expected(launch, numbers):
    """The launch with the time that these numbers give."""
    device = Device.from_profile(H100)
    problem, tiling = launch.problem_on(device), launch.tiling
    programs = problem.tiles(tiling.tile_rows) * tiling.splits
    told = facts(problem, tiling, programs, launch.resident, device, launch.spilled_bytes)
    given = CostNumbers(**dict(zip(COST_NUMBERS, numbers, strict=True)))
    return msgspec.structs.replace(launch, us=float(terms(told, given).total))


def timed_in_part(launch):
    """A time that follows from sizes. What is planned runs in the interpreter, and goes wrong of FAULTS."""
    fault = launch.planned and FAULTS.get((launch.kind, launch.n_cols, launch.dtype, launch.backward))
    if fault == "abort":
        act(fault)
    with pytest.MonkeyPatch.context() as patched:
        if fault:
            patched.setattr(measuring, "prepare", lambda *arguments: lambda out, *given: out.fill_(0.5))
        if launch.planned:
            assert measuring.timed(launch).us > 0
    return msgspec.structs.replace(launch, us=10.0 + launch.num_warps + launch.n_rows / launch.tile_rows / 100)


if __name__ == "__main__":
    warnings.simplefilter("ignore", RuntimeWarning)
    cells.SHAPES.clear()
    cells.SHAPES.update(SHAPES)
    run.LIMIT_S, run.BEST, run.BY_CHANCE = 100, 2, 2
    device = Device.from_profile(H100)
    found = run.timed_launches(device, cells.cells_of(device), 5, (as_if_compiled, timed_in_part))
    raise SystemExit(kept(device, found, Path(sys.argv[1])))
