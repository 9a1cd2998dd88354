"""The program `portable-softmax`: its options and subcommands."""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from portable_probe.cases import BROKEN, EXAMPLE, bounded_reports, report_of
from portable_probe.differences import compared
from portable_probe.explain import unmet
from portable_probe.profiles import facts_of, profiles
from portable_probe.report import Case, KernelCall, Report, SoftmaxProblem, encoded, load
from portable_probe.suggest import computed, configured
from portable_probe.text import as_text
from portable_probe.tune import tune
from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.detect import devices_of, how_to_install, interpreting, named
from portable_softmax.errors import NoDeviceError, TargetError
from portable_softmax.planning.operands import SHORT

INTERPRETED = ["-W", "ignore::RuntimeWarning:triton.runtime.interpreter"]  # nan of masked rows, in numpy
UNCHECKED = {"DeviceError", "NoDeviceError", "TargetError", "ImportError", "ModuleNotFoundError"}
FAILED = {"CheckFailed", "WrongResult", "CompileError", "PlanError", "GridError", "KernelError", "DtypeError"}
EXIT_CODES = "exit codes: 0 success, 1 a check failed, 2 wrong usage, 3 worse than saved (diff), 4 not checked, 130 Ctrl-C"


def _like(pattern: str, words: str, made: Callable[..., Any]) -> Callable[[str], Any]:
    """Returns a function for argparse, which makes a value of the groups of a pattern that all of a text matches."""

    def parsed(text: str) -> Any:
        if match := re.fullmatch(pattern, text, re.DOTALL):
            return made(*match.groups())
        raise argparse.ArgumentTypeError(f"{text!r} is not {words}")

    return parsed


_NUMBER = _like(r"0*([1-9]\d*)", "an integer of at least 1", int)
_CONFIG = _like(r"(all)|(\d+)", "a number, or all", lambda every, number: every or int(number))
_SHAPE = _like(r"0*([1-9]\d*)x0*([1-9]\d*)", "ROWSxCOLS, such as 64x781", lambda rows, cols: (int(rows), int(cols)))
_PAIR = _like("([^=]+)=(.+)", "NAME=VALUE", lambda name, value: (name, value))
_LIMIT = rf"(?:({'|'.join(BACKENDS)})=)?0*([1-9]\d*)"
_BOUND = _like(_LIMIT, f"N, or BACKEND=N with {', '.join(BACKENDS)}", lambda backend, number: (backend or "", int(number)))
_ON = "devices, which may be absent (default: the local one): amd/mi300x, h200, 'NVIDIA H100 80GB HBM3', gfx942, sm_90, "
_ON += f"'amd/*' (one of each architecture), separated by spaces or commas; {', '.join(BACKENDS)}: the local device"
_SEVERAL: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
_FLAG: dict[str, Any] = {"action": "store_true"}
_TYPES = *DTYPE_BYTES, *SHORT
_LISTED = f"{', '.join(_TYPES)} (default: float32)"
_KERNEL: dict[str, Any] = {"metavar": "FILE:NAME"}
OPTIONS: dict[str, dict[str, Any]] = {
    "kernel": {**_KERNEL, "help": "a @triton.jit function, with its decorators"},
    "old": {"type": Path, "metavar": "OLD", "help": "a file that --save wrote"},
    "new": {"type": Path, "metavar": "NEW", "help": "a later one, of the same devices and cases"},
    "action": {"nargs": "?", "choices": ("list", "show"), "default": "list",
               "help": "list: the products (default); show: facts with their sources, of the local device by default"},
    "names": {"nargs": "*", "metavar": "NAME", "help": "devices to show"},
    "--kernel": {**_KERNEL, "help": "the user kernel; its file is executed"},
    "--on": {**_SEVERAL, "metavar": "NAME", "help": _ON},
    "--shapes": {"type": _SHAPE, "nargs": "+", "metavar": "ROWSxCOLS", "default": [(4096, 4096)], "help": "default: 4096x4096"},
    "--dtype": {"choices": _TYPES, "nargs": "+", "metavar": "TYPE", "default": ["float32"], "help": _LISTED},
    "--backward": {**_FLAG, "help": "the gradient instead of the softmax"},
    "--args": {**_SEVERAL, "metavar": "NAME=VALUE", "help": f"arguments, constexprs and Triton's options: {EXAMPLE}"},
    "--case": {"metavar": "NAME", "help": "a function in the kernel's file that returns (grid, arguments, expected)"},
    "--config": {"type": _CONFIG, "metavar": "N", "help": "index of a configuration of @triton.autotune, or all"},
    "--suggest": {"type": _PAIR, "nargs": "+", "metavar": "ROLE=PARAMETER",
                  "help": "compute the launch of a row kernel: rows=N cols=M block=BLOCK, by its parameters' names"},
    "--at-least": {**_SEVERAL, "type": _BOUND, "metavar": "N",
                   "help": "require N programs per multiprocessor, on all devices or by backend: 8, or cuda=8 npu=1"},
    "--no-spills": {**_FLAG, "help": "fail if registers are spilled"},
    "--explain": {**_FLAG, "help": "also print the reasons and all limits"},
    "--facts": {**_FLAG, "help": "also print the hardware facts and their sources"},
    "--json": {**_FLAG, "help": "print JSON, with the fields of portable_probe/report.py"},
    "--markdown": {"action": "store_const", "const": "github", "default": "plain", "help": "print tables in Markdown"},
    "--save": {"type": Path, "metavar": "FILE", "help": "also write the reports to a file, for diff"},
    "--minutes": {"type": _NUMBER, "default": 3, "help": "time limit of the measurements (default: 3)"},
    "--out": {"type": Path, "default": Path("profiles"), "metavar": "DIR", "help": "directory (default: ./profiles)"},
}  # fmt: skip


