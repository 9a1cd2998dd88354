"""The command: tunes the device that is here, or with `check` looks at files of runs; docs/profiles.md shows both."""

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from portable_probe.tune.cells import CLASSES, cells_of
from portable_softmax.devices.detect import current_device
from portable_softmax.devices.names import find_profile
from portable_softmax.errors import PortableSoftmaxError

VARIABLE = "PORTABLE_SOFTMAX_PROFILES"


def main(arguments: Sequence[str] | None = None) -> int:
    """Answers the command line and returns the exit code: 0, or 1 where something is wrong.

    Args:
        arguments: words of the command line; None for those of the process.

    Raises:
        SystemExit: wrong usage, with code 2.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _check(words[1:]) if words[:1] == ["check"] else _tune(words)
    except (PortableSoftmaxError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _tune(words: list[str]) -> int:
    parser = argparse.ArgumentParser("portable-softmax tune", description="Measures what launches are best computed with.")
    parser.add_argument("--minutes", type=float, default=10, help="after which it ends; 10 if left out")
    parser.add_argument("--out", type=Path, default=Path("profiles"), metavar="DIR", help="folder of profiles; ./profiles")
    parser.add_argument("--classes", nargs="+", choices=CLASSES, default=CLASSES, metavar="CLASS", help=", ".join(CLASSES))
    options = parser.parse_args(words)
    if not importlib.util.find_spec("tqdm"):
        print("tqdm is needed: pip install tqdm", file=sys.stderr)
        return 1
    from portable_probe.tune import files, report
    from portable_probe.tune.run import Run

    os.environ[VARIABLE] = _without(options.out)
    device = current_device()
    run = Run(device, cells_of(device, tuple(options.classes)), files.source_name(device))
    print(f"{device.name}: {len(run.cells)} cells, at most {options.minutes:g} minutes; extends {device.profile.name}")
    run.tune(options.minutes)
    profile, cells = files.write(run, options.out)
    os.environ[VARIABLE] = str(options.out)
    find_profile(files.product_of(device))
    print(report.text_of(run, files.lines_of(run)))
    use = f"{VARIABLE}={options.out} takes it" if run.rows else "no rows of its own, so launches stay as they are computed"
    print(f"{cells}: {len(run.times)} launches\n{profile}: {use}")
    return 0


def _without(directory: Path) -> str:
    """Returns the directories of profiles but this one: a run starts from the numbers of what its file extends."""
    known = os.environ.get(VARIABLE, "").split(os.pathsep)
    return os.pathsep.join(each for each in known if each and Path(each).resolve() != directory.resolve())


def _check(words: list[str]) -> int:
    from portable_probe.tune.check import check

    parser = argparse.ArgumentParser("portable-softmax tune check", description="Checks files of runs, without the devices.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="DIR/<vendor>/<product>.yaml")
    wrong = [complaint for path in parser.parse_args(words).files for complaint in check(path)]
    print("\n".join(wrong) or "nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
