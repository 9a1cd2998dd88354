"""Assertions about the resources of a compiled kernel, for devices on this machine or elsewhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from portable_softmax.devices.backends.base import Occupancy
from portable_softmax.devices.detect import chosen
from portable_softmax.devices.device import Device
from portable_softmax.probe.arguments import text_of
from portable_softmax.probe.cases import without_answer
from portable_softmax.probe.decorators import jit_function
from portable_softmax.probe.explain import explain
from portable_softmax.probe.inspection import inspect_kernel
from portable_softmax.probe.regression import KINDS, as_table, compare, load, save
from portable_softmax.probe.report import counted, describe, launch_of_kernel
from portable_softmax.probe.schema import KernelUse, Report, Scalar

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
    num_warps: int | None = None,
    num_stages: int | None = None,
    at_least: int = 1,
    no_spills: bool = True,
) -> Occupancy:
    """Compiles a kernel and asserts how many of its programs a multiprocessor holds.

    Args:
        kernel: the @triton.jit function, with its decorators.
        device: the device; None is the current one. A profile's name gives a device that need not be on this machine.
        signature: for each parameter that is not a constexpr, by name, its type or an argument, as `inspect_kernel` takes them.
        constexprs: values of the constexprs, by name.
        num_warps, num_stages: Triton's options; None takes those of a decorator, or Triton's own.
        at_least: programs per multiprocessor.
        no_spills: True if no register may live in memory.

    Returns:
        Programs per multiprocessor, with their limits.

    Raises:
        AssertionError: there are fewer programs, or registers are spilled. The text names the limits and what would help.
        CompileError, TypeError, ProfileError, ValueError: as in `inspect_kernel`.
    """
    __tracebackhide__ = True  # a failure stands in the test that asserts
    device = _compiled_for(device)
    given = {"num_warps": num_warps, "num_stages": num_stages}
    resources, found, _ = inspect_kernel(kernel, signature, constexprs or {}, device=device, **given)
    step = explain(resources, device).next_step.text
    name, word = _name(kernel), device.profile.multiprocessor
    if found.programs_per_multiprocessor < at_least:
        raise AssertionError(
            f"{name} on {device.name}: {found.programs_per_multiprocessor} programs per {word}, and at least {at_least} are "
            f"asked for; limited by {' and '.join(found.limited_by)}\n{step}\n{resources}"
        )
    if no_spills and resources.spilled_bytes_per_thread:
        raise AssertionError(f"{name} on {device.name} spills {resources.spilled_bytes_per_thread} bytes per thread")
    return found


def assert_plan_unchanged(
    kernel: Any,
    device: Device | str | None,
    file: Path | str,
    *,
    signature: Mapping[str, Any],
    constexprs: Mapping[str, Any] | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
    tolerate: Mapping[str, float | None] | None = None,
) -> None:
    """Compiles a kernel and asserts that its warps, registers, memory, spills and occupancy equal those in a file.

    Args:
        kernel, device, signature, constexprs, num_warps, num_stages: as in `assert_occupancy`.
        file: saved results of any number of kernels and devices; `pytest --save-plans` writes it.
        tolerate: for each kind of change (plan, registers, memory, spills, occupancy), how much worse is allowed. None allows
            any change; a plan takes None only.

    Raises:
        AssertionError: something is worse, the plan is another one, or the file has no such kernel and device.
        ValueError: the file is from another version, or `tolerate` has an unknown kind or number; and as in
            `assert_occupancy`.
    """
    __tracebackhide__ = True
    limits = dict(tolerate or {})
    _check_limits(limits)
    device, path = _compiled_for(device), Path(file)
    now = _report(kernel, device, signature, constexprs or {}, num_warps, num_stages)
    if _saving:
        save([*(report for report in _readable(path) if _case(report) != _case(now)), now], path)
        return
    known = load(path) if path.exists() else []
    before = [report for report in known if _case(report) == _case(now)]
    if not before:
        case = f"{_name(kernel)} on {device.profile.name} with these types and constexprs"
        raise AssertionError(f"{path} has no {case}; {HOW_TO_SAVE}")
    comparison = compare(before, [now], limits)
    if comparison.regressed:
        raise AssertionError(f"{as_table(comparison)}\n{path} has the earlier results; {HOW_TO_SAVE} anew")


def _check_limits(limits: Mapping[str, float | None]) -> None:
    for kind, by in limits.items():
        if kind not in KINDS:
            raise ValueError(f"tolerate has {kind!r}; the kinds of change are {', '.join(KINDS)}")
        if by is not None and (kind == "plan" or not by >= 0):
            wanted = "None for any plan" if kind == "plan" else "0 or more, or None for any"
            raise ValueError(f"tolerate has {by!r} for {kind}; it should be {wanted}")


def _readable(path: Path) -> list[Report]:
    """Returns the reports of a file that will be overwritten; none if it is broken or from another version."""
    try:
        return load(path) if path.exists() else []
    except ValueError:
        return []


def _report(
    kernel: Any,
    device: Device,
    signature: Mapping[str, Any],
    constexprs: Mapping[str, Any],
    warps: int | None,
    stages: int | None,
) -> Report:
    resources, found, launch = inspect_kernel(kernel, signature, constexprs, num_warps=warps, num_stages=stages, device=device)
    texts = {name: each if isinstance(each, str) else text_of(each) for name, each in signature.items()}
    constants = {name: text_of(each) for name, each in constexprs.items()}
    options = {"num_warps": warps, "num_stages": stages}
    given: dict[str, Scalar] = {name: value for name, value in options.items() if value is not None}
    case = KernelUse(
        name=_name(kernel), arguments=texts | constants, options=given, config=None, case=None,
        launch=launch_of_kernel(launch), resources=resources, occupancy=counted(found),
    )  # fmt: skip
    return describe(device, case)


def _case(report: Report) -> tuple[str, bytes] | None:
    """Returns the subject of a report without its numbers, as JSON, in which 1, 1.0 and true are not equal."""
    if not isinstance(report.kernel, KernelUse):
        return None
    return report.device.profile, msgspec.json.encode(without_answer(report.kernel), order="deterministic")


def _name(kernel: Any) -> str:
    inner = jit_function(kernel)
    return f"{inner.__module__}:{inner.__name__}"


def _compiled_for(device: Device | str | None) -> Device:
    """Returns a device that Triton compiles for. It skips the test in the interpreter, which compiles nothing."""
    found = chosen(device)
    if found.backend == "interpreter":
        import pytest

        pytest.skip("Triton's interpreter compiles nothing; --profile NAME asserts for a device that need not be here")
    return found
