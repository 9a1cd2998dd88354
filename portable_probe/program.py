"""The program `portable-softmax` and its subcommands."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from portable_probe import options as words
from portable_probe.cases import BROKEN, again, interpreted, report_of
from portable_probe.compare import ReportsError, as_table, check_kernel, compare, load, save
from portable_probe.explain import unmet
from portable_probe.loading import UnknownKernelError
from portable_probe.profiles import list_profiles, new_profile, show_profile
from portable_probe.report import SCHEMA_VERSION, KernelCall, Report, encoded
from portable_probe.suggest import pasted, variants
from portable_probe.text import as_text
from portable_probe.tune import command as tune
from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.devices.names import find_profiles
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
    options = parser().parse_args(typed)
    options.typed = typed
    try:
        code = int(options.answer(options))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the interpreter's own flush
        return 0
    except BROKEN as error:
        if getattr(options, "json", False):
            print(encoded({"schema_version": SCHEMA_VERSION, "error": type(error).__name__, "message": str(error)}))
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2 if isinstance(error, USAGE) else 4 if isinstance(error, DeviceError | TargetError | ImportError) else 1


def parser() -> words.Parser:
    """Returns the program's parser."""
    version = sys.modules["portable_softmax"].__version__  # this is a part of it
    about = "Launches and occupancy of the softmax and of any Triton kernel, on local and absent GPUs and NPUs."
    raw: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "epilog": words.EXIT_CODES}
    made = words.Parser(prog="portable-softmax", description=about, **raw)
    made.add_argument("--version", action="version", version=f"portable-softmax {version}")
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (text, add) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", **raw)
        command.set_defaults(error=command.error)
        add(command)
    return made


def _plan(command: words.Parser) -> None:
    words.device(command)
    words.softmax(command)
    words.gates(command)
    words.output(command)
    command.set_defaults(answer=_answer, kernel=None, verify=False, config=None, suggest=None)


def _kernel(command: words.Parser) -> None:
    command.add_argument("kernel", type=words.kernel_name, metavar="FILE:NAME", help="a @triton.jit function, as decorated")
    words.device(command)
    words.call(command)
    text = "all warps and stages, sorted by spills and occupancy; of a kernel that works on rows the launch with the least"
    text += " expected time: rows=N cols=M block=BLOCK name its parameters"
    command.add_argument("--suggest", type=words.pair, nargs="*", metavar="ROLE=PARAMETER", help=text)
    words.gates(command)
    words.output(command)
    command.set_defaults(answer=_answer, verify=False)


def _verify(command: words.Parser) -> None:
    words.device(command)
    words.softmax(command)
    command.add_argument("--kernel", type=words.kernel_name, metavar="FILE:NAME", help="a user kernel instead; needs --case")
    words.call(command)
    words.kept(command)
    nothing = dict.fromkeys(("suggest", "at_least", "no_spills", "explain", "facts"))
    command.set_defaults(answer=_answer, verify=True, **nothing)


def _diff(command: words.Parser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help="what --save wrote; its cases are answered again")
    command.add_argument("--kernel", metavar="FILE:NAME", help="the user kernel in it; its file may run")
    words.require(command)
    words.kept(command)
    command.set_defaults(answer=_differences)


def _profiles(command: words.Parser) -> None:
    command.add_argument("--json", action="store_true", help="all names, with their limits, as JSON")
    command.set_defaults(answer=list_profiles)
    actions = command.add_subparsers(metavar="ACTION")
    actions.add_parser("list", help="the products that have a profile (default)")
    show = actions.add_parser("show", help="the facts of one profile, with their sources")
    show.add_argument("name", metavar="NAME", help="such as amd/mi300x")
    show.add_argument("--json", action="store_true", help="the device's limits as JSON instead")
    show.set_defaults(answer=show_profile)
    new = actions.add_parser("new", help="write a profile of the local device, with what its driver reports")
    new.add_argument("directory", type=Path, metavar="DIR", help="where to write")
    new.set_defaults(answer=new_profile)


COMMANDS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "plan": ("launches of the softmax, and their occupancy", _plan),
    "kernel": ("the launch and occupancy of a user kernel", _kernel),
    "verify": ("run the softmax or a user kernel, and compare the result", _verify),
    "diff": ("answer the cases of a saved file again, and print what changed", _diff),
    "profiles": ("hardware profiles: list, show, new", _profiles),
    "tune": ("fit the cost of launches on the local device", tune.add),
}


