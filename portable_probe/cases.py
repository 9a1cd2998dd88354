"""Cases that a command line asks about, a device and a softmax or kernel each, and the report of one."""

import argparse
import functools
import importlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from portable_probe import scores
from portable_probe.explain import next_step
from portable_probe.kernel_case import KernelCase, grid_of, load_case, refused_grid, with_values
from portable_probe.loading import KernelFile, load_kernel
from portable_probe.output import few_lines_of_compilers
from portable_probe.report import Case, describe, json_value, launch_of, launch_of_kernel, without_answer
from portable_probe.report_types import KernelUse, Report, SoftmaxProblem, Verified
from portable_probe.stages import dump
from portable_probe.text import verdict
from portable_probe.times import time_of
from portable_softmax.devices.backends.base import KernelResources, check_dtype
from portable_softmax.devices.detect import INSTALL, current_device, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError, GridError, PortableSoftmaxError
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.request import scored_problem
from portable_softmax.planning.scores import NONE
from portable_softmax.row_kernels.arguments import text_of, value_of
from portable_softmax.row_kernels.blocks import smaller_block
from portable_softmax.row_kernels.decorators import configurations, implied_arguments, jit_function
from portable_softmax.row_kernels.launched import Launched, launched, read_arguments
from portable_softmax.row_kernels.offsets import warnings_of
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.plans import plan, plan_problem
from portable_softmax.runtime.specialization import KernelSpec

WRONG = "WrongResult"
BROKEN = PortableSoftmaxError, OSError, TypeError, ValueError, ImportError


@dataclass(frozen=True)
class Wanted:
    """Additions to a report.

    Args:
        verify: True to run the kernel too.
        dump: stages to write, comma-separated; None for none.
        out: folder for them.
    """

    verify: bool = False
    dump: str | None = None
    out: Path = Path()


def cases(options: argparse.Namespace, device: Device) -> list[Case]:
    """Returns the kernel that the options ask about, or the softmaxes, with the defaults of what was not given.

    Raises:
        ValueError: the kernel cannot be loaded, and all its configurations were asked for.
    """
    if options.kernel:
        given = {name: value_of(value) for name, value in options.options.items()}
        asked = KernelUse(
            name=options.kernel, arguments=options.arguments, options=given, config=options.config, case=options.case
        )
        if options.suggest is not None:
            return list(_suggested(asked, device, dict(options.suggest)))
        return list(_each_configuration(asked, device)) if options.config == "all" else [asked]
    shapes = options.shapes or [(options.rows or 4096, options.cols or 4096)]
    return [
        SoftmaxProblem(
            n_rows=n_rows, n_cols=n_cols, dtype=dtype,
            scores=scores.scores_of(options, dtype) or UNSET, backward=options.backward or UNSET,
        )
        for (n_rows, n_cols), dtype in itertools.product(shapes, options.dtype or ["float32"])
    ]  # fmt: skip


def _each_configuration(asked: KernelUse, device: Device) -> Iterator[KernelUse]:
    found = [config.all_kwargs() for config in configurations(load_kernel(asked.name, device).kernel)]
    if not found:
        raise ValueError(f"all configurations were asked for, and {asked.name} is not under @triton.autotune")
    every = dict.fromkeys(name for values in found for name in values if name not in ("num_warps", "num_stages"))
    names = [name for name in every if any(values.get(name) != found[0].get(name) for values in found)]
    for number, values in enumerate(found):
        chosen = {name: json_value(values[name]) for name in names if name in values}
        yield msgspec.structs.replace(asked, config=number, chosen=chosen)


