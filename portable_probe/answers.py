"""Answers what a command line asks: devices and cases -> reports -> text, tables or JSON, and an exit code."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from portable_probe.cases import BROKEN, WRONG, Wanted, again, cases, reports_of
from portable_probe.loading import UnknownKernelError
from portable_probe.options import complaints, named
from portable_probe.regression import REGRESSED, as_table, check_kernel, compare, load, save
from portable_probe.report import Case, software, use_of, words_of
from portable_probe.report_types import SCHEMA_VERSION, KernelUse, Report, encoded
from portable_probe.stages import UnknownStageError
from portable_probe.table import as_tables, worst_last
from portable_probe.text import as_text, verified_alone
from portable_softmax.devices.detect import current_device, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError, NoDeviceError, ProfileError, TargetError

ELSEWHERE = 4  # exit code: nothing is broken, and this Triton does not compile for the device


def launches(options: argparse.Namespace) -> int:
    """Prints the launches that are asked about, or what is wrong, and returns the exit code; see options.EXIT_CODES."""
    for complaint in complaints(options):
        options.error(complaint)
    try:
        return _reports(options)
    except NoDeviceError as error:
        return _without_accelerator(error, options)


def said(options: argparse.Namespace) -> int:
    """Returns what `options.answer` returns; an error is told in a sentence, with --json as JSON too."""
    try:
        return int(options.answer(options))
    except BrokenPipeError:
        raise
    except BROKEN as error:
        if options.json:
            print(encoded({"schema_version": SCHEMA_VERSION, "error": type(error).__name__, "message": str(error)}))
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return _code(error)


def _code(error: Exception) -> int:
    """Returns the exit code of an error: wrong names are usage, as wrong options are."""
    if isinstance(error, TargetError):
        return ELSEWHERE
    return 2 if isinstance(error, ProfileError | UnknownStageError | UnknownKernelError | FileNotFoundError) else 1


def _reports(options: argparse.Namespace) -> int:
    devices = [Device.from_profile(name) for name in options.on or ()] or [current_device()]
    if options.verify and devices[0].backend == "interpreter" and not interpreting():
        return _interpreted(options)
    require(options.require, devices)
    asked_about = [(device, case) for device in devices for case in cases(options, device)]
    several = len(asked_about) > len(devices)
    reports = reports_of([(device, case, _wanted(options, device, case, several)) for device, case in asked_about])
    if options.save:
        save(reports, Path(options.save))
    code = _show(worst_last(reports) if _are_choices(options) else reports, options)
    if options.save:
        print(f"wrote {options.save}", file=sys.stderr)
    return code


def _are_choices(options: argparse.Namespace) -> bool:
    """Tells whether the question is which of several launches of a kernel is best."""
    return bool(options.config == "all" or options.suggest == [])


def _wanted(options: argparse.Namespace, device: Device, case: Case, several: bool) -> Wanted:
    """Returns the additions that are asked for; each device, and each of several cases, dumps to a folder of its own."""
    parts = [options.out or "."]
    if len(options.on or ()) > 1:
        parts.append(device.profile.name)
    if several:
        parts.append(f"configuration-{case.config}" if isinstance(case, KernelUse) else words_of(case).replace(" ", "-"))
    return Wanted(options.verify, options.dump, Path(*parts))


def _show(reports: list[Report], options: argparse.Namespace) -> int:
    alone = len(reports) == 1
    form = "github" if options.markdown else "plain"
    if options.json:
        print(encoded(reports[0] if alone else reports))
    elif alone and not options.markdown:
        briefly = options.verify and reports[0].verify and not (options.facts or options.explain)
        print(verified_alone(reports[0]) if briefly else as_text(reports[0], options.explain, options.facts))
    else:
        print(as_tables(reports, form, options.facts, options.explain))
    if alone and reports[0].error and (options.json or reports[0].error != WRONG):
        print(f"{reports[0].error}: {reports[0].message}", file=sys.stderr)
    failed = [report for report in reports if report.error]
    if _are_choices(options) and any(use_of(report) and not report.error for report in reports):
        return 0  # which of them fit was the question
    return 0 if not failed else ELSEWHERE if all(report.error == TargetError.__name__ for report in failed) else 1


def differences(options: argparse.Namespace) -> int:
    """Asks a saved run's cases once more, and shows what changed."""
    before = load(options.file)
    check_kernel(before, options.kernel, options.file)
    if not interpreting() and any(report.device.backend == "interpreter" for report in before):
        return _interpreted(options)
    try:
        asked = [again(report) for report in before]
    except NoDeviceError as error:
        way_out = "ask where it is, or keep reports of one that need not be here: `portable-softmax plan --on NAME --save FILE`"
        raise DeviceError(
            f"{options.file} holds reports of a device that was here; {way_out}. No accelerator: {error}"
        ) from error
    require(options.require, [device for device, _, _ in asked])
    after = reports_of(asked)
    if options.save:
        save(after, Path(options.save))
    comparison = compare(before, after)
    print(encoded(comparison) if options.json else as_table(comparison, "github" if options.markdown else "plain"))
    return REGRESSED if comparison.regressed else 0


def require(backend: str | None, devices: list[Device]) -> None:
    """Refuses devices of another backend; DeviceError."""
    if backend and (others := sorted({device.backend for device in devices} - {backend})):
        raise DeviceError(f"a {backend} device was required; this is {', '.join(others)}")


def _without_accelerator(error: NoDeviceError, options: argparse.Namespace) -> int:
    if options.verify:
        virtual = " `portable-softmax verify --on amd/mi300x` runs an AMD device's machine code on this CPU."
        print(
            f"No accelerator: {error}\nThe same kernel runs in Triton's interpreter instead.{virtual}\n",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        return _interpreted(options)
    if complaint := _needs_a_device(options):
        raise DeviceError(f"{complaint}. No accelerator: {error}")
    if options.json:
        told = {"schema_version": SCHEMA_VERSION, "software": software(), "device": None, "message": str(error)}
        print(encoded(told))
    else:
        installed = ", ".join(f"{name} {version}" for name, version in software().items())
        print(
            f"No accelerator: {error}\nInstalled: {installed}\n"
            "`portable-softmax plan --on NAME` plans for a device that is not here, and `portable-softmax profiles` lists "
            "them; `portable-softmax verify` runs the kernel in Triton's interpreter."
        )
    return 0


def _needs_a_device(options: argparse.Namespace) -> str | None:
    """Says what cannot be answered without an accelerator; None if that there is none is an answer."""
    if options.require:
        return f"a {options.require} device was required"
    extras = [name for name in ("dump", "explain", "save", "markdown") if getattr(options, name)]
    if not (extras or options.kernel):
        return None
    return f"{'a kernel' if options.kernel else named(extras)} needs a device: --on NAME"


def _interpreted(options: argparse.Namespace) -> int:
    """Answers in another process, since Triton decides at import whether it interprets."""
    quiet = ["-W", "ignore::RuntimeWarning:triton.runtime.interpreter"]  # nan of masked rows, in numpy
    command = [sys.executable, *quiet, "-m", "portable_probe", *options.words]
    code = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, check=False).returncode
    if code < 0:
        print(f"the interpreter died of signal {-code}: does the kernel access memory that it was not given?", file=sys.stderr)
    return code if code >= 0 else 1
