"""The probe's command: options -> device -> report -> text or JSON, and an exit code."""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tabulate import tabulate

from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.devices.profiles import profiles
from portable_softmax.errors import DeviceError, NoDeviceError, PortableSoftmaxError
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.probe.explain import next_step
from portable_softmax.probe.inspection import compile_any, dump
from portable_softmax.probe.loading import load_kernel
from portable_softmax.probe.options import parsed
from portable_softmax.probe.report import SCHEMA_VERSION, describe, describe_device, describe_kernel, explanations, software
from portable_softmax.probe.text import as_text, side_by_side
from portable_softmax.runtime.plans import plan
from portable_softmax.runtime.specialization import KernelSpec, compile_kernel

PACKAGED = Path(__file__).parents[1] / "matrix.json"  # in a wheel
MATRIX = PACKAGED if PACKAGED.is_file() else Path(__file__).parents[2] / ".github" / "matrix.json"
BROKEN = PortableSoftmaxError, OSError, TypeError, ValueError, ImportError


def main(arguments: list[str] | None = None) -> int:
    """Prints the answer to the command line and returns the exit code; see options.EXIT_CODES.

    Args:
        arguments: words of the command line; None for those of the process.

    Raises:
        SystemExit: wrong usage, with code 2.
    """
    given = sys.argv[1:] if arguments is None else arguments
    options = parsed(given)
    try:
        code = _answer(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # nobody reads on: `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except NoDeviceError as error:
        return _without_accelerator(error, given, options)
    except BROKEN as error:
        if options.json:
            print(json.dumps({"schema_version": SCHEMA_VERSION, "error": type(error).__name__, "message": str(error)}))
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _answer(options: argparse.Namespace) -> int:
    if options.list:
        return _list(options.json)
    if options.matrix:
        return _matrix(options.backend, options.runner)
    kernel = load_kernel(options.kernel) if options.kernel else None
    names = options.compare or [options.profile]
    devices = [Device.from_profile(name) if name else current_device(options.index) for name in names]
    if options.require and (others := sorted({device.backend for device in devices} - {options.require})):
        raise DeviceError(f"a {options.require} device was required; this is {', '.join(others)}")
    if options.plot:
        from portable_softmax.probe.plot import plot

        plot(devices, options.rows, options.dtype, Path(options.plot))
    report = _column if options.compare else _report
    reports = [report(device, kernel, options) for device in devices]
    if options.json:
        print(json.dumps(reports if options.compare else reports[0], indent=2))
    else:
        print(side_by_side(reports) if options.compare else as_text(reports[0]))
    if "error" in reports[0] and not options.compare:
        print(f"{reports[0]['error']}: {reports[0]['message']}", file=sys.stderr)
    wrong = (report for report in reports if "error" in report or not report.get("verify", {"right": True})["right"])
    return 1 if any(wrong) else 0


def _column(device: Device, kernel: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the report of one device of several, or why there is none: the others are still worth a look."""
    try:
        return _report(device, kernel, options)
    except BROKEN as error:
        return describe_device(device) | {"error": type(error).__name__, "message": str(error)}


def _report(device: Device, kernel: Any, options: argparse.Namespace) -> dict[str, Any]:
    if kernel is not None:
        constexprs = {name: _literal(value) for name, value in options.constexpr}
        warps, stages = options.num_warps, options.num_stages
        compiled = compile_any(kernel, dict(options.signature), constexprs, warps, stages, device, options.config)
        resources = device.vendor.resources(compiled)
        report = describe_kernel(device, options.kernel, resources, device.vendor.occupancy(resources, device.hardware))
    else:
        report = describe(device, options.rows, options.cols, options.dtype)
        found = plan(options.rows, options.cols, options.dtype, device)
        resources = found.resources
        if options.dump:
            problem = contiguous_problem(options.rows, options.cols, options.dtype, device)
            compiled = compile_kernel(KernelSpec.of(problem, found.tiling), device)
    if options.dump:
        directory = Path(options.out, device.profile.name) if options.compare else Path(options.out)
        report["dump"] = [str(path) for path in dump(compiled, options.dump, directory)]
    if options.verify:
        report["verify"] = _verify(device, options, compiled if kernel is not None else None)
    counted = device.vendor.occupancy(resources, device.hardware)
    if not counted.programs_per_multiprocessor:
        report |= {"error": "PlanError", "message": next_step(resources, device, counted)}
    return report | explanations(device, resources, options.explain, options.textbook)


def _literal(text: str) -> int | bool | str:
    return {"True": True, "False": False}.get(text, int(text) if text.lstrip("-").isdigit() else text)


def _verify(device: Device, options: argparse.Namespace, compiled: Any) -> dict[str, Any]:
    if options.profile:
        from portable_softmax.probe import virtual

        if compiled is not None:
            return virtual.verify_case(compiled, virtual.load_case(options.kernel, options.case))
        return virtual.verify_softmax(options.rows, options.cols, options.dtype, device)
    from portable_softmax.probe.verify import verify

    outcome = verify(options.rows, options.cols, options.dtype, device)
    return dataclasses.asdict(outcome) | {"right": outcome.right}


def _matrix(backends: list[str] | None, labels: list[str] | None) -> int:
    """Prints the legs of these backends that a runner with these labels can take: one that no runner takes waits for ever."""
    legs = json.loads(MATRIX.read_text())["include"]
    wanted = [leg for leg in legs if not backends or leg["device"] in backends]
    needed = [(leg, {leg["runner"]} if isinstance(leg["runner"], str) else set(leg["runner"])) for leg in wanted]
    runnable = [leg for leg, runner in needed if not labels or runner <= set(labels)]
    if not runnable:
        print(f"no leg of {', '.join(leg['name'] for leg in legs)} is left", file=sys.stderr)
        return 1
    print(json.dumps({"include": runnable}))
    return 0


def _list(as_json: bool) -> int:
    known = profiles()
    if as_json:
        print(json.dumps({"schema_version": SCHEMA_VERSION, "profiles": sorted(known)}))
    else:
        rows = [(name, f"{profile.backend}/{profile.arch}", profile.architecture) for name, profile in known.items()]
        print(tabulate(rows, tablefmt="plain", disable_numparse=True))
    return 0


def _without_accelerator(error: NoDeviceError, given: list[str], options: argparse.Namespace) -> int:
    if options.verify:
        # Triton decides at import whether it interprets, so another process has to.
        print(f"No accelerator: {error}\nThe same kernel runs in Triton's interpreter instead.\n", file=sys.stderr, flush=True)
        quiet = ["-W", "ignore::RuntimeWarning:triton.runtime.interpreter"]  # nan of masked rows, in numpy
        command = [sys.executable, *quiet, "-m", "portable_softmax.probe", *given]
        return subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, check=False).returncode
    if options.json:
        print(json.dumps({"schema_version": SCHEMA_VERSION, "software": software(), "device": None, "message": str(error)}))
    elif options.require:
        print(f"a {options.require} device was required. No accelerator: {error}", file=sys.stderr)
    elif needs := [f"--{name}" for name in ("kernel", "dump", "plot", "explain", "textbook") if getattr(options, name)]:
        print(f"{', '.join(needs)} needs a device, as --profile NAME or --compare. No accelerator: {error}", file=sys.stderr)
        return 1
    else:
        print(
            f"No accelerator: {error}\n--profile NAME plans for one that is not here; --list names them; "
            "--verify runs the kernel in Triton's interpreter."
        )
    return 1 if options.require else 0


if __name__ == "__main__":
    raise SystemExit(main())
