"""Launches of a user kernel: all of its configurations, or the one with the least expected time."""

import contextlib
from typing import Any

import msgspec

from portable_probe.cases import bounded_reports, call_values, expected, load_case
from portable_probe.loading import load_kernel
from portable_probe.report import Report
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError
from portable_softmax.row_kernels.arguments import read_arguments
from portable_softmax.row_kernels.compiling import dropped
from portable_softmax.row_kernels.decorators import configurations, jit_function


def configured(call: Any, device: Device) -> list[Report]:
    """Returns reports of all configurations of @triton.autotune on a device; ValueError if the kernel has none."""
    file = load_kernel(call.name, device)
    calls = [msgspec.structs.replace(call, config=number) for number in range(len(configurations(file.kernel)))]
    if not calls:
        raise ValueError(f"--config all: {call.name} has no configurations; it is not under @triton.autotune")
    reports, pruned = bounded_reports([(device, variant) for variant in calls]), set[int]()
    with contextlib.suppress(CompileError, TypeError):  # an argument cannot be read
        values, _ = read_arguments(file.kernel, call_values(jit_function(file.kernel), call, load_case(file, call))[0])
        pruned = dropped(file.kernel, values, device)
    for number in pruned:
        if not reports[number].error:
            why = "the kernel's own pruning drops it"
            reports[number] = msgspec.structs.replace(reports[number], error="Pruned", message=why)
    return reports


def computed(call: Any, device: Device, names: dict[str, str]) -> Report:
    """Returns the report of the launch that `portable_softmax.launcher` computes.

    Args:
        call: the kernel, its arguments and options.
        device: the target.
        names: the kernel's parameters for rows, cols and block; rows may be left out if a case gives the grid.

    Raises:
        ValueError: the kernel cannot be loaded, or neither rows nor a case is named.
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
        message, asks, _ = str(error).partition("; pass grid=")
        if asks:
            typed = " ".join(f"{role}={name}" for role, name in names.items() if role != "rows")
            message += f". Type --suggest {typed} --case NAME, a function in the file that returns (grid, arguments, expected)"
        (report,) = bounded_reports([(device, call)])
        return msgspec.structs.replace(report, error=type(error).__name__, message=message)
    chosen = {name: value for name, value in plan.meta.items() if name not in passed}
    (report,) = bounded_reports([(device, msgspec.structs.replace(call, suggested=chosen))])
    text = {**report.text, "why": (f"num_programs {plan.num_programs}", *plan.reasons)}
    if not plan.terms:
        return msgspec.structs.replace(report, text=text)
    numbers, text["time"] = report.numbers | {"expected_us": plan.terms.total}, (expected(plan.terms, device),)
    return msgspec.structs.replace(report, text=text, numbers=numbers)


def pasted(reports: list[Report]) -> str:
    """Returns each device's computed launch as a triton.Config, one line for equal ones; "" if there is none."""
    devices: dict[str, list[str]] = {}
    for report in reports:
        if report.config and not report.error:
            devices.setdefault(report.config, []).append(report.device.name)
    lines = [f"{config}  # {', '.join(names)}" for config, names in devices.items()]
    return "\n".join(["# the least expected time", *lines] if lines else [])
