#!/usr/bin/env python3
"""Records what a real machine reports, for tests to play back elsewhere; --plans runs on any machine.

    python scripts/record.py             # on a machine with an NVIDIA GPU
    python scripts/record.py --plans     # anywhere, after a deliberate change of the planner or of a profile

driver_NAME.json     Triton's driver properties and torch's device properties (tests/devices/test_device.py)
occupancy_NAME.json  the driver's own count of resident programs for every kernel that the planner chooses
                     (tests/devices/test_occupancy.py); its registers and spills are compared at once
plans.json           with --plans: plans of many problems (tests/planning/test_planner.py)
"""

import argparse
import ctypes
import dataclasses
import datetime
import importlib
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

from portable_softmax import Device, current_device, plan
from portable_softmax.runtime.compile import compiled
from portable_softmax.runtime.kernel import kernels_of

SUPPORT = Path(__file__).resolve().parents[1] / "tests" / "support"
ROWS = (1, 64, 1823, 4096, 100_000)
COLS = (1, 7, 16, 33, 64, 128, 200, 256, 500, 512, 781, 1000, 1024, 1823, 2048, 3000, 4096, 6000, 8192, 12672, 16384, 25000,
        32000, 32768, 50257, 65536, 128256, 151936, 262144)  # fmt: skip
DTYPES = ("float16", "bfloat16", "float32")


def provenance(device: Device) -> str:
    """Returns versions, device and day of a recording."""
    versions = f"Triton {importlib.metadata.version('triton')} and torch {importlib.metadata.version('torch')}"
    return f"{versions} on {device.name}, {datetime.date.today()}"


def recording(device: Device) -> dict[str, Any]:
    """Returns the answers of Triton's driver and of torch, and what this package makes of them, to be played back in tests."""
    import torch
    from triton.runtime import driver

    module = getattr(torch, device.vendor.torch_device_type)
    properties = module.get_device_properties(device.index)
    names = [name for name in dir(properties) if not name.startswith("_")]
    target = driver.active.get_current_target()
    return {
        "provenance": provenance(device),
        "target": [target.backend, target.arch, target.warp_size],
        "torch_device_type": device.vendor.torch_device_type,
        "properties": [driver.active.utils.get_device_properties(device.index)],
        "torch": [{name: value for name in names if isinstance(value := getattr(properties, name), int | str)}],
        "expected": {
            "profile": device.profile.name,
            "arch": device.arch,
            "facts": {key: [getattr(device.hardware, key), origin] for key, origin in device.origins.items()},
        },
    }


def occupancies(device: Device) -> dict[str, Any]:
    """Returns the record of a device, with a cell for each (rows, columns, type).

    A cell has the resources that were read from the planned kernel's binary, and the driver's numbers for the same kernel.
    """
    cuda = ctypes.CDLL("libcuda.so.1")
    cells = []
    for n_rows in ROWS:
        for n_cols in COLS:
            for dtype in DTYPES:
                launch_plan = plan(n_rows, n_cols, dtype, device)
                kernel = compiled(kernels_of(launch_plan.problem, launch_plan.tiling, device)[0], device)
                kernel._init_handles()
                count = ctypes.c_int()
                threads, shared = kernel.metadata.num_warps * 32, kernel.metadata.shared
                function = ctypes.c_void_p(kernel.function)
                status = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    ctypes.byref(count), function, threads, ctypes.c_size_t(shared)
                )
                assert status == 0, f"cuOccupancyMaxActiveBlocksPerMultiprocessor: CUresult {status}"
                read = launch_plan.resources.registers_per_thread, (launch_plan.resources.stack_frame_bytes or 0) // 4
                loaded = kernel.n_regs, kernel.n_spills
                assert read == loaded, (
                    f"registers and words of the frame {read} were read from the binary, and the driver says {loaded}"
                )
                cells.append({
                    "problem": [n_rows, n_cols, dtype],
                    "resources": dataclasses.asdict(launch_plan.resources),
                    "driver": {"n_regs": kernel.n_regs, "n_spills": kernel.n_spills, "programs": count.value},
                })  # fmt: skip
    return {"provenance": provenance(device), "profile": device.profile.name, "cells": cells}


def plans(directory: Path) -> None:
    """Writes a line for each problem, so that a diff shows which plans a change of the planner changes."""
    sys.path.insert(0, str(SUPPORT))
    offline = importlib.import_module("offline")
    (directory / "plans.json").write_text(json.dumps(offline.table(), indent=1) + "\n")


def everything(directory: Path) -> None:
    """Writes everything that the machine here reports."""
    device = current_device()
    name = device.profile.name.rpartition("/")[2]
    records = {"driver": recording(device), "occupancy": occupancies(device)}
    for kind, record in records.items():
        cells = [json.dumps(cell) for cell in record.pop("cells", [])]  # one line each
        text = json.dumps(record | ({"cells": []} if cells else {}), indent=1)
        (directory / f"{kind}_{name}.json").write_text(text.replace("[]", "[\n" + ",\n".join(cells) + "\n ]") + "\n")


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", action="store_true", help="only the plans, which need no device")
    parser.add_argument("--out", type=Path, default=SUPPORT / "recorded", help="folder of the files")
    options = parser.parse_args()
    (plans if options.plans else everything)(options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
