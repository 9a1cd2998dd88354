"""A small tuning run in Triton's interpreter: `python tiny.py DIR`."""

import sys
import warnings
from pathlib import Path

import pytest

from portable_probe.tune import cells, measuring, run
from portable_probe.tune.command import keep
from portable_probe.tune.files import Launch
from portable_softmax import Device
from portable_softmax.planning.estimate import estimated

H100 = "nvidia/h100-sxm"
SHAPES = {("row", 2**10): (64, 128), ("unaligned", 2**10): (33,)}
WRONG = "row 16 x 64 bfloat16 forward"


def as_if_compiled(cell, problem, tiling):
    """A launch of a device that is not here, with estimated resources."""
    device = Device.from_profile(H100)
    used = estimated(problem, tiling, device)
    return Launch(cell, problem, tiling, used, device.vendor.occupancy(used, device.hardware).programs_per_multiprocessor)


def timed_in_part(launch):
    """A time that follows from sizes. What is best by the numbers runs in the interpreter; that of WRONG goes wrong."""
    if launch.tiling == run.jobs_of(launch.cell, Device.from_profile(H100))[0][2]:
        with pytest.MonkeyPatch.context() as patched:
            if str(launch.cell) == WRONG:
                patched.setattr(measuring, "prepare", lambda *arguments: lambda out, *given: out.fill_(0.5))
            assert measuring.timed(launch).us > 0
    return launch._replace(us=10.0 + launch.tiling.num_warps + launch.n_programs / 100)


if __name__ == "__main__":
    warnings.simplefilter("ignore", RuntimeWarning)
    cells.SHAPES.clear()
    cells.SHAPES.update(SHAPES)
    run.BEST, run.BY_CHANCE = 2, 2
    device = Device.from_profile(H100)
    run.compiled, run.timed = as_if_compiled, timed_in_part
    keep(device, run.timed_launches(device, cells.cells_of(device), 5), Path(sys.argv[1]))
