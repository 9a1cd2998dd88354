"""From a case to its report: plans or compiles it, counts the programs that fit, and verifies the result if requested."""

import functools
import importlib
from typing import Any

import msgspec

from portable_probe.explain import next_step
from portable_probe.loading import KernelFile, load_kernel
from portable_probe.report import WRONG, Case, KernelCall, Launch, Report, SoftmaxProblem, Time, Verified, describe, json_value
from portable_softmax.devices.backends.base import KernelResources, check_dtype
from portable_softmax.devices.detect import INSTALL, current_device, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.devices.grid import refusal
from portable_softmax.errors import DeviceError, GridError, PlanError, PortableSoftmaxError
from portable_softmax.planning.facts import GB_PER_S, softmax_facts
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.row_kernels.arguments import read_arguments
from portable_softmax.row_kernels.decorators import implied_arguments, jit_function
from portable_softmax.row_kernels.fits import too_many_together
from portable_softmax.row_kernels.inspection import Chosen, Launched, launched
from portable_softmax.row_kernels.offsets import warnings_of
from portable_softmax.runtime.plans import plan, plan_problem

BROKEN = PortableSoftmaxError, OSError, TypeError, ValueError, ImportError


def report_of(device: Device, case: Case, verify: bool = False) -> Report:
    """Returns the report of a case; what fails is its `error` and `message`.

    Args:
        device: the target.
        case: the softmax or kernel.
        verify: True to run it and compare the result.

    Raises:
        ValueError: the kernel's file cannot be loaded.
    """
    report = describe(device, case)
    file = load_kernel(case.name, device) if isinstance(case, KernelCall) else None
    try:
        return _judged(_of_kernel(report, device, file, verify) if file else _of_softmax(report, device, verify), device)
    except BROKEN as error:
        return msgspec.structs.replace(report, error=type(error).__name__, message=str(error))


def again(report: Report) -> tuple[Device, Case, bool]:
    """Returns (device, case, verify) of an earlier report, to be answered once more.

    Raises:
        DeviceError: the device was on that machine, and is missing or another one here.
        ProfileError: its profile is gone.
    """
    then = report.device
    device = current_device(then.index) if then.here else Device.from_profile(then.profile)
    if device.profile.name != then.profile:
        raise DeviceError(f"the saved report is about {then.name}; this is {device.name}")
    return device, report.case, bool(report.verify)


def _judged(report: Report, device: Device) -> Report:
    """Adds the next step, and the error of a launch that does not fit or whose result is wrong."""
    used, added = report.resources, dict[str, Any]()
    if used and report.occupancy:
        step = next_step(used, device)
        added["next_step"] = step
        if not report.occupancy.programs_per_multiprocessor and not report.error:
            added |= {"error": PlanError.__name__, "message": step}
    if report.verify and not report.verify.right:
        added |= {"error": WRONG, "message": "the result differs from float64 by more than the tolerance"}
    return msgspec.structs.replace(report, **added)


def _used(device: Device, used: KernelResources) -> dict[str, Any]:
    fits = device.vendor.occupancy(used, device.hardware)
    return {"resources": used, "occupancy": fits, "resident_programs": device.resident(fits)}


def _of_softmax(report: Report, device: Device, verify: bool) -> Report:
    case = report.case
    assert isinstance(case, SoftmaxProblem)
    if case.scores:
        check_dtype(case.dtype)
        launch_plan = plan_problem(
            contiguous_problem(case.n_rows, case.n_cols, case.dtype, backward=case.backward, scores=case.scores), device
        )
    else:
        launch_plan = plan(case.n_rows, case.n_cols, case.dtype, device, backward=case.backward)
    return msgspec.structs.replace(
        report,
        launch=Launch(tiling=launch_plan.tiling, num_programs=launch_plan.num_programs),
        time=time_of(launch_plan, device),
        reasons=launch_plan.reasons,
        warnings=(launch_plan.warning,) if launch_plan.warning else (),
        verify=_module("verify").verify_softmax(case, launch_plan, device) if verify else None,
        **_used(device, launch_plan.resources),
    )


def time_of(launch_plan: LaunchPlan, device: Device) -> Time | None:
    """Returns the estimated time of a planned softmax or gradient; None if the bandwidth is unknown."""
    cost, terms, resident = device.profile.launch.cost, launch_plan.terms, device.resident(launch_plan.occupancy)
    if not device.hardware.memory_bandwidth_gb_per_s or not resident:
        return None
    known = softmax_facts(
        launch_plan.problem,
        launch_plan.tiling,
        launch_plan.num_programs,
        launch_plan.occupancy.programs_per_multiprocessor,
        device,
    )
    return Time(
        expected_us=terms.total if terms else None,
        terms=terms._asdict() if terms else {},
        error=(cost and cost.error_90) or None,
        bytes=round(known.memory_us * GB_PER_S * device.hardware.memory_bandwidth_gb_per_s),
        floor_us=known.memory_us,
    )