def cases_of(options: argparse.Namespace) -> Sequence[Case]:
    """Returns the softmaxes, or the user kernel, that the options mean."""
    if not options.kernel:
        sizes = [(*shape, SHORT.get(dtype, dtype)) for shape, dtype in product(options.shapes, options.dtype)]
        return [SoftmaxProblem(n_rows=m, n_cols=n, dtype=dtype, backward=options.backward) for m, n, dtype in sizes]
    if options.suggest and not {"cols", "block"} <= dict(options.suggest).keys() <= {"rows", "cols", "block"}:
        options.error("--suggest accepts rows=PARAMETER cols=PARAMETER block=PARAMETER")
    pairs = [_PAIR(word) for word in re.sub(r",\s+(?!\w+=)", ",", " ".join(options.args)).replace(", ", " ").split()]
    names = [name for name, _ in pairs]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        options.error(f"--args has {', '.join(repeated)} more than once")
    config = None if options.config == "all" else options.config
    return [KernelCall(name=options.kernel, arguments=dict(pairs), config=config, case=options.case)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line, by default that of the process, and returns the exit code; SystemExit for wrong usage."""
    typed = list(sys.argv[1:] if arguments is None else arguments)
    absent = dict.fromkeys(option.lstrip("-").replace("-", "_") for option in OPTIONS)  # from a subcommand that lacks them
    options, unknown = parser().parse_known_args(typed, argparse.Namespace(**absent, typed=typed))
    if unknown:
        options.error(f"unrecognized arguments: {' '.join(unknown)}")  # with the usage of the subcommand
    if options.json and options.markdown == "github":
        options.error("--json and --markdown exclude each other")
    try:
        code = int(options.answer(options))
        print(end="", flush=True)  # sys.stdout is None if it is closed
        return code
    except BrokenPipeError:  # `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the interpreter's own flush
        return 0
    except KeyboardInterrupt:
        return 130  # as shells report SIGINT
    except (*BROKEN, argparse.ArgumentTypeError) as error:
        print(f"{type(error).__name__}: {error}{how_to_install(error)}", file=sys.stderr)
        return _code({type(error).__name__})


def parser() -> argparse.ArgumentParser:
    """Returns the program's parser."""
    version = sys.modules["portable_softmax"].__version__  # this is a part of it
    about = "Launches and occupancy of the softmax and of any Triton kernel, on local and absent GPUs and NPUs."
    made = argparse.ArgumentParser(prog="portable-softmax", description=about, epilog=EXIT_CODES)
    made.add_argument("--version", action="version", version=f"portable-softmax {version}")
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (text, answer, names) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=EXIT_CODES)
        command.set_defaults(answer=answer, error=command.error)
        for option in names.split():
            command.add_argument(option, **OPTIONS[option])
    return made


def _answer(options: argparse.Namespace) -> int:
    """Runs plan and kernel."""
    if {"interpreter", "triton/interpreter"} & set().union(*named(options.on)):
        options.error("the interpreter compiles nothing; --on h200 names a device, which may be absent; verify runs kernels")
    cases, devices, bounds = cases_of(options), devices_of(options.on), dict(options.at_least)
    if bounds and not bounds.keys() & {"", *(device.backend for device in devices)}:
        options.error(f"--at-least has a number for {', '.join(bounds)}, and none for {devices[0].backend}, which --on names")
    if options.suggest:
        reports = [computed(case, device, dict(options.suggest)) for device, case in product(devices, cases)]
    elif options.config == "all":
        reports = [report for device, case in product(devices, cases) for report in configured(case, device)]
    else:
        reports = bounded_reports([*product(devices, cases)])
    code = _shown(options, [_gated(report, options) for report in reports])
    for device in devices if options.facts and not options.json else ():
        print(f"\n{facts_of(device)}")
    return code