def _suggested(asked: KernelUse, device: Device, names: dict[str, str]) -> Iterator[KernelUse]:
    """Yields launches of all warps and stages; of a kernel that goes over rows, whose parameters are named, the best one."""
    file = load_kernel(asked.name, device)
    if names:
        given = {**(load_case(file, asked.case).arguments if asked.case else {}), **asked.arguments, **asked.options}
        from portable_softmax.row_kernels.launcher import persistent  # needs torch

        plan = persistent(file.kernel, **dict[str, Any](names)).plan(**given, device=device)
        constexprs = {name: text_of(value) for name, value in plan.meta.items() if name in jit_function(file.kernel).arg_names}
        options = {name: value for name, value in plan.meta.items() if name not in constexprs}
        expected = [f"expected {plan.terms}"] if plan.terms else []
        reasons = [f"num_programs {plan.num_programs}", *expected, *plan.reasons]
        yield msgspec.structs.replace(asked, arguments=asked.arguments | constexprs, options=options, reasons=reasons)
        return
    from portable_softmax.row_kernels.row_settings import stages_of  # needs torch

    stages = stages_of(jit_function(file.kernel))
    facts = device.hardware
    most = (facts.max_threads_per_program or 1) // (facts.warp_size or 1)
    for warps, number in itertools.product([1 << each for each in range(most.bit_length())], (1, 2, 3, 4)):
        changed = {"arguments": asked.arguments | {stages: str(number)}} if stages else {}
        options = asked.options | {"num_warps": warps} | ({} if stages else {"num_stages": number})
        yield msgspec.structs.replace(asked, options=options, chosen={stages: number} if stages else {}, **changed)


def reports_of(asked: list[tuple[Device, Case, Wanted]]) -> list[Report]:
    """Returns a report of each case. One of several that fails says why, in `error` and `message`, and leaves the others.

    Raises:
        PortableSoftmaxError, OSError, TypeError, ValueError, ImportError: the only case fails, or a kernel cannot be loaded.
    """
    files = [load_kernel(case.name, device) if isinstance(case, KernelUse) else None for device, case, _ in asked]
    if len(asked) == 1:
        return [_report(*asked[0], files[0])]
    return [_report_or_error(*each, file) for each, file in zip(asked, files, strict=True)]


def again(report: Report) -> tuple[Device, Case, Wanted]:
    """Returns the case of an earlier report, to be asked once more.

    Raises:
        DeviceError: the device was here, and is missing or another one now.
        ProfileError: its profile is gone.
    """
    told = report.device
    device = current_device(told.index) if told.here else Device.from_profile(told.profile)
    if device.profile.name != told.profile:
        raise DeviceError(f"the earlier report is of {told.name}; this is {device.name}")
    case = report.problem or report.kernel
    assert case, "load() takes no such report"
    if isinstance(case, KernelUse):
        case = without_answer(case)
    return device, case, Wanted(verify=bool(report.verify))


def _report_or_error(device: Device, case: Case, wanted: Wanted, file: KernelFile | None) -> Report:
    try:
        return _report(device, case, wanted, file)
    except BROKEN as error:
        return msgspec.structs.replace(describe(device, case), error=type(error).__name__, message=str(error))


def _report(device: Device, case: Case, wanted: Wanted, file: KernelFile | None) -> Report:
    with few_lines_of_compilers():
        if isinstance(case, KernelUse):
            assert file, "each kernel has its file"
            found, resources, compiled = _kernel(device, case, file, wanted.verify)
        else:
            found, resources, compiled = _softmax(device, case, wanted)
    added: dict[str, Any] = {}
    if resources:
        if wanted.dump:
            added["dump"] = [str(path) for path in dump(compiled, wanted.dump, wanted.out)]
        added["next_step"] = next_step(resources, device)
        fits = device.vendor.occupancy(resources, device.hardware)
        if file and found.kernel and (resources.shared_memory_most or 0) > (device.hardware.shared_memory_per_program_max or 0):
            text = f"{added['next_step'].text}; {_smaller(found.kernel, file, device)}"
            added["next_step"] = msgspec.structs.replace(added["next_step"], text=text)
        if not fits.programs_per_multiprocessor and not found.error:
            added |= {"error": "PlanError", "message": added["next_step"].text}
    if found.verify and not found.verify.right:
        added |= {"error": WRONG, "message": verdict(found.verify)}
    return msgspec.structs.replace(found, **added)


def _smaller(used: KernelUse, file: KernelFile, device: Device) -> str:
    """Says which block of a kernel fits: of the largest constant that has BLOCK in its name."""
    known = {name: each.value for name, each in used.launch.constants.items()} if used.launch else {}
    blocks = {name: value for name, value in known.items() if "BLOCK" in name.upper() and type(value) is int}
    if not blocks:
        return "give smaller blocks"
    largest = max(blocks, key=lambda name: blocks[name])
    given = {**(load_case(file, used.case).arguments if used.case else {}), **used.arguments, **used.options}
    jit = jit_function(file.kernel)
    arguments = {name: each for name, each in given.items() if name in jit.arg_names and name != largest}
    read = {name: each.value for name, each in read_arguments(jit, arguments).items()}
    return smaller_block(file.kernel, read, largest, blocks[largest], device)


