"""Draws the page's plots with plotly: occupancy over row length, and bandwidth over shapes."""

from collections.abc import Iterator
from typing import Any

from portable_probe.page.findings import launches
from portable_probe.page.runs import OURS, Rate, Run
from portable_probe.report import use_of, words_of
from portable_probe.schema import Report

LAYOUT = {  # colours of text and lines are the page's, light or dark: see template.html
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "margin": {"l": 60, "r": 20, "t": 60, "b": 70},
    "height": 400,
    "legend": {"groupclick": "toggleitem"},
    "hovermode": "closest",
    "modebar": {"bgcolor": "rgba(0,0,0,0)"},
}

COLOURS = {OURS: "#d81b60", "copy": "#8a8f98"}  # of others plotly's own


def figures(runs: list[Run]) -> Iterator[Any]:
    """Yields figures of plotly: of occupancy for each type, and of bandwidth for each device, direction, type and sweep."""
    if groups := launches(runs):
        for dtype in dict.fromkeys(each for _, each in groups):
            yield _occupancy({key: reports for key, reports in groups.items() if key[1] == dtype}, dtype)
    newest = {(run.measured_on(rate), rate.direction, rate.dtype, rate.sweep): run for run in runs for rate in run.rates}
    for panel, run in newest.items():
        yield _bandwidth([rate for rate in run.rates if panel == (run.measured_on(rate), *panel_of(rate))], *panel)


def panel_of(rate: Rate) -> tuple[str, str, str]:
    """Returns what rates of one panel have in common, beside the device."""
    return rate.direction, rate.dtype, rate.sweep


def _occupancy(groups: dict[tuple[str, str], list[Report]], dtype: str) -> Any:
    """Draws the part of a multiprocessor's warps that is resident: programs of an SM, a CU and a WGP are not comparable."""
    import plotly.graph_objects as go

    figure = go.Figure(layout=LAYOUT)
    asked: set[int] = set()
    for (device, _), reports in groups.items():
        if points := [each for report in reports for each in _point(report)]:
            columns, percent, words = zip(*points, strict=True)
            asked |= {*columns}
            figure.add_scatter(
                x=columns, y=percent, text=words, name=device, mode="lines+markers",
                hovertemplate="%{text}<br>%{y:.0f}% of the warps",
            )  # fmt: skip
    figure.update_layout(
        title=f"Occupancy: percent of the warps, {dtype}", xaxis_title="columns", yaxis_title="% of the warps", showlegend=True
    )
    figure.update_xaxes(type="log", tickvals=sorted(asked), ticktext=[str(each) for each in sorted(asked)])
    figure.update_yaxes(range=[0, 105])
    return figure


def _point(report: Report) -> Iterator[tuple[int, float, str]]:
    """Yields columns, percent of the warps, and words; nothing for devices whose programs have no warps."""
    use, most = use_of(report), report.facts.get("max_warps_per_multiprocessor")
    if use and most and isinstance(most.used, int) and report.problem:
        occupancy = use[1]
        programs = f"{occupancy.programs_per_multiprocessor} per {report.device.multiprocessor}"
        words = f"{words_of(report.problem)}<br>{programs}, limited by {' and '.join(occupancy.limited_by)}"
        yield report.problem.n_cols, 100 * (occupancy.warps_per_multiprocessor or 0) / most.used, words


def _bandwidth(rates: list[Rate], device: str, direction: str, dtype: str, sweep: str) -> Any:
    """Draws the rates of one class as dots: shapes are no axis that a line could follow."""
    import plotly.graph_objects as go

    figure = go.Figure(layout=LAYOUT)
    for name in dict.fromkeys(name for rate in rates for name in rate.gb_per_s):
        known = [rate for rate in rates if name in rate.gb_per_s]
        figure.add_scatter(
            x=[rate.shape for rate in known],
            y=[rate.gb_per_s[name] for rate in known],
            name=name,
            mode="markers",
            marker={"size": 9 if name == OURS else 7, "color": COLOURS.get(name)},
            hovertemplate=f"{name}: %{{y:.0f}} GB/s<br>%{{x}}",
        )
    figure.update_layout(title=f"GB/s: {device}, {direction}, {dtype}, {sweep}", yaxis_title="GB/s", showlegend=True)
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    return figure
