"""What scripts/probe_device.py prints: the device, its facts and where they come from, a plan and its reasons."""

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from portable_softmax.backends.base import DTYPE_BYTES
from portable_softmax.device import Device, current_device
from portable_softmax.errors import NoDeviceError, PortableSoftmaxError
from portable_softmax.launch import plan
from portable_softmax.probe_text import as_text
from portable_softmax.profiles import profiles

SCHEMA_VERSION = 1
MATRIX = Path(__file__).parents[1] / ".github" / "matrix.json"


def main(arguments: list[str] | None = None) -> int:
    """0: answered, also that there is no accelerator; 1: something is broken, or --verify found a wrong result; 2: usage."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(given)
    try:
        if options.list:
            return _list(options.json)
        if options.matrix:
            print(json.dumps(json.loads(MATRIX.read_text())))
            return 0
        return _probe(options)
    except NoDeviceError as error:
        return _without_accelerator(error, given, options)
    except (PortableSoftmaxError, OSError) as error:
        if options.json:
            print(json.dumps({"schema_version": SCHEMA_VERSION, "error": type(error).__name__, "message": str(error)}))
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="probe_device.py", description=__doc__, epilog=main.__doc__)
    parser.add_argument("--rows", type=_positive, default=4096, metavar="N", help="rows of the softmax (4096)")
    parser.add_argument("--cols", type=_positive, default=4096, metavar="N", help="columns of the softmax (4096)")
    parser.add_argument("--dtype", choices=tuple(DTYPE_BYTES), default="float32", help="of input and output (float32)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--profile", metavar="NAME", help="a device that need not be here, such as amd/mi300x")
    which.add_argument("--index", type=int, metavar="N", help="of the device here, as torch counts (its current one)")
    parser.add_argument("--verify", action="store_true", help="run the kernel and compare with torch in float64")
    parser.add_argument("--json", action="store_true", help="the same as JSON, described in README.md")
    parser.add_argument("--list", action="store_true", help="the products that have a profile")
    parser.add_argument("--matrix", action="store_true", help="the CI matrix of vendors, for GitHub's fromJSON")
    return parser


def _positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def _probe(options: argparse.Namespace) -> int:
    device = Device.from_profile(options.profile) if options.profile else current_device(options.index)
    report = describe(device, options.rows, options.cols, options.dtype)
    if options.verify:
        report["verify"] = _verify(device, options)
    print(json.dumps(report, indent=2) if options.json else as_text(report))
    return 0 if report.get("verify", {"right": True})["right"] else 1


def describe(device: Device, n_rows: int, n_cols: int, dtype: str) -> dict[str, Any]:
    """The whole report as JSON would have it."""
    launch_plan = plan(n_rows, n_cols, dtype, device)
    return {
        "schema_version": SCHEMA_VERSION,
        "software": _software(),
        "device": {
            "name": device.name,
            "backend": device.backend,
            "arch": device.arch,
            "architecture": device.profile.architecture,
            "here": device.detected is not None,
            "index": device.index,
            "profile": device.profile.name,
            "multiprocessor": device.profile.multiprocessor,
        },
        "facts": {key: _fact(device, key) for key in device.origins},
        "problem": {"n_rows": n_rows, "n_cols": n_cols, "dtype": dtype},
        "plan": dataclasses.asdict(launch_plan)
        | {
            "reasons": list(launch_plan.reasons),
            "occupancy": dataclasses.asdict(launch_plan.occupancy) | {"limited_by": list(launch_plan.occupancy.limited_by)},
        },
    }


def _fact(device: Device, key: str) -> dict[str, Any]:
    """What each side says of one field of Hardware, and which is used."""
    runtime = dict(device.detected.torch) | dict(device.detected.driver) if device.detected else {}
    source = device.profile.origins.get(key)
    return {
        "runtime": runtime.get(key),
        "profile": getattr(device.profile.hardware, key),
        "used": getattr(device.hardware, key),
        "from": device.origins[key],
        "profile_source": source and {"title": source.title, "verified": source.verified},
    }


def _software() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("portable-softmax", "torch", "triton", "triton-ascend", "torch-npu", "numpy"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _verify(device: Device, options: argparse.Namespace) -> dict[str, Any]:
    if options.profile:
        raise PortableSoftmaxError(f"--verify runs the kernel, and {options.profile} is a profile, not a device that is here")
    from portable_softmax.verify import verify

    outcome = verify(options.rows, options.cols, options.dtype, device)
    return dataclasses.asdict(outcome) | {"right": outcome.right}


def _list(as_json: bool) -> int:
    known = profiles()
    if as_json:
        print(json.dumps({"schema_version": SCHEMA_VERSION, "profiles": sorted(known)}))
    else:
        for name, profile in known.items():
            print(f"{name:28}{profile.backend}/{profile.arch:20}{profile.architecture}")
    return 0


def _without_accelerator(error: NoDeviceError, given: list[str], options: argparse.Namespace) -> int:
    if options.verify:
        # Triton decides at import whether it interprets, so another process has to.
        print(f"No accelerator: {error}\nThe same kernel runs in Triton's interpreter instead.\n", file=sys.stderr, flush=True)
        command = [
            sys.executable,
            "-W",
            "ignore::RuntimeWarning:triton.runtime.interpreter",
            "-m",
            "portable_softmax.probe",
            *given,
        ]
        return subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, check=False).returncode
    if options.json:
        print(json.dumps({"schema_version": SCHEMA_VERSION, "software": _software(), "device": None, "message": str(error)}))
    else:
        print(
            f"No accelerator: {error}\n--profile NAME plans for one that is not here; --list names them; "
            "--verify runs the kernel in Triton's interpreter."
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
