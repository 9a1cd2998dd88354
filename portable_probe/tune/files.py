"""Files of a run: a profile that extends the matched one, and the table of cells beside it."""

import datetime
import importlib.metadata
import re
import uuid
from pathlib import Path
from typing import Any

import yaml

from portable_probe.tune import table
from portable_probe.tune.cells import Cell
from portable_probe.tune.choice import COMPUTED
from portable_probe.tune.measuring import Launch, Timing
from portable_probe.tune.run import Run
from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import NumberRow

LINE = 128
TOLD = ("driver", "torch")  # origins of facts that the device told


def source_name(device: Device) -> str:
    """Returns a name for a source that the matched profile has not got."""
    name = f"tune_{datetime.date.today():%Y_%m_%d}"
    while name in device.profile.sources:
        name += "_again"
    return name


def product_of(device: Device) -> str:
    """Returns the vendor and product that a run's file stands for: the matched one, else one by the device's own name."""
    vendor, _, product = device.profile.name.partition("/")
    if device.profile.product is None:
        product = re.sub(r"[^a-z0-9]+", "-", device.name.lower().removeprefix(f"{vendor} ")).strip("-")
    return f"{vendor}/{product}"


def write(run: Run, directory: Path) -> tuple[Path, Path]:
    """Writes DIRECTORY/<vendor>/<product>.yaml and .csv, each whole or not at all, and returns them.

    Raises:
        OSError: they cannot be written.
    """
    profile = directory / f"{product_of(run.device)}.yaml"
    cells, lines = profile.with_suffix(".csv"), lines_of(run)
    profile.parent.mkdir(parents=True, exist_ok=True)
    texts = {cells: table.text_of(lines), profile: yaml_of(run, lines, cells.name)}
    # Another run may write the same two: each makes files of its own first, and puts both in place at once.
    written = {path: path.with_name(f".{path.name}.{uuid.uuid4().hex}.part") for path in texts}
    try:
        for path, text in texts.items():
            written[path].write_text(text, encoding="utf-8")
        for path, part in written.items():
            part.replace(path)
    finally:
        for part in written.values():
            part.unlink(missing_ok=True)
    return profile, cells


def lines_of(run: Run) -> list[table.Line]:
    """Returns a line for each launch of each cell, in the order of the cells; of those that failed with the reason."""
    lines = []
    for cell in run.cells:
        found = {launch: _times(run, cell, launch, timing) for (other, launch), timing in run.times.items() if other == cell}
        failed = {each.launch: {"error": each.reason} for each in run.failures if each.cell == cell and each.launch}
        for launch, times in (found | failed).items():
            words = {table.BEFORE: run.plans[cell].get(COMPUTED), table.AFTER: run.after.get(cell)}
            chosen = " ".join(word for word, planned in words.items() if planned == launch)
            names = {"numbers": run.words(cell, launch), "launch": str(launch), "chosen": chosen}
            lines.append(dict.fromkeys(table.COLUMNS, "") | table.told(cell) | names | times)
    return lines


def _times(run: Run, cell: Cell, launch: Launch, timing: Timing) -> dict[str, str]:
    times = {"median_us": f"{timing.us:.4g}", "error": f"{timing.error:.3g}"}
    if run.plans[cell].get(COMPUTED) == launch and cell in run.again:
        times["again_us"] = f"{run.again[cell].us:.4g}"
    return times | ({"copy_us": f"{timing.copy_us:.4g}"} if timing.copy_us else {})


def yaml_of(run: Run, lines: list[table.Line], cells: str) -> str:
    """Returns the profile: what it extends, the device that it is for, rows of numbers with their gains, and one source."""
    device = run.device
    differ = {
        key: {"value": value, "source": run.source}
        for key, origin in device.origins.items()
        if origin in TOLD and (value := getattr(device.hardware, key)) != getattr(device.profile.hardware, key)
    }
    content = {
        "extends": device.profile.name,
        "matches": [re.escape(device.name)],
        "sources": {run.source: {"verified": "measured", "title": title(device, lines)}},
        **({"hardware": differ} if differ else {}),
        "numbers": [_row(row) for row in run.rows],
    }
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=LINE)
    return f"# Written by portable-softmax tune; {cells} holds the cells.\n{text}"


def _row(row: NumberRow) -> dict[str, Any]:
    return {**row.conditions, **row.given, "gain": row.gain, "source": row.source}


def title(device: Device, lines: list[table.Line]) -> str:
    """Tells what was measured, on what, and what came of it."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("triton", "torch"))
    where = f"one {device.name}, driver {_driver()}, {versions}, {datetime.date.today()}"
    return f"portable-softmax tune on {where}; {table.summary(lines)}"


def _driver() -> str:
    from torch.utils.collect_env import get_env_info

    versions = get_env_info()._asdict()  # type: ignore[no-untyped-call]
    return next((value for key, value in versions.items() if key.endswith("driver_version") and value), "not told")