def _answer(options: argparse.Namespace) -> int:
    """Answers plan, kernel and verify."""
    cases = [words.kernel_call(options)] if options.kernel else words.softmaxes(options)
    devices = [Device.from_profile(profile.name) for profile in find_profiles(options.on)] if options.on else [_here(options)]
    _check_devices(options, devices)
    if options.verify and interpreted(devices[0]):
        return _in_interpreter(options.typed)
    names = None if options.suggest is None else dict(options.suggest)
    choices, every = names is not None or options.config == "all", options.config == "all"
    reports, gated = list[Report](), list[Report]()
    for device, case in product(devices, cases):
        if choices and isinstance(case, KernelCall):
            answers = variants(case, device, every, names)
        else:
            answers = [report_of(device, case, options.verify)]
        reports += answers
        gated += [_gated(report, device, options) for report in answers]
    if options.save:
        save(reports, options.save)
        print(f"wrote {options.save}", file=sys.stderr)
    return _shown(options, gated, choices)


def _shown(options: argparse.Namespace, reports: list[Report], choices: bool) -> int:
    """Prints reports, and returns the exit code; of several choices one for each device is enough."""
    form = "github" if options.markdown else "plain"
    print(encoded(reports) if options.json else as_text(reports, form, options.explain, options.facts))
    if choices and not options.json and (configs := pasted(reports)):
        print(f"\n{configs}")
    failed = [report for report in reports if report.error]
    if len(reports) == 1 and failed:
        print(f"{failed[0].error}: {failed[0].message}", file=sys.stderr)
    enough = {report.device.name for report in reports if choices and not report.error}
    failed = [report for report in failed if report.device.name not in enough]
    unchecked = all(report.error in (TargetError.__name__, DeviceError.__name__) for report in failed)
    return 0 if not failed else 4 if unchecked else 1


def _gated(report: Report, device: Device, options: argparse.Namespace) -> Report:
    """Adds the error of a launch that misses --at-least or --no-spills."""
    if report.error or not report.resources or not report.occupancy or not (options.at_least or options.no_spills):
        return report
    bounds = dict(options.at_least or ())
    least = bounds.get("", 0) if "" in bounds else bounds
    missed = unmet(report.resources, report.occupancy, device, least, options.no_spills)
    return report if missed is None else msgspec.structs.replace(report, error="CheckFailed", message=missed)


def _here(options: argparse.Namespace) -> Device:
    try:
        return current_device()
    except NoDeviceError as error:
        if options.verify and options.require in (None, "interpreter"):
            hint = "Running in Triton's interpreter instead; --on amd/mi300x emulates an AMD GPU."
            print(f"No accelerator: {error}\n{hint}\n", file=sys.stderr, flush=True)
            return Device.from_profile("triton/interpreter")
        raise NoDeviceError(f"{error}\n--on NAME answers for an absent device") from error


def _check_devices(options: argparse.Namespace, devices: list[Device]) -> None:
    others = sorted({device.backend for device in devices} - {options.require})
    if options.require and others:
        raise ValueError(f"--require {options.require}: the device is of backend {', '.join(others)}")
    absent = [device for device in devices if device.detected is None and device.backend not in ("hip", "interpreter")]
    if options.verify and (absent or len(devices) > 1):
        options.error("verify runs on the local device, on an emulated AMD GPU (--on amd/mi300x), or in the interpreter")


def _differences(options: argparse.Namespace) -> int:
    """Answers the cases of a saved file again, and prints what changed."""
    before = load(options.file)
    check_kernel(before, options.kernel, options.file)
    requests = [again(report) for report in before]
    if any(interpreted(device) for device, _, _ in requests):
        return _in_interpreter(options.typed)
    options.verify = False
    _check_devices(options, [device for device, _, _ in requests])
    after = [report_of(*request) for request in requests]
    if options.save:
        save(after, options.save)
    comparison = compare(before, after)
    print(encoded(comparison) if options.json else as_table(comparison, "github" if options.markdown else "plain"))
    return comparison.exit_code


def _in_interpreter(typed: list[str]) -> int:
    """Answers in another process, because Triton decides at import whether it interprets."""
    command = [sys.executable, *INTERPRETED, "-m", "portable_probe", *typed]
    code = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, check=False).returncode
    if code < 0:
        print(f"the interpreter died of signal {-code}: does the kernel access memory out of bounds?", file=sys.stderr)
    return code if code >= 0 else 1
