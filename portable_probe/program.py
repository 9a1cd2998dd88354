"""The program `portable-softmax` and its subcommands."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import msgspec

from portable_probe.cases import BROKEN, again, report_of
from portable_probe.compare import ReportsError, check_kernel, compared, load, save
from portable_probe.devices import devices_of
from portable_probe.explain import unmet
from portable_probe.loading import UnknownKernelError
from portable_probe.options import EXIT_CODES, OPTIONS, kernel_call, softmaxes
from portable_probe.profiles import facts_of, profiles
from portable_probe.report import KernelCall, Report, encoded
from portable_probe.suggest import pasted, variants
from portable_probe.text import as_text
from portable_probe.tune import command as tune
from portable_softmax.devices.detect import interpreting
from portable_softmax.errors import DeviceError, NoDeviceError, ProfileError, TargetError

INTERPRETED = ["-W", "ignore::RuntimeWarning:triton.runtime.interpreter"]  # nan of masked rows, in numpy
USAGE = ProfileError, UnknownKernelError, FileNotFoundError, ReportsError


def main(arguments: Sequence[str] | None = None) -> int:
    """Answers the command line, and returns the exit code.

    Args:
        arguments: words of the command line; None for those of the process.

    Raises:
        SystemExit: wrong usage, with code 2.
    """
    typed = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(typed, argparse.Namespace(**dict.fromkeys(map(_dest, OPTIONS)), typed=typed))
    try:
        code = int(options.answer(options))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the interpreter's own flush
        return 0
    except BROKEN as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2 if isinstance(error, USAGE) else 4 if isinstance(error, DeviceError | TargetError | ImportError) else 1


def parser() -> argparse.ArgumentParser:
    """Returns the program's parser."""
    version = sys.modules["portable_softmax"].__version__  # this is a part of it
    about = "Launches and occupancy of the softmax and of any Triton kernel, on local and absent GPUs and NPUs."
    raw: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "epilog": EXIT_CODES}
    made = argparse.ArgumentParser(prog="portable-softmax", description=about, **raw)
    made.add_argument("--version", action="version", version=f"portable-softmax {version}")
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (text, answer, names) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", **raw)
        command.set_defaults(answer=answer, error=command.error)
        for option in names.split():
            command.add_argument(option, **OPTIONS[option])
        if name == "tune":
            tune.add(command)
    return made


def _dest(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _answer(options: argparse.Namespace) -> int:
    """Answers plan and kernel."""
    cases = [kernel_call(options)] if options.kernel else softmaxes(options)
    devices, every = devices_of(options.on), options.config == "all"
    names = None if options.suggest is None else dict(options.suggest)
    reports = list[Report]()
    for device, case in product(devices, cases):
        kernel = isinstance(case, KernelCall)
        reports += variants(case, device, every, names) if kernel else [report_of(device, case)]
    code = _shown(options, [_gated(report, options) for report in reports], every or names is not None)
    for device in devices if options.facts and not options.json else ():
        print(f"\n{facts_of(device)}")
    return code


def _verify(options: argparse.Namespace) -> int:
    """Runs on the local device, on an emulator, or in the interpreter."""
    if options.kernel and not options.case:
        options.error("verify --kernel requires --case NAME: a function that returns (grid, arguments, expected)")
    if options.on == ["interpreter"] and not interpreting():
        return _in_interpreter(options.typed)
    try:
        device, *others = devices_of(options.on)
    except NoDeviceError as error:
        if options.on:
            raise
        print(f"{error}\nRunning in Triton's interpreter instead.\n", file=sys.stderr, flush=True)
        return _in_interpreter(options.typed)
    if others or (device.detected is None and device.backend != "hip"):
        options.error("verify runs on the local device, on an emulated AMD GPU (--on amd/mi300x), or in the interpreter")
    cases = [kernel_call(options)] if options.kernel else softmaxes(options)
    reports = [report_of(device, case, verify=True) for case in cases]
    return _shown(options, reports)


def _shown(options: argparse.Namespace, reports: list[Report], choices: bool = False) -> int:
    """Prints and saves reports, and returns the exit code; of several choices one for each device is enough."""
    if options.save:
        save(reports, options.save)
        print(f"wrote {options.save}", file=sys.stderr)
    print(encoded(reports) if options.json else as_text(reports, "github" if options.markdown else "plain", options.explain))
    if choices and not options.json and (configs := pasted(reports)):
        print(f"\n{configs}")
    failed = [report for report in reports if report.error]
    if len(reports) == 1 and failed:
        print(f"{failed[0].error}: {failed[0].message}", file=sys.stderr)
    enough = {report.device.name for report in reports if choices and not report.error}
    failed = [report for report in failed if report.device.name not in enough]
    unchecked = all(report.error in (TargetError.__name__, DeviceError.__name__) for report in failed)
    return 0 if not failed else 4 if unchecked else 1


def _gated(report: Report, options: argparse.Namespace) -> Report:
    """Adds the error of a launch that misses --at-least or --no-spills."""
    if report.error or not report.numbers:
        return report
    numbers, device, bounds = report.numbers, report.device, dict(options.at_least)
    used = numbers["spilled_bytes_per_thread"], numbers["programs_per_multiprocessor"], report.limited_by
    missed = unmet(*used, device.backend, device.multiprocessor, bounds.get("", bounds), options.no_spills)
    return msgspec.structs.replace(report, error="CheckFailed", message=missed) if missed else report


def _differences(options: argparse.Namespace) -> int:
    """Answers the cases of a saved file again, and prints what changed."""
    before = load(options.file)
    check_kernel(before, options.kernel, options.file)
    after = [report_of(*request) for request in [again(report) for report in before]]
    if options.save:
        save(after, options.save)
    text, code = compared(before, after, "github" if options.markdown else "plain")
    print(text)
    return code


def _in_interpreter(typed: list[str]) -> int:
    """Answers in another process, because Triton decides at import whether it interprets."""
    command = [sys.executable, *INTERPRETED, "-m", "portable_probe", *typed]
    code = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, check=False).returncode
    if code < 0:
        print(f"the interpreter died of signal {-code}: does the kernel access memory out of bounds?", file=sys.stderr)
    return code if code >= 0 else 1


_SOFTMAX = "--shapes --dtype --backward"
_KERNEL = "--args --case --config"
_GATES = "--at-least --no-spills --explain --facts --json --markdown --save"
COMMANDS: dict[str, tuple[str, Callable[[argparse.Namespace], int], str]] = {
    "plan": ("launches of the softmax, and their occupancy", _answer, f"--on {_SOFTMAX} {_GATES}"),
    "kernel": ("the launch and occupancy of a user kernel", _answer, f"kernel --on {_KERNEL} --suggest {_GATES}"),
    "verify": (
        "run the softmax or a user kernel, and compare the result",
        _verify,
        f"--on {_SOFTMAX} --kernel {_KERNEL} --json --markdown",
    ),
    "diff": (
        "answer the cases of a saved file again, and print what changed",
        _differences,
        "file --kernel --markdown --save",
    ),
    "profiles": ("hardware profiles: list, show, new", profiles, "action what --json"),
    "tune": ("fit the cost of launches on the local device", tune.tune, ""),
}
