"""Candidate launches of a user kernel: configurations, warps and stages, or the one with the least expected time."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from portable_probe.cases import bounded_report, call_values, expected, load_case
from portable_probe.loading import KernelFile, load_kernel
from portable_probe.report import KernelCall, Report
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError
from portable_softmax.row_kernels.arguments import read_arguments
from portable_softmax.row_kernels.compiling import dropped
from portable_softmax.row_kernels.decorators import configurations, jit_function
from portable_softmax.row_kernels.row_settings import stages_of


def variants(call: Any, device: Device, every_config: bool, names: dict[str, str] | None) -> list[Report]:
    """Returns reports of launches of a kernel on a device, the best first.

    Args:
        call: the kernel, its arguments and options.
        device: the target.
        every_config: True for all configurations of @triton.autotune.
        names: None to keep warps and stages; {} for all of them; the kernel's parameters for rows, cols and block to compute a
            launch by expected time (`rows` may be left out if a case gives the grid).

    Raises:
        ValueError: the kernel cannot be loaded, or has no configurations.
    """
    file = load_kernel(call.name, device)
    every = range(len(configurations(file.kernel))) if every_config else [call.config]
    if not every:
        raise ValueError(f"--config all: {call.name} has no configurations; it is not under @triton.autotune")
    calls = [msgspec.structs.replace(call, config=number) for number in every]
    if names:
        return [_computed(variant, file, device, names) for variant in calls]
    if names is not None:
        calls = [variant for base in calls for variant in _warps_and_stages(base, file, device)]
    pruned = _pruned(call, file, device) if every_config else set()
    unlike: dict[Any, Report] = {}
    for variant in calls:
        report = bounded_report(device, variant)
        if variant.config in pruned and not report.error:
            report = msgspec.structs.replace(report, error="Pruned", message="the kernel's own pruning drops it")
        key = variant.config, report.error, *(report.numbers.values() if variant.suggested else ())
        unlike.setdefault(key, report)  # of equal ones with other warps and stages the one with the fewest stages
    return sorted(unlike.values(), key=_rank)


def pasted(reports: list[Report]) -> str:
    """Returns each device's best launch as a triton.Config, one line for equal ones; "" if there is none."""
    devices: dict[str, list[str]] = {}
    best = {report.device.name: report for report in reversed(reports) if report.config and not report.error}
    for name, report in reversed(best.items()):
        devices.setdefault(str(report.config), []).append(name)
    timed = any("expected_us" in report.numbers for report in best.values())
    why = "# the least expected time" if timed else "# the highest occupancy without spills, which is no estimate of speed"
    return "\n".join([why, *(f"{config}  # {', '.join(names)}" for config, names in devices.items())] if devices else [])


def _rank(report: Report) -> tuple[Any, ...]:
    """Launches that fit and spill least come first, then those with the most resident warps."""
    numbers = report.numbers
    if report.error or not numbers:
        return True, 0, 0
    resident = numbers["warps_per_multiprocessor"] or numbers["programs_per_multiprocessor"] or 0
    return False, numbers["spilled_bytes_per_thread"], -resident


def _pruned(call: KernelCall, file: KernelFile, device: Device) -> set[int]:
    """Returns the numbers of the configurations that the kernel's own pruning drops; none if an argument cannot be read."""
    jit = jit_function(file.kernel)
    with contextlib.suppress(CompileError, TypeError):
        values, _ = read_arguments(file.kernel, call_values(jit, call, load_case(file, call))[0])
        return dropped(file.kernel, values, device)
    return set()


def _warps_and_stages(call: KernelCall, file: KernelFile, device: Device) -> Iterator[KernelCall]:
    stages, facts = stages_of(jit_function(file.kernel)) or "num_stages", device.hardware
    most = (facts.max_threads_per_program or 1) // (facts.warp_size or 1)
    for warps, number in itertools.product([1 << power for power in range(most.bit_length())], range(1, 5)):
        values: dict[str, Any] = {"num_warps": warps, stages: number}
        yield msgspec.structs.replace(call, suggested={k: v for k, v in values.items() if k not in call.arguments})


def _computed(call: KernelCall, file: KernelFile, device: Device, names: dict[str, str]) -> Report:
    """Returns the report of the launch that `portable_softmax.launcher` computes."""
    from portable_softmax.row_kernels.launcher import launcher  # needs torch

    known, roles = load_case(file, call), dict[str, Any](names)
    if "rows" not in names and not known:
        raise ValueError("--suggest requires rows=PARAMETER, or --case NAME, a function that returns the grid too")
    arguments, options = call_values(jit_function(file.kernel), call, known)
    passed = {**arguments, **options} | ({} if "rows" in names or not known else {"grid": known.grid})
    try:
        plan = launcher(file.kernel, **roles).plan(device=device, **passed)
    except Exception as error:
        message, asks, _ = str(error).partition("; pass grid=")
        if asks:
            typed = " ".join(f"{role}={name}" for role, name in names.items() if role != "rows")
            message += f". Type --suggest {typed} --case NAME, a function in the file that returns (grid, arguments, expected)"
        return msgspec.structs.replace(bounded_report(device, call), error=type(error).__name__, message=message)
    computed = {name: value for name, value in plan.meta.items() if name not in passed}
    report = bounded_report(device, msgspec.structs.replace(call, suggested=computed))
    text = {**report.text, "why": (f"num_programs {plan.num_programs}", *plan.reasons)}
    numbers = report.numbers | ({"expected_us": plan.terms.total} if plan.terms else {})
    text |= {"time": (expected(plan.terms, device),)} if plan.terms else {}
    return msgspec.structs.replace(report, text=text, numbers=numbers)
