"""Plots programs per multiprocessor, and what limits them, over the length of a row."""

from pathlib import Path

from portable_softmax.devices.device import Device
from portable_softmax.runtime.plans import plan

POWERS = [2**power for power in range(6, 19)]
LENGTHS = sorted({1, 16, 33, *POWERS, *(power * 3 // 4 for power in POWERS), 781, 12672, 50257})


def plot(devices: list[Device], n_rows: int, dtype: str, path: Path) -> None:
    """Writes the picture: a panel per device, for rows of 1 to 262144 columns.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("--plot needs matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(9, 2.8 * len(devices)), layout="constrained")
    panels = figure.subplots(len(devices), sharex=True, squeeze=False)[:, 0]
    for panel, device in zip(panels, devices, strict=True):
        plans = [plan(n_rows, n_cols, dtype, device) for n_cols in LENGTHS]
        counts = [each.occupancy.programs_per_multiprocessor for each in plans]
        limits = [" and ".join(each.occupancy.limited_by) for each in plans]
        panel.plot(LENGTHS, counts, color="0.7", linewidth=1, zorder=1)
        for limit in dict.fromkeys(limits):
            chosen = [at for at, each in enumerate(limits) if each == limit]
            panel.scatter([LENGTHS[at] for at in chosen], [counts[at] for at in chosen], s=22, label=limit, zorder=2)
        panel.set(title=f"{device.name}, {n_rows} rows of {dtype}", ylabel=f"programs per {device.profile.multiprocessor}")
        panel.set_xscale("log", base=2)
        panel.set_ylim(bottom=0)
        panel.legend(title="limited by", fontsize=8, title_fontsize=8)
    panels[-1].set_xlabel("columns")
    figure.savefig(path, dpi=150)