def _kernel(device: Device, case: KernelUse, file: KernelFile, verified: bool) -> tuple[Report, KernelResources | None, Any]:
    known, jit = load_case(file, case.case) if case.case else None, jit_function(file.kernel)
    if known and verified and device.backend == "interpreter":
        return msgspec.structs.replace(describe(device, case), verify=_run(device, case, file, known, None)), None, None
    given = {**(known.arguments if known else {}), **case.arguments, **case.options}
    options = {name: value for name, value in given.items() if name not in jit.arg_names}
    arguments = {name: value for name, value in given.items() if name in jit.arg_names}
    launch = launched(file.kernel, arguments, options, device, case.config)
    grid = grid_of(launch, known) if known else None
    refused = grid and refused_grid(launch, grid, device)
    resources = device.vendor.resources(launch.compiled)
    fits = device.vendor.occupancy(resources, device.hardware)
    used = {"resources": resources, "occupancy": fits, "resident_programs": device.resident(fits)}
    values = {name: each.value for name, each in read_arguments(jit, implied_arguments(file.kernel) | arguments).items()}
    warned = warnings_of(launch.compiled, jit, values, grid[0] if grid else None)
    answered = msgspec.structs.replace(case, launch=launch_of_kernel(launch), warnings=warned or msgspec.UNSET, **used)
    if grid:
        answered = msgspec.structs.replace(answered, grid=list(grid))
    report = describe(device, answered)
    if refused:
        report = msgspec.structs.replace(report, error=GridError.__name__, message=refused)
    elif verified and known:
        report = msgspec.structs.replace(report, verify=_run(device, case, file, known, launch))
    return report, resources, launch.compiled


def _run(device: Device, case: KernelUse, file: KernelFile, known: KernelCase, launch: Launched | None) -> Verified:
    """Runs a kernel where it can be run: on the device, in the interpreter, or in the virtual device of its vendor."""
    kernels = _imported("verify_kernel")
    known = with_values(known, jit_function(file.kernel), case.arguments)
    if launch and device.index is None:
        run = functools.partial(_imported("virtual").run_case, launch, known, device)
    else:
        run = functools.partial(kernels.run_here, file.kernel, case.config, case.options, known, device)
    found: Verified = kernels.verify_case(known, run)
    return found


def _softmax(device: Device, case: SoftmaxProblem, wanted: Wanted) -> tuple[Report, KernelResources, Any]:
    found = _planned(device, case)
    time = time_of(found, device) or UNSET
    report = msgspec.structs.replace(describe(device, case), plan=launch_of(found), time=time)
    if wanted.verify:
        report = msgspec.structs.replace(report, verify=_verified(device, case, found))
    if not wanted.dump:
        return report, found.resources, None
    return report, found.resources, compile_kernel(KernelSpec.of(found.problem, found.tiling), device)


def _planned(device: Device, case: SoftmaxProblem) -> LaunchPlan:
    backward = bool(case.backward)
    if not case.scores:
        return plan(case.n_rows, case.n_cols, case.dtype, device, backward=backward)
    check_dtype(case.dtype)
    return plan_problem(scored_problem(case.n_rows, case.n_cols, case.dtype, case.scores or NONE, backward), device)


def _verified(device: Device, case: SoftmaxProblem, found: LaunchPlan) -> Verified:
    """Runs the softmax on the device, or if that is not here in the virtual one of its vendor."""
    if device.index is None and not interpreting():
        ran: Verified = _imported("virtual").verify_softmax(case, found, device)
        return ran
    here: Verified = _imported("trial").verify_here(case, device)
    return here


def _imported(name: str) -> Any:
    """Returns a module of this room that needs torch.

    Raises:
        DeviceError: it is not installed.
    """
    try:
        return importlib.import_module(f"portable_probe.{name}")
    except ImportError as error:
        raise DeviceError(f"to verify is to compare tensors, which needs torch ({error}); {INSTALL}") from error
