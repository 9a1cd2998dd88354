"""Draws docs/speed.svg from scripts/results: GB/s of a bfloat16 softmax over columns, of this package and alternatives."""

from pathlib import Path

from benchmark.documents import ROOT, kept
from benchmark.results import COPY, OURS, cells_of

CHART = ROOT / "docs" / "speed.svg"
LINES = {  # provider: label, color
    COPY: ("copy", "#999999"), OURS: ("this package", "#d62728"), "quack": ("QuACK", "#2ca02c"), "liger": ("Liger", "#9467bd"),
    "compile": ("torch.compile", "#ff7f0e"), "torch": ("torch", "#1f77b4"),
}  # fmt: skip


def draw(path: Path = CHART) -> None:
    """Writes the chart. Requires matplotlib."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "speed", "font.size": 9})
    from matplotlib import pyplot

    cells = cells_of(
        result
        for result in kept("h100")
        if (result.sweep, result.dtype, result.direction) == ("tutorial", "bfloat16", "forward")
    )
    figure, axes = pyplot.subplots(figsize=(7, 3), layout="constrained")
    for provider, (label, color) in LINES.items():
        points = sorted((cell.result.sizes[1], cell.gb_per_s[provider]) for cell in cells if provider in cell.gb_per_s)
        axes.plot(*zip(*points, strict=True), label=label, color=color, linewidth=2.2 if provider == OURS else 1.2)
    rows = cells[0].result.sizes[0]
    axes.set(xlabel=f"columns ({rows} rows, bfloat16, one H100)", ylabel="GB/s", ylim=0)
    axes.legend(ncols=3, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
