"""Plots the part of all warps that is resident, what limits it, and num_warps, over the length of a row."""

from pathlib import Path
from typing import Any

from portable_softmax.devices.device import Device
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.probe.progress import counted_out
from portable_softmax.runtime.plans import plan

POWERS = [2**power for power in range(6, 19)]
LENGTHS = sorted({1, 16, 33, *POWERS, *(power * 3 // 4 for power in POWERS), 781, 12672, 50257})
SIZES = 46, 14  # of a point's first and second limit, one inside the other


def plot(devices: list[Device], n_rows: int, dtype: str, path: Path) -> None:
    """Writes the picture: a panel per device, for rows of 1 to 262144 columns. A limit has one colour in all panels.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("--plot needs matplotlib: pip install matplotlib") from error
    asked = [(device, length) for device in devices for length in LENGTHS]
    plans = [plan(n_rows, length, dtype, device) for device, length in counted_out(asked, "plan")]
    limits = list(dict.fromkeys(name for each in plans for name in each.occupancy.limited_by))
    colours = {name: f"C{number}" for number, name in enumerate(limits)}
    figure = Figure(figsize=(9, 2.8 * len(devices)), layout="constrained")
    panels = figure.subplots(len(devices), sharex=True, squeeze=False)[:, 0]
    for number, (panel, device) in enumerate(zip(panels, devices, strict=True)):
        of_device = plans[number * len(LENGTHS) : (number + 1) * len(LENGTHS)]
        panel.set(title=f"{device.name}, {n_rows} rows of {dtype}")
        panel.set_xscale("log", base=2)
        _panel(panel, device, of_device, colours)
    for name, colour in colours.items():
        panels[0].scatter([], [], s=SIZES[0], color=colour, label=name)
    panels[0].legend(title="limited by", fontsize=8, title_fontsize=8)
    panels[-1].set_xlabel("columns")
    figure.savefig(path, dpi=150)


def _panel(panel: Any, device: Device, plans: list[LaunchPlan], colours: dict[str, str]) -> None:
    """Draws resident warps in percent, or programs where there are no warps, and num_warps on an axis of its own."""
    most = device.hardware.max_warps_per_multiprocessor
    warps = [each.occupancy.warps_per_multiprocessor for each in plans]
    percent = most is not None and None not in warps
    heights = [
        100 * (each.occupancy.warps_per_multiprocessor or 0) / (most or 1)
        if percent
        else each.occupancy.programs_per_multiprocessor
        for each in plans
    ]
    panel.plot(LENGTHS, heights, color="0.7", linewidth=1, zorder=2)
    for length, height, each in zip(LENGTHS, heights, plans, strict=True):
        for size, name in zip(SIZES, each.occupancy.limited_by, strict=False):
            panel.scatter([length], [height], s=size, color=colours[name], zorder=3)
    word = device.profile.multiprocessor
    panel.set_ylabel(f"% of the warps per {word}" if percent else f"programs per {word}")
    panel.set_ylim(0, 105 if percent else max(heights) + 1)
    panel.yaxis.get_major_locator().set_params(integer=True)
    if percent:
        beside = panel.twinx()
        beside.step(LENGTHS, [each.resources.num_warps for each in plans], where="mid", color="0.85", zorder=1)
        beside.set_yscale("log", base=2)
        beside.set_ylabel("num_warps", color="0.5")
        panel.set_zorder(beside.get_zorder() + 1)
        panel.patch.set_visible(False)