def _of_kernel(report: Report, device: Device, file: KernelFile, verify: bool) -> Report:
    case, jit = report.case, jit_function(file.kernel)
    assert isinstance(case, KernelCall)
    known = load_case(file, case.case) if case.case else None
    if known and verify and device.backend == "interpreter":
        return msgspec.structs.replace(report, verify=_run(device, case, file, known, None))
    passed = call_values(case, known)
    arguments = {name: value for name, value in passed.items() if name in jit.arg_names}
    options = {name: value for name, value in passed.items() if name not in jit.arg_names}
    launch = launched(file.kernel, arguments, options, device, case.config)
    grid = known and known.grid_for({name: constant.value for name, constant in launch.constants.items()})
    values = {
        name: argument.value for name, argument in read_arguments(jit, implied_arguments(file.kernel) | arguments).items()
    }
    report = msgspec.structs.replace(
        report,
        launch=_launch(launch, case, grid),
        warnings=tuple(warnings_of(launch.compiled, jit, values, grid[0] if grid else None)),
        **_used(device, device.vendor.resources(launch.compiled)),
    )
    if grid and (refused := refused_grid(launch, grid, device)):
        report = msgspec.structs.replace(report, error=GridError.__name__, message=refused)
    elif known and verify and report.occupancy and report.occupancy.programs_per_multiprocessor:
        report = msgspec.structs.replace(report, verify=_run(device, case, file, known, launch))
    return report


def call_values(case: KernelCall, known: Any) -> dict[str, Any]:
    """Returns the arguments and options of a call by name: of its KernelCase, of the command line, suggested."""
    return {**(known.arguments if known else {}), **case.arguments, **case.options, **case.suggested}


def refused_grid(launch: Launched, grid: tuple[int, int, int], device: Device) -> str | None:
    """Returns the reason why the device does not take the grid of a launch; None if it does."""
    blocks = launch.options.get("num_ctas")
    refused = refusal(device, grid, launch.compiled.metadata.num_warps, blocks.value if blocks else 1)
    return refused or too_many_together(launch.compiled, grid, device)


def _launch(launch: Launched, case: KernelCall, grid: tuple[int, int, int] | None) -> Launch:
    """Returns a kernel's launch; options that are lists, such as paths of libraries, are left out."""

    def chosen(values: dict[str, Chosen]) -> dict[str, Chosen]:
        plain = {name: choice for name, choice in values.items() if not isinstance(choice.value, list | tuple | dict)}
        by = dict.fromkeys(case.suggested.keys() & plain.keys(), "suggested")
        return {name: Chosen(json_value(choice.value), by.get(name, choice.by)) for name, choice in plain.items()}

    words = {"tt.divisibility": "multiple of {}", "tt.pointer_range": "pointer range {} bits"}
    arguments = {
        name: ", ".join([argument.kind, *(words.get(fact, fact + " {}").format(value) for fact, value in argument.known)])
        for name, argument in launch.arguments.items()
    }
    return Launch(grid=grid, arguments=arguments, constants=chosen(launch.constants), options=chosen(launch.options))


def _run(device: Device, case: KernelCall, file: KernelFile, known: Any, launch: Launched | None) -> Verified:
    """Runs a kernel on the device, in the interpreter, or on the emulator of its vendor."""
    verify = _module("verify")
    known = known.with_values(jit_function(file.kernel), case.arguments)
    if launch and device.index is None:
        run = functools.partial(_module("virtual").run_case, launch, known, device)
    else:
        run = functools.partial(verify.run_here, file.kernel, case.config, case.options, known, device)
    verified: Verified = verify.verify_case(known, run)
    return verified


def load_case(file: KernelFile, name: str) -> Any:
    """Returns the KernelCase that a function in the kernel's file makes; see verify.load_case."""
    return _module("verify").load_case(file, name)


def _module(name: str) -> Any:
    """Returns a module of this package that needs torch; DeviceError if it is not installed."""
    try:
        return importlib.import_module(f"portable_probe.{name}")
    except ImportError as error:
        raise DeviceError(f"verify and --case require torch ({error}); {INSTALL}") from error


def interpreted(device: Device) -> bool:
    """True if the case has to run in another process, with TRITON_INTERPRET=1."""
    return device.backend == "interpreter" and not interpreting()
