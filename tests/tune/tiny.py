"""A small tuning run in Triton's interpreter: `python tiny.py DIR`."""

import sys
import warnings
from pathlib import Path

import pytest

from portable_probe.tune import cells, measuring, run
from portable_probe.tune.command import keep
from portable_probe.tune.launches import KernelLaunch, SoftmaxLaunch
from portable_softmax import Device
from portable_softmax.planning.facts import RowLaunch, Traffic
from portable_softmax.planning.grid import estimated

H100 = "nvidia/h100-sxm"
SHAPES = {("row", 2**10): (64, 128), ("unaligned", 2**10): (133,)}
WRONG = "row 16 x 64 bfloat16 forward"


def as_if_compiled(cell, problem, tiling):
    """A launch of a device that is not here, with estimated resources."""
    device = Device.from_profile(H100)
    used = estimated(problem, tiling, device)
    resident = device.vendor.occupancy(used, device.hardware).programs_per_multiprocessor
    return SoftmaxLaunch(cell, problem, tiling, used, resident)


def kernel_as_if_compiled(kernel, dtype, sizes, meta, walks):
    """The launch of a row kernel of a device that is not here."""
    element = 4 if dtype == "float32" else 2
    again = sizes[1] * element * (kernel == "two_pass_norm")
    bytes_and_more = 2 * sizes[1] * element, 0, again, element, 2 + (again > 0), 0, kernel != "gelu", 0, 0
    traffic = Traffic(*map(float, bytes_and_more))
    programs = min(sizes[0], 132 * 2) if walks else sizes[0]
    of = 2, meta["num_warps"], meta["BLOCK"], meta["STAGES"]
    return KernelLaunch(kernel, dtype, RowLaunch(*sizes, 16, programs, *of, again > 0), traffic)


def best_of(cell):
    """The launch of a cell that is the best by the numbers."""
    return run.softmax_jobs(cell, Device.from_profile(H100))[0].args[2]


def timed_in_part(launch):
    """A time that follows from sizes. What is best by the numbers runs in the interpreter; that of WRONG goes wrong."""
    if isinstance(launch, KernelLaunch):
        return launch._replace(us=10.0 + launch.launch.num_warps + launch.launch.num_programs / 100)
    if launch.tiling == best_of(launch.cell):
        with pytest.MonkeyPatch.context() as patched:
            if str(launch.cell) == WRONG:
                patched.setattr(measuring, "ROUNDING", 0.0)
            assert actual(launch).us > 0
    return launch._replace(us=10.0 + launch.tiling.num_warps + launch.num_programs / 100)


actual = measuring.timed
if __name__ == "__main__":
    warnings.simplefilter("ignore", RuntimeWarning)
    cells.SHAPES.clear()
    cells.SHAPES.update(SHAPES)
    run.BEST, run.BY_CHANCE, run.KERNEL_BY_CHANCE = 2, 2, 3
    run.KERNEL_COLS = {"rms_norm": (64,), "gelu": (64,), "two_pass_norm": (2048,)}
    device = Device.from_profile(H100)
    measuring.compiled, measuring.compiled_kernel, measuring.timed = as_if_compiled, kernel_as_if_compiled, timed_in_part
    jobs = [run.softmax_jobs(cell, device) for cell in cells.cells_of(device)]
    keep(device, run.timed_launches(device, run.in_turns([*jobs, *run.kernel_jobs(device)]), 5), Path(sys.argv[1]))
