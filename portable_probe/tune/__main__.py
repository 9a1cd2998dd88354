"""The command: fits the numbers of the device that is here, or with --refit those of tables; docs/profiles.md shows both."""

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from portable_probe.output import as_columns, write_whole
from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import COST_NUMBERS
from portable_softmax.devices.profiles import described
from portable_softmax.errors import PortableSoftmaxError, ProfileError

VARIABLE = "PORTABLE_SOFTMAX_PROFILES"


def main(arguments: Sequence[str] | None = None) -> int:
    """Answers the command line and returns the exit code: 0, or 1 where something is wrong.

    Args:
        arguments: words of the command line; None for those of the process.

    Raises:
        SystemExit: wrong usage, with code 2.
    """
    parser = argparse.ArgumentParser("portable-softmax tune", description="Fits what launches cost on the device that is here.")
    parser.add_argument("--minutes", type=float, default=3, help="after which it ends; 3 if left out")
    parser.add_argument("--out", type=Path, default=Path("profiles"), metavar="DIR", help="folder of profiles; ./profiles")
    parser.add_argument("--refit", nargs="+", type=Path, metavar="FILE", help="time nothing, and fit tables that it wrote")
    parser.add_argument("--on", metavar="NAME", help="the device of other tables; left out, FILE is DIR/<vendor>/<product>.csv")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    if not importlib.util.find_spec("numpy"):
        print("numpy is needed, which solves for the numbers: pip install numpy", file=sys.stderr)
        return 1
    try:
        if not options.refit:
            return tune(options.minutes, options.out)
        return refit(options.refit, options.on)
    except (PortableSoftmaxError, OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def tune(minutes: float, directory: Path) -> int:
    """Times launches, and writes DIRECTORY/<vendor>/<product>.csv with them and .yaml with their fit; returns 0."""
    from portable_probe.tune import cells, run

    known = os.environ.get(VARIABLE, "").split(os.pathsep)  # a run starts from the numbers of what its file extends
    os.environ[VARIABLE] = os.pathsep.join(each for each in known if each and Path(each).resolve() != directory.resolve())
    device = current_device()
    checked(device)
    return kept(device, run.timed_launches(device, cells.cells_of(device), minutes), directory)


def kept(device: Device, launches: list[Any], directory: Path) -> int:
    """Writes the files of a run; returns 0."""
    from portable_probe.tune import files

    table = directory / f"{files.product_of(device)}.csv"
    table.parent.mkdir(parents=True, exist_ok=True)
    write_whole(table, files.table_of(launches))
    print(f"{table}: --refit fits it again, without the device")
    return _fit([table], device, device.profile.launch.cost, files.extension_of(device))


def refit(tables: list[Path], on: str | None = None) -> int:
    """Fits tables again, without their device; writes the profile beside the first, unless a device is named; returns 0."""
    if on:
        device = Device.from_profile(on)
        return _fit(tables, device, device.profile.launch.cost)
    path = tables[0].with_suffix(".yaml")
    os.environ[VARIABLE] = str(path.parent.parent)
    device, extension = Device.from_profile(f"{path.parent.name}/{path.stem}"), yaml.safe_load(path.read_text(encoding="utf-8"))
    extended = next(each for each in described().every if each.name == extension["extends"])  # the first: that is not this one
    return _fit(tables, device, extended.launch.cost, extension)


def _fit(tables: list[Path], device: Device, begin: Any, extension: dict[str, Any] | None = None) -> int:
    """Prints a fit, and writes it if there is a profile to write."""
    from portable_probe.tune import files, fit

    checked(device)
    before = [getattr(begin, name) for name in COST_NUMBERS]
    launches = fit.prepared((line for path in tables for line in files.read(path)), device)
    numbers, errors = fit.fitted(launches, launches.weights, before, before)
    others = fit.by_others(launches, numbers, before)
    rows = [
        (*each, f"{error:.1%}")
        for *each, error in zip(COST_NUMBERS, before, map("{:.4g}".format, numbers), errors, strict=True)
    ]
    print("\n" + as_columns(("number", "before", "fitted", "standard error"), rows))
    for words, told in (("these problems", fit.times(launches, numbers)), ("problems left out", others)):
        print("\n" + as_columns((words, *fit.HEADER), list(fit.table(launches, told))))
    cost: dict[str, Any] = {name: float(f"{value:.4g}") for name, value in zip(COST_NUMBERS, numbers, strict=True)}
    cost["errors"] = {name: float(f"{value:.2g}") for name, value in zip(COST_NUMBERS, errors, strict=True)}
    cost["error_90"] = round(fit.error_90(launches, others), 3)
    of = f"least squares of {len(launches.us)} launches of {len(launches.cells)} problems; of problems left out"
    told = f"{of}: nine of ten times within {cost['error_90']:.1%}, regret {next(fit.table(launches, others))[2]}"
    print(f"\n{told}")
    if extension is None:
        print(files.dumped({"cost": cost}), end="")
        return 0
    path = tables[0].with_suffix(".yaml")
    write_whole(path, files.profile_of(extension, cost, told))
    os.environ[VARIABLE] = str(path.parent.parent)
    Device.from_profile(f"{path.parent.name}/{path.stem}")
    print(f"{path}: {VARIABLE}={path.parent.parent} takes it")
    return 0


def checked(device: Device) -> None:
    """Refuses a device whose launches have no cost to fit; ProfileError."""
    name = device.profile.name
    if not device.profile.launch.cost:
        raise ProfileError(
            f"{name} gives no `cost` to begin with: launches without warps have none, others have their vendor's"
        )
    if not device.hardware.memory_bandwidth_gb_per_s:
        raise ProfileError(f"{name} gives no memory_bandwidth_gb_per_s; add a profile of the product that does")


if __name__ == "__main__":
    raise SystemExit(main())