def _verify(options: argparse.Namespace) -> int:
    """Runs on the local device, on an emulator, or in the interpreter."""
    if bool(options.kernel) != bool(options.case) or (not options.kernel and (options.args or options.config is not None)):
        options.error("--kernel requires --case NAME: (grid, arguments, expected); --case, --args, --config require --kernel")
    try:
        devices = [] if options.on == ["interpreter"] and not interpreting() else devices_of(options.on)
    except NoDeviceError as error:
        if options.on:
            raise
        print(f"{error}\nRunning in Triton's interpreter instead.\n", file=sys.stderr, flush=True)
        devices = []
    if not devices:
        return _in_interpreter(options.typed)
    if unable := [device.name for device in devices[:2] if device.detected is None and not device.vendor.emulated]:
        hint = f"kernel --on {unable[0]} compiles them, and verify --on amd/mi300x runs on an emulated AMD GPU"
        options.error(f"nothing on this machine executes kernels of {unable[0]}; {hint}")
    return _shown(options, [report_of(device, case, verify=True) for device, case in product(devices, cases_of(options))])


def _shown(options: argparse.Namespace, reports: list[Report]) -> int:
    """Prints and saves reports, and returns the exit code; of all configurations one for each device is enough."""
    print(encoded(reports) if options.json else as_text(reports, options.markdown, bool(options.explain)))
    if options.save:
        options.save.write_text(encoded(reports) + "\n", encoding="utf-8")
        print(f"wrote {options.save}", file=sys.stderr)
    if len(reports) == 1:
        print(*(line + "\n" for line in reports[0].failure), sep="", end="", file=sys.stderr)
    enough = {report.device.name for report in reports if options.config == "all" and not report.error}
    return _code({report.error for report in reports if report.error and report.device.name not in enough})


def _code(errors: set[str]) -> int:
    """Returns the exit code for names of errors: 2 for wrong usage, else 1 if a check failed, else 4; 0 for none."""
    known = {0: set(), 4: UNCHECKED, 1: UNCHECKED | FAILED}
    return next((code for code, names in known.items() if errors <= names), 2)


def _gated(report: Report, options: argparse.Namespace) -> Report:
    """Adds the error of a launch that misses --at-least or --no-spills."""
    if report.error or not report.numbers:
        return report
    numbers, device, bounds = report.numbers, report.device, dict(options.at_least)
    required = int(bounds.get(device.backend) or bounds.get("") or 0)
    spilled = numbers["spilled_bytes_per_thread"] if options.no_spills else 0
    if numbers["estimated"] and (options.no_spills or required):
        why = f"not checked: the plan is an estimate; {BACKENDS[device.backend].missing() or 'Triton interprets'}"
        return msgspec.structs.replace(report, error=TargetError.__name__, message=why)
    missed = unmet(spilled, numbers["programs_per_multiprocessor"], report.limited_by, device.multiprocessor, required)
    return msgspec.structs.replace(report, error="CheckFailed", message=missed) if missed else report


def _differences(options: argparse.Namespace) -> int:
    """Compares two saved files, and prints the differences."""
    found = compared(load(options.old), load(options.new))
    print(encoded(found) if options.json else found.as_text(options.markdown))
    return found.code


def _in_interpreter(typed: list[str]) -> int:
    """Runs the command in another process, because Triton reads TRITON_INTERPRET when it is imported."""
    command = [sys.executable, *INTERPRETED, "-m", "portable_probe", *typed]
    return subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, check=False).returncode


SOFTMAX = "--shapes --dtype --backward"
CALL = "--args --case --config"
GATES = "--at-least --no-spills --explain --facts --json --markdown --save"
COMMANDS: dict[str, tuple[str, Callable[[argparse.Namespace], int], str]] = {
    "plan": ("launches of the softmax, and their occupancy", _answer, f"--on {SOFTMAX} {GATES}"),
    "kernel": ("the launch and occupancy of a user kernel", _answer, f"kernel --on {CALL} --suggest {GATES}"),
    "verify": ("run the softmax or a kernel, and check results", _verify, f"--on {SOFTMAX} --kernel {CALL} --json --markdown"),
    "diff": ("the differences between two saved files", _differences, "old new --json --markdown"),
    "profiles": ("hardware profiles: list, show", profiles, "action names --json"),
    "tune": ("fit the cost model to the local device", tune, "--minutes --out"),
}
