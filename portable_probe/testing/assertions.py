"""Assertions about the resources of a compiled kernel, for devices on this machine or elsewhere."""

import json
import unittest
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from portable_probe.explain import next_step
from portable_probe.kernel_case import KernelCase, grid_of, refused_grid
from portable_probe.output import as_columns
from portable_probe.regression import CHANGE_HEADER, change_row, compare, load, save
from portable_probe.report import describe, json_value, launch_of_kernel, without_answer
from portable_probe.report_types import KernelUse, Report
from portable_softmax.devices.backends.base import Occupancy
from portable_softmax.devices.detect import chosen
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, TargetError
from portable_softmax.row_kernels.arguments import text_of
from portable_softmax.row_kernels.decorators import jit_function
from portable_softmax.row_kernels.inspection import Inspected, inspect_kernel

HOW_TO_SAVE = "pytest --save-plans writes it"
_saving = False


def saving(on: bool) -> None:
    """Makes `assert_plan_unchanged` write its files instead of comparing with them, for --save-plans."""
    global _saving
    _saving = on


def assert_occupancy(
    kernel: Any,
    device: Device | str | None = None,
    *,
    signature: Mapping[str, Any],
    constexprs: Mapping[str, Any] | None = None,
    config: int | None = None,
    at_least: int = 1,
    no_spills: bool = True,
    grid: tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]] | None = None,
    **options: Any,
) -> Occupancy:
    """Compiles a kernel as Triton launches it, and asserts how many of its programs a multiprocessor holds.

    Args:
        kernel: the @triton.jit function, with its decorators.
        device: the device; None is the current one. A profile's name gives a device that need not be on this machine.
        signature: arguments by name, or words for them such as "f16[4096,4096]" and "i32:16", as `inspect_kernel` takes them.
        constexprs: values of the constexprs, by name.
        config: number of one of the configurations of @triton.autotune.
        at_least: programs per multiprocessor.
        no_spills: True if no register may be spilled to memory; data of a thread's own may be there, as in a sine.
        grid: numbers of programs that the device should take, or a function of the arguments that returns them.
        options: of Triton's backend, such as num_warps; None takes those of a decorator, or Triton's own.

    Returns:
        Programs per multiprocessor, with their limits.

    Raises:
        AssertionError: the device does not take the grid, registers are spilled, or there are fewer programs, in this order; or
            the kernel does not compile.
        TypeError, ProfileError, ValueError: as in `inspect_kernel`.
    """
    __tracebackhide__ = True  # a failure stands in the test that asserts
    device = _compiled_for(device)
    resources, found, launch = _inspected(kernel, signature, constexprs or {}, device, config, options)
    name, word = _name(kernel), device.profile.multiprocessor
    if grid is not None:
        case = KernelCase(grid, {**signature, **(constexprs or {}), **options})
        if refused := refused_grid(launch, grid_of(launch, case), device):
            raise AssertionError(f"{name}: {refused}")
    if no_spills and resources.spilled_bytes_per_thread:
        raise AssertionError(f"{name} on {device.name} spills {resources.spilled_bytes_per_thread} bytes per thread")
    if found.programs_per_multiprocessor < at_least:
        raise AssertionError(
            f"{name} on {device.name}: {found.programs_per_multiprocessor} programs per {word}, and at least {at_least} are "
            f"asked for; limited by {' and '.join(found.limited_by)}\n"
            f"next step {next_step(resources, device).text}\nuses      {resources}"
        )
    return found


def assert_plan_unchanged(
    kernel: Any,
    device: Device | str | None,
    file: Path | str,
    *,
    signature: Mapping[str, Any],
    constexprs: Mapping[str, Any] | None = None,
    config: int | None = None,
    **options: Any,
) -> None:
    """Compiles a kernel as Triton launches it; asserts the warps and stages of a file, and that nothing got worse.

    Args:
        kernel, device, signature, constexprs, config, options: as in `assert_occupancy`.
        file: reports of any number of kernels and devices, in the form of --save; `pytest --save-plans` writes it.

    Raises:
        AssertionError: there are other warps or stages, fewer resident programs or more spilled bytes; the file has no such
            kernel and device; or the kernel does not compile.
        ValueError: the file is from another version; and as in `assert_occupancy`.
    """
    __tracebackhide__ = True
    device, path = _compiled_for(device), Path(file)
    now = _report(kernel, device, signature, constexprs or {}, config, options)
    if _saving:
        others = [report for report in _readable(path) if _case(report) != _case(now)]
        save(sorted([*others, now], key=_case), path)
        return
    before = [report for report in _readable(path, strict=True) if _case(report) == _case(now)]
    if not before:
        case = f"{_name(kernel)} on {device.profile.name} with these types and constexprs"
        raise AssertionError(f"{path} has no {case}; {HOW_TO_SAVE}")
    found = compare(before[:1], [now])
    if found.regressed:
        table = as_columns(CHANGE_HEADER, map(change_row, found.changes))
        raise AssertionError(f"{table}\n{path} has the earlier results; {HOW_TO_SAVE} anew")


def _inspected(
    kernel: Any,
    signature: Mapping[str, Any],
    constexprs: Mapping[str, Any],
    device: Device,
    config: int | None,
    options: Mapping[str, Any],
) -> Inspected:
    """Compiles a kernel; what the compiler says is the test's failure, and a Triton that cannot is a reason to skip it."""
    __tracebackhide__ = True
    try:
        return inspect_kernel(kernel, signature, constexprs, device=device, config=config, **options)
    except TargetError as error:
        raise unittest.SkipTest(str(error)) from None
    except CompileError as error:
        raise AssertionError(f"it does not compile: {error}") from None


def _readable(path: Path, strict: bool = False) -> list[Report]:
    """Returns the reports of a file; none if there is no file or, unless strict, if it is broken or of another version."""
    try:
        return load(path) if path.exists() else []
    except ValueError as error:
        if strict:
            raise ValueError(f"{error}; {HOW_TO_SAVE}") from error
        return []


def _case(report: Report) -> tuple[str, str, str]:
    """Returns the kernel and its device, and as JSON, in which 1, 1.0 and true are not equal, what was asked."""
    assert report.kernel, "reports of kernels alone are kept"
    asked = msgspec.to_builtins(without_answer(report.kernel))
    return report.kernel.name, report.device.profile, json.dumps(asked, sort_keys=True)


def _report(
    kernel: Any,
    device: Device,
    signature: Mapping[str, Any],
    constexprs: Mapping[str, Any],
    config: int | None,
    options: Mapping[str, Any],
) -> Report:
    __tracebackhide__ = True
    resources, found, launch = _inspected(kernel, signature, constexprs, device, config, options)
    texts = {name: each if isinstance(each, str) else text_of(each) for name, each in signature.items()}
    constants = {name: text_of(each) for name, each in constexprs.items()}
    given = {name: json_value(value) for name, value in options.items() if value is not None}
    case = KernelUse(
        name=_name(kernel), arguments=texts | constants, options=given, config=config, case=None,
        launch=launch_of_kernel(launch), resources=resources, occupancy=found,
    )  # fmt: skip
    return msgspec.structs.replace(describe(device, case), facts={}, software={})


def _name(kernel: Any) -> str:
    inner = jit_function(kernel)
    return f"{inner.__module__}:{inner.__name__}"


def _compiled_for(device: Device | str | None) -> Device:
    """Returns a device that Triton compiles for. It skips the test in the interpreter, which compiles nothing."""
    found = chosen(device)
    if found.backend == "interpreter":
        raise unittest.SkipTest("Triton's interpreter compiles nothing; --on NAME asserts for a device that is not here")
    return found
