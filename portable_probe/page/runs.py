"""Reads runs: folders with reports of the probe (JSON), test results (JUnit's XML) and benchmarks (CSV)."""

import csv
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from portable_probe.regression import load
from portable_probe.schema import Report
from portable_softmax.devices.backends.base import DTYPE_BYTES

OURS = "ours"  # the provider of a benchmark that is this package
DISTURBED = 0.5  # spread of turns above which a time says nothing
STREAMS = {"forward": 2, "backward": 3, "both": 5, "log_softmax": 2}  # tensors that a direction must read or write
OF_DEVICE = ("device", "backend", "profile", "here")  # properties of a test


@dataclass(frozen=True)
class Suite:
    """Test results of one file of JUnit's on one device, or of its tests that asked for none.

    Args:
        name: the file's name.
        properties: of these tests; the plugin of `testing` says device, backend, profile and whether it was here.
        tests: by class, how many passed, failed and were skipped.
        failures: names of tests that failed.
    """

    name: str
    properties: dict[str, str]
    tests: dict[str, tuple[int, int, int]]
    failures: list[str]

    @property
    def totals(self) -> tuple[int, int, int]:
        """Returns the numbers of tests that passed, failed and were skipped."""
        passed, failed, skipped = (sum(each) for each in zip(*self.tests.values(), strict=True)) if self.tests else (0, 0, 0)
        return passed, failed, skipped


@dataclass(frozen=True)
class Rate:
    """GB/s of one cell of a benchmark, by provider."""

    device: str
    sweep: str
    direction: str
    dtype: str
    shape: str
    gb_per_s: dict[str, float]


@dataclass(frozen=True)
class Run:
    """Everything that one run left behind; `notes` tell of files that could not be read."""

    label: str
    reports: list[Report] = field(default_factory=list)
    suites: list[Suite] = field(default_factory=list)
    rates: list[Rate] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def device(self) -> str | None:
        """Returns the profile of the device that was here; None if no report has one."""
        return next((report.device.profile for report in self.reports if report.device.here), None)

    @property
    def made(self) -> str:
        """Tells when and where the tests of the run were made; "" if there are none."""
        told = [suite.properties for suite in self.suites if "timestamp" in suite.properties]
        newest = max(told, key=lambda each: each["timestamp"], default={})
        host = newest.get("hostname")
        return ", ".join(filter(None, (newest.get("timestamp", "")[:16].replace("T", " "), host and f"on the host {host}")))

    def measured_on(self, rate: Rate) -> str:
        """Names the device of a benchmark, by its profile if a report tells it."""
        return self.device or rate.device


def read(path: Path) -> Run:
    """Reads a folder, or a single file, as one run.

    Raises:
        FileNotFoundError: there is no such folder or file.
        ValueError: nothing in it can be read.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}; a run is a folder of JSON, XML and CSV files, or one of them")
    files = sorted(_files(path)) if path.is_dir() else [path]
    readers = {".json": _reports, ".xml": _suite, ".csv": _rates}
    run = Run(path.name or str(path.resolve().name))
    for file in (each for each in files if each.suffix in readers):
        try:
            readers[file.suffix](file, run)
        except (ValueError, KeyError, SyntaxError, RecursionError, csv.Error, ElementTree.ParseError) as error:
            run.notes.append(f"{file.name} cannot be read: {error}")
    if not (run.reports or run.suites or run.rates):
        raise ValueError("; ".join([f"{path} holds no reports, test results or benchmarks", *run.notes]))
    return run


def _files(folder: Path) -> Iterator[Path]:
    """Yields the files below a folder, without those of hidden folders and of virtual environments."""
    for each in folder.iterdir():
        if each.is_dir() and not each.name.startswith(".") and not (each / "pyvenv.cfg").exists():
            yield from _files(each)
        elif each.is_file():
            yield each


def _reports(file: Path, run: Run) -> None:
    content = json.loads(file.read_bytes())
    # Other JSON is of others, as of scripts/benchmark.
    if isinstance(content, list) or (isinstance(content, dict) and "schema_version" in content):
        run.reports.extend(load(file))


def _suite(file: Path, run: Run) -> None:
    root = ElementTree.parse(file).getroot()
    if root.tag not in ("testsuites", "testsuite"):
        return  # XML of something else
    suites = list(root.iter("testsuite"))
    made = {name: suite.get(name, "") for suite in suites for name in ("timestamp", "hostname") if suite.get(name)}
    by_device: dict[tuple[str, ...], list[ElementTree.Element]] = {}
    for case in root.iter("testcase"):
        by_device.setdefault(tuple(_told(case).get(name, "") for name in OF_DEVICE), []).append(case)
    for cases in by_device.values():
        run.suites.append(_suite_of(file.stem, made | _told(cases[0]), cases))


def _told(case: ElementTree.Element) -> dict[str, str]:
    """Returns what a test says of its device."""
    told = {each.get("name", ""): each.get("value", "") for each in case.iterfind("properties/property")}
    return {name: told[name] for name in OF_DEVICE if name in told}


def _suite_of(name: str, properties: dict[str, str], cases: list[ElementTree.Element]) -> Suite:
    tests: dict[str, tuple[int, int, int]] = {}
    failures = []
    for case in cases:
        outcomes = {each.tag for each in case}
        failed, skipped = bool(outcomes & {"failure", "error"}), "skipped" in outcomes
        group = case.get("classname", "")
        before = tests.get(group, (0, 0, 0))
        tests[group] = before[0] + (not failed and not skipped), before[1] + failed, before[2] + skipped
        failures += [f"{group}::{case.get('name')}"] if failed else []
    return Suite(name, properties, tests, failures)


def _rates(file: Path, run: Run) -> None:
    """Reads times of a benchmark, of which scripts/results/README.md tells the columns; disturbed ones are left out."""
    cells: dict[tuple[str, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with file.open(newline="", encoding="utf-8") as opened:
        for number, row in enumerate(csv.DictReader(opened), 2):
            cell = tuple(row[name] for name in ("device", "sweep", "direction", "dtype", "shape", "layout", "dim"))
            if row["median_us"] and float(row["spread"] or 0) <= DISTURBED and row["direction"] in STREAMS:
                if not 0 < (time := float(row["median_us"])) < math.inf:
                    raise ValueError(f"line {number}: {row['median_us']} microseconds are no time")
                cells[cell][row["provider"]].append(time)
    for (device, sweep, direction, dtype, shape, layout, dim), times in cells.items():
        sizes = [int(size) for size in shape.split("x")]
        moved = STREAMS[direction] * math.prod(sizes) * DTYPE_BYTES[dtype] / 1e3
        rates = {name: moved / statistics.median(each) for name, each in times.items()}
        unusual = [layout] * (layout != "contiguous") + [f"along {dim}"] * (int(dim) != len(sizes) - 1)
        run.rates.append(Rate(device, sweep, direction, dtype, " ".join([" x ".join(map(str, sizes)), *unusual]), rates))
