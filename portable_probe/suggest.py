"""Launches of a user kernel: all of its configurations, or the one with the least expected time."""

import re
from typing import Any

import msgspec

from portable_probe.cases import bounded_reports, call_values, expected, load_case
from portable_probe.loading import load_kernel
from portable_probe.report import Report, describe
from portable_softmax.devices.device import Device
from portable_softmax.row_kernels.decorators import configurations, jit_function


def configured(call: Any, device: Device) -> list[Report]:
    """Returns reports of all configurations of @triton.autotune on a device; ValueError if the kernel has none."""
    file = load_kernel(call.name, device)
    calls = [msgspec.structs.replace(call, config=number) for number in range(len(configurations(file.kernel)))]
    if not calls:
        raise ValueError(f"--config all: {call.name} has no configurations; it is not under @triton.autotune")
    return bounded_reports([(device, variant) for variant in calls])


def computed(call: Any, device: Device, names: dict[str, str]) -> Report:
    """Returns the report of the launch that `portable_softmax.launcher` computes.

    `names` are the kernel's parameters for rows, cols and block; rows may be left out if a case gives the grid.
    """
    from portable_softmax.row_kernels.launcher import launcher  # needs torch

    file = load_kernel(call.name, device)
    known, roles = load_case(file, call), dict[str, Any](names)
    if "rows" not in names and not known:
        raise ValueError("--suggest requires rows=PARAMETER, or --case NAME, a function that returns the grid too")
    arguments, options = call_values(jit_function(file.kernel), call, known)
    passed = {**arguments, **options}
    if "rows" not in names:
        passed["grid"] = known.grid
    try:
        plan = launcher(file.kernel, **roles).plan(device=device, **passed)
    except Exception as error:
        instead = "--case NAME, a function in the file that returns (grid, arguments, expected), in place of rows="
        message = re.sub(r"pass grid=.*", f"type {instead}", str(error))
        return msgspec.structs.replace(describe(device, call), error=type(error).__name__, message=message)
    chosen = {name: value for name, value in plan.meta.items() if name not in passed}
    (report,) = bounded_reports([(device, msgspec.structs.replace(call, suggested=chosen))])
    numbers, text = dict(report.numbers), {**report.text, "why": (f"num_programs {plan.num_programs}", *plan.reasons)}
    if plan.terms:
        numbers["expected_us"], text["time"] = plan.terms.total, (expected(plan.terms, device),)
    return msgspec.structs.replace(report, text=text, numbers=numbers)
