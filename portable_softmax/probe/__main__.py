"""The probe's command: options -> device -> report -> text or JSON, and an exit code."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tabulate import tabulate

from portable_softmax.devices.detect import current_device, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.devices.profiles import profiles
from portable_softmax.errors import DeviceError, NoDeviceError
from portable_softmax.probe.cases import BROKEN, Wanted, again, reports_of, words_of
from portable_softmax.probe.delivery import delivered
from portable_softmax.probe.inspection import UnknownStageError
from portable_softmax.probe.matrix import print_legs
from portable_softmax.probe.options import parsed
from portable_softmax.probe.regression import REGRESSED, as_table, check_kernel, compare, load, save
from portable_softmax.probe.report import Case, software
from portable_softmax.probe.schema import SCHEMA_VERSION, Failure, Known, NoDevice, Report, SoftmaxProblem, encoded
from portable_softmax.probe.text import as_text, side_by_side
from portable_softmax.probe.usage import cases


def main(arguments: list[str] | None = None) -> int:
    """Prints the answer to the command line and returns the exit code; see options.EXIT_CODES.

    Args:
        arguments: words of the command line; None for those of the process.

    Raises:
        SystemExit: wrong usage, with code 2.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["report"]:
        from portable_softmax.probe.page.command import main as report

        return delivered(lambda: report(words[1:]))
    options = parsed(words)
    return delivered(lambda: _answer_or_error(options))


def _answer_or_error(options: argparse.Namespace) -> int:
    try:
        return _answer(options)
    except BrokenPipeError:
        raise
    except NoDeviceError as error:
        return _without_accelerator(error, options)
    except UnknownStageError as error:
        print(f"--dump: {error}", file=sys.stderr)
        return 2
    except BROKEN as error:
        if options.json:
            print(encoded(Failure(schema_version=SCHEMA_VERSION, error=type(error).__name__, message=str(error))))
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _answer(options: argparse.Namespace) -> int:
    if options.list:
        return _list(options.json)
    if options.matrix:
        return print_legs(options.backend, options.runner, options.offline, options.gitlab)
    if options.new_profile:
        return _new_profile(Path(options.new_profile))
    if options.baseline:
        return _regressions(options)
    names = options.compare or [options.profile]
    devices = [Device.from_profile(name) if name else current_device(options.index) for name in names]
    _require(options.require, devices)
    if options.plot:
        from portable_softmax.probe.plot import plot

        plot(devices, options.rows or 4096, (options.dtype or ["float32"])[0], Path(options.plot))
    wanted = cases(options)
    asked = [(device, case, _wanted(options, device, case, len(wanted) > 1)) for device in devices for case in wanted]
    reports = reports_of(asked)
    if options.save:
        save(reports, Path(options.save))
    return _show(reports, options)


def _wanted(options: argparse.Namespace, device: Device, case: Case, several: bool) -> Wanted:
    """Returns the additions that are asked for; each device, and each of several cases, dumps to a folder of its own."""
    parts = [options.out or "."]
    if options.compare:
        parts.append(device.profile.name)
    if several and isinstance(case, SoftmaxProblem):
        parts.append(words_of(case).replace(" ", "-"))
    return Wanted(options.explain, options.textbook, options.verify, options.dump, Path(*parts))


def _show(reports: list[Report], options: argparse.Namespace) -> int:
    alone = len(reports) == 1 and not options.compare
    if options.json:
        print(encoded(reports[0] if alone else reports))
    elif alone and not options.markdown:
        print(as_text(reports[0]))
    else:
        print(side_by_side(reports, "github" if options.markdown else "plain"))
    if alone and reports[0].error:
        print(f"{reports[0].error}: {reports[0].message}", file=sys.stderr)
    return 1 if any(report.error or (report.verify and not report.verify.right) for report in reports) else 0


def _regressions(options: argparse.Namespace) -> int:
    """Asks a saved run's cases once more, and shows what changed."""
    before = load(Path(options.baseline))
    check_kernel(before, options.kernel, Path(options.baseline))
    if not interpreting() and any(report.device.backend == "interpreter" for report in before):
        return _interpreted(options.words)
    asked = [again(report) for report in before]
    _require(options.require, [device for device, _, _ in asked])
    after = reports_of(asked)
    if options.save:
        save(after, Path(options.save))
    comparison = compare(before, after, dict(options.tolerate))
    print(encoded(comparison) if options.json else as_table(comparison, "github" if options.markdown else "plain"))
    return REGRESSED if comparison.regressed else 0


def _require(backend: str | None, devices: list[Device]) -> None:
    if backend and (others := sorted({device.backend for device in devices} - {backend})):
        raise DeviceError(f"a {backend} device was required; this is {', '.join(others)}")


def _new_profile(directory: Path) -> int:
    from portable_softmax.probe.new_profile import write_profile

    profile, fixture = write_profile(current_device(), directory)
    print(f"{profile}: PORTABLE_SOFTMAX_PROFILES={directory} takes the device for it\n{fixture}: for tests/support/recorded")
    return 0


def _list(as_json: bool) -> int:
    known = profiles()
    if as_json:
        print(encoded(Known(schema_version=SCHEMA_VERSION, profiles=sorted(known))))
    else:
        rows = [(name, f"{profile.backend}/{profile.arch}", profile.architecture) for name, profile in known.items()]
        print(tabulate(rows, tablefmt="plain", disable_numparse=True))
    return 0


def _without_accelerator(error: NoDeviceError, options: argparse.Namespace) -> int:
    if options.verify:
        print(f"No accelerator: {error}\nThe same kernel runs in Triton's interpreter instead.\n", file=sys.stderr, flush=True)
        return _interpreted(options.words)
    names = ("kernel", "dump", "plot", "explain", "textbook", "save", "markdown", "new_profile")
    if options.json:
        print(encoded(NoDevice(schema_version=SCHEMA_VERSION, software=software(), device=None, message=str(error))))
    if options.require:
        print(f"a {options.require} device was required. No accelerator: {error}", file=sys.stderr)
    elif options.baseline:
        way_out = "ask where that device is, or keep a baseline of one that need not be here: --profile NAME --save FILE"
        print(
            f"{options.baseline} holds reports of a device that was here; {way_out}. No accelerator: {error}", file=sys.stderr
        )
        return 1
    elif needs := [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]:
        way_out = "here" if options.new_profile else "as --profile NAME or --compare"
        print(f"{', '.join(needs)} needs a device, {way_out}. No accelerator: {error}", file=sys.stderr)
        return 1
    elif not options.json:
        print(
            f"No accelerator: {error}\n--profile NAME plans for one that is not here; --list names them; "
            "--verify runs the kernel in Triton's interpreter."
        )
    return 1 if options.require else 0


def _interpreted(words: list[str]) -> int:
    """Answers in another process, since Triton decides at import whether it interprets."""
    quiet = ["-W", "ignore::RuntimeWarning:triton.runtime.interpreter"]  # nan of masked rows, in numpy
    command = [sys.executable, *quiet, "-m", "portable_softmax.probe", *words]
    return subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
