"""From a case to its report: plans or compiles it, counts the programs that fit, and verifies the result if requested."""

import functools
import importlib
from typing import Any

import msgspec

from portable_probe.explain import next_step
from portable_probe.loading import KernelFile, load_kernel
from portable_probe.report import Case, KernelCall, Launch, Report, SoftmaxProblem, Time, Verified, describe, json_value
from portable_softmax.devices.detect import INSTALL, current_device
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError, GridError, PlanError, PortableSoftmaxError
from portable_softmax.planning.cost import Terms
from portable_softmax.planning.facts import GB_PER_S, softmax_facts
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.row_kernels.arguments import constant_of, read_arguments, value_of
from portable_softmax.row_kernels.decorators import implied_arguments, jit_function
from portable_softmax.row_kernels.facts import warnings_of
from portable_softmax.row_kernels.fits import refused_grid
from portable_softmax.row_kernels.inspection import Chosen, Launched, inspect_kernel
from portable_softmax.runtime.plans import plan_problem

BROKEN = PortableSoftmaxError, OSError, TypeError, ValueError, ImportError
ATTRIBUTES = {"tt.divisibility": "multiple of {}", "tt.pointer_range": "pointer range {} bits"}


def report_of(device: Device, case: Case, verify: bool = False) -> Report:
    """Returns the report of a case; what fails is its `error` and `message`.

    Args:
        device: the target.
        case: the softmax or kernel.
        verify: True to run it and compare the result.

    Raises:
        ValueError: the kernel's file cannot be loaded.
    """
    report, answers = describe(device, case), dict[str, Any]()
    file = load_kernel(case.name, device) if isinstance(case, KernelCall) else None
    try:
        if isinstance(case, SoftmaxProblem):
            answers = _softmax(device, case, verify)
        elif file:
            answers = _kernel(device, case, file, verify)
    except BROKEN as error:
        answers = {"error": type(error).__name__, "message": str(error)}
    if used := answers.get("resources"):
        fits = device.vendor.occupancy(used, device.hardware)
        answers |= {"occupancy": fits, "resident_programs": device.resident(fits), "next_step": next_step(used, device)}
        if not fits.programs_per_multiprocessor:
            answers = {"error": PlanError.__name__, "message": answers["next_step"], **answers}
    if (verified := answers.get("verify")) and not verified.right:
        answers |= {"error": "WrongResult", "message": "the result differs from float64 by more than the tolerance"}
    return msgspec.structs.replace(report, **answers)


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


def _softmax(device: Device, case: SoftmaxProblem, verify: bool) -> dict[str, Any]:
    problem = contiguous_problem(case.n_rows, case.n_cols, case.dtype, backward=case.backward, scores=case.scores)
    launch_plan = plan_problem(problem, device)
    return {
        "launch": Launch(tiling=launch_plan.tiling, num_programs=launch_plan.num_programs),
        "resources": launch_plan.resources,
        "time": _time(launch_plan, device),
        "reasons": launch_plan.reasons,
        "warnings": (launch_plan.warning,) if launch_plan.warning else (),
        "verify": _module("verify").verify_softmax(case, launch_plan, device) if verify else None,
    }


def _time(launch_plan: LaunchPlan, device: Device) -> Time | None:
    bandwidth, resident = device.hardware.memory_bandwidth_gb_per_s, launch_plan.occupancy.programs_per_multiprocessor
    if not bandwidth or not resident:
        return None
    known = softmax_facts(launch_plan.problem, launch_plan.tiling, launch_plan.num_programs, resident, device)
    return expected_time(
        device, launch_plan.terms, floor_us=known.memory_us, bytes=round(known.memory_us * GB_PER_S * bandwidth)
    )


def expected_time(device: Device, terms: Terms | None, **more: Any) -> Time:
    """Returns the estimated time of a launch, from the terms of its cost."""
    cost = device.profile.launch.cost
    known: dict[str, Any] = {"expected_us": terms.total, "terms": terms._asdict()} if terms else {}
    return Time(error=(cost and cost.error_90) or None, **known, **more)


def _kernel(device: Device, case: KernelCall, file: KernelFile, verify: bool) -> dict[str, Any]:
    jit, known = jit_function(file.kernel), load_case(file, case)
    if known and verify and device.backend == "interpreter":
        return {"verify": _run(device, case, file, known, None)}
    arguments, options = call_values(jit, case, known)
    used, occupancy, launch = inspect_kernel(file.kernel, arguments, config=case.config, device=device, **options)
    grid = known and known.grid_for({name: constant.value for name, constant in launch.constants.items()})
    values, _ = read_arguments(jit, implied_arguments(file.kernel) | arguments)
    answers = {
        "launch": _launch(launch, case, grid),
        "resources": used,
        "warnings": tuple(warnings_of(launch.compiled, jit, values, grid[0] if grid else None)),
    }
    if grid and (refused := refused_grid(launch.compiled, grid, device)):
        answers |= {"error": GridError.__name__, "message": refused}
    elif known and verify and occupancy.programs_per_multiprocessor:
        answers["verify"] = _run(device, case, file, known, launch)
    return answers


def call_values(jit: Any, case: KernelCall, known: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the arguments and the options of a call by name: of its KernelCase, of the command line, suggested."""
    words = {name: text if name in jit.arg_names else value_of(text) for name, text in case.arguments.items()}
    values = {**(known.arguments if known else {}), **words, **case.suggested}
    arguments = {name: value for name, value in values.items() if name in jit.arg_names}
    return arguments, {name: value for name, value in values.items() if name not in arguments}


def _launch(launch: Launched, case: KernelCall, grid: tuple[int, int, int] | None) -> Launch:
    """Returns a kernel's launch; options that are lists, such as paths of libraries, are left out."""

    def chosen(values: dict[str, Chosen]) -> dict[str, Chosen]:
        plain = {name: choice for name, choice in values.items() if not isinstance(choice.value, list | tuple | dict)}
        by = dict.fromkeys(case.suggested.keys() & plain.keys(), "suggested")
        return {name: Chosen(json_value(choice.value), by.get(name, choice.by)) for name, choice in plain.items()}

    arguments = {
        name: ", ".join([kind, *(ATTRIBUTES.get(fact, fact + " {}").format(value) for fact, value in known)])
        for name, (kind, known) in launch.arguments.items()
    }
    return Launch(grid=grid, arguments=arguments, constants=chosen(launch.constants), options=chosen(launch.options))


def _run(device: Device, case: KernelCall, file: KernelFile, known: Any, launch: Launched | None) -> Verified:
    """Runs a kernel on the device, in the interpreter, or on the emulator of its vendor."""
    verify = _module("verify")
    known = known._replace(arguments={**known.arguments, **{name: constant_of(text) for name, text in case.arguments.items()}})
    if launch and device.index is None:
        run = functools.partial(_module("virtual").run_case, launch, known, device)
    else:
        run = functools.partial(verify.run_here, file.kernel, case.config, known, device)
    verified: Verified = verify.verify_case(known, run)
    return verified


def load_case(file: KernelFile, case: KernelCall) -> Any:
    """Returns the KernelCase that a function in the kernel's file makes, if one is named; see verify.load_case."""
    return _module("verify").load_case(file, case.case) if case.case else None


def _module(name: str) -> Any:
    """Returns a module of this package that needs torch; DeviceError if it is not installed."""
    try:
        return importlib.import_module(f"portable_probe.{name}")
    except ImportError as error:
        raise DeviceError(f"verify and --case require torch ({error}); {INSTALL}") from error
