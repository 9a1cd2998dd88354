"""The command `tune`: fits what launches cost on the local device, or with --refit to tables."""

import argparse
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portable_probe.output import as_columns, write_whole
from portable_probe.profiles import product_of, profile_of, versions
from portable_softmax.devices.detect import chosen
from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import COST_NUMBERS
from portable_softmax.errors import ProfileError

if TYPE_CHECKING:
    from portable_probe.tune.launches import Launch

VARIABLE = "PORTABLE_SOFTMAX_PROFILES"


def add(command: argparse.ArgumentParser) -> None:
    """Adds the options."""
    command.add_argument("--minutes", type=float, default=3, help="after which it ends; 3 if left out")
    command.add_argument("--out", type=Path, default=Path("profiles"), metavar="DIR", help="folder of profiles; ./profiles")
    command.add_argument("--refit", nargs="+", type=Path, metavar="FILE", help="time nothing: fit tables that it wrote")
    command.add_argument("--on", metavar="NAME", help="the device of these tables")
    command.set_defaults(answer=tune)


def tune(options: argparse.Namespace) -> int:
    """Fits a device's launches, and writes what comes of it; returns 0.

    Raises:
        ProfileError: its launches have no cost to fit.
        OSError, ValueError, ImportError: a table cannot be read, holds too little, or numpy is missing.
    """
    if bool(options.on) != bool(options.refit):
        options.error("--refit and --on go together: the tables, and the device that they are of")
    if not importlib.util.find_spec("numpy"):
        raise ImportError("numpy is needed, which solves for the numbers: pip install numpy")
    from portable_probe.tune import launches

    known = os.environ.get(VARIABLE, "").split(os.pathsep)  # it begins with the numbers of what its file extends
    os.environ[VARIABLE] = os.pathsep.join(
        directory for directory in known if directory and Path(directory).resolve() != options.out.resolve()
    )
    device = checked(chosen(options.on))
    if options.refit:
        timed = [launch for path in options.refit for launch in launches.read(path, device)]
        fit_launches(device, timed, options.out, ", ".join(map(str, options.refit)))
    else:
        keep(device, timed_here(device, options.minutes), options.out)
    return 0


def timed_here(device: Device, minutes: float) -> "list[Launch]":
    """Returns the launches of a run, with their times."""
    from portable_probe.tune import cells, run

    jobs = run.in_turns([*(run.softmax_jobs(cell, device) for cell in cells.cells_of(device)), *run.kernel_jobs(device)])
    return run.timed_launches(device, jobs, minutes)


def checked(device: Device) -> Device:
    """Returns a device with a cost of launches to fit; ProfileError for another."""
    if not device.profile.launch.cost:
        raise ProfileError(f"{device.profile.name} gives no `cost` to begin with; devices without warps have none")
    if not device.hardware.memory_bandwidth_gb_per_s:
        raise ProfileError(f"{device.profile.name} gives no memory_bandwidth_gb_per_s; add a profile of the product that does")
    return device


def keep(device: Device, launches: "list[Launch]", directory: Path) -> None:
    """Writes tables of launches below DIRECTORY/<vendor>/, and <product>.yaml, a profile with their fit."""
    from portable_probe.tune.launches import SoftmaxLaunch, table_of

    for name, of_softmax in (("softmax", True), ("rows", False)):
        if of_kind := [launch for launch in launches if isinstance(launch, SoftmaxLaunch) == of_softmax]:
            table = directory / f"{product_of(device)}-{name}.csv"
            write_whole(table, table_of(of_kind))
            print(f"{table}: --refit fits it again")
    fit_launches(device, launches, directory, f"one {device.name}, {versions()}")


def fit_launches(device: Device, launches: "list[Launch]", directory: Path, about: str) -> None:
    """Prints a fit, and writes it as a profile; `about` says where the launches are from."""
    from portable_probe.tune import fit

    timed = fit.prepared(launch.timed(device) for launch in launches)
    before = [getattr(device.profile.launch.cost, name) for name in COST_NUMBERS]
    numbers, errors = fit.fitted(timed, timed.weights, before)
    others = fit.left_out(timed, before)
    values = zip(COST_NUMBERS, before, map("{:.4g}".format, numbers), map("{:.1%}".format, errors), strict=True)
    print("\n" + as_columns(("number", "before", "fitted", "standard error"), list(values)))
    by = {"before": fit.times(timed, before), "fitted": fit.times(timed, numbers), "left out of the fit": others}
    for words, us in by.items():
        print("\n" + as_columns((words, *fit.HEADER), list(fit.table(timed, us))))
    cost: dict[str, Any] = {name: float(f"{value:.4g}") for name, value in zip(COST_NUMBERS, numbers, strict=True)}
    cost["errors"] = {name: float(f"{value:.2g}") for name, value in zip(COST_NUMBERS, errors, strict=True)}
    cost["error_90"] = round(fit.error_90(timed, others), 3)
    regret = next(fit.table(timed, others))[2]
    summary = f"left out of the fit, nine of ten times are within {cost['error_90']:.1%}, and regret is {regret}"
    summary = f"least squares of {len(timed.us)} launches of {len(timed.kinds)} problems; {summary}"
    path = directory / f"{product_of(device)}.yaml"
    write_whole(path, profile_of(device, "tuned", f"portable-softmax tune, {about}: {summary}", cost))
    os.environ[VARIABLE] = str(directory)
    Device.from_profile(product_of(device))
    print(f"\n{summary}\n{path}: {VARIABLE}={directory} takes it")
