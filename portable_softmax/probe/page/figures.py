"""Draws the page's plots with plotly: occupancy over row length, and bandwidth over shapes."""

from collections.abc import Iterator
from typing import Any

from portable_softmax.probe.cases import words_of
from portable_softmax.probe.page.findings import launches
from portable_softmax.probe.page.runs import Run
from portable_softmax.probe.results import OURS
from portable_softmax.probe.schema import Launch, Report, SoftmaxProblem

LAYOUT = {  # colours of text and lines are the page's, light or dark: see template.html
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "margin": {"l": 60, "r": 20, "t": 50, "b": 60},
    "legend": {"groupclick": "toggleitem"},
    "hovermode": "closest",
    "modebar": {"bgcolor": "rgba(0,0,0,0)"},
}

COLOURS = {OURS: "#d81b60", "copy": "#8a8f98"}  # of others plotly's own


def figures(runs: list[Run]) -> Iterator[Any]:
    """Yields figures of plotly: one of occupancy for each type, and one of bandwidth for each device, direction and type."""
    if groups := launches(runs):
        for dtype in dict.fromkeys(each for _, each in groups):
            yield _occupancy({key: reports for key, reports in groups.items() if key[1] == dtype}, dtype)
    newest = {(run.measured_on(rate), rate.direction, rate.dtype): run for run in runs for rate in run.rates}
    for (device, direction, dtype), run in newest.items():
        yield _bandwidth(run, device, direction, dtype)


def _occupancy(groups: dict[tuple[str, str], list[Report]], dtype: str) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure(layout=LAYOUT)
    for (device, _), reports in groups.items():
        points = [each for report in reports for each in _point(report)]
        columns, programs, words = zip(*points, strict=True)
        figure.add_scatter(
            x=columns, y=programs, text=words, name=device, mode="lines+markers",
            hovertemplate="%{text}<br>%{y} programs per multiprocessor",
        )  # fmt: skip
    figure.update_layout(
        title=f"Occupancy: programs per multiprocessor, {dtype}", xaxis_title="columns", yaxis_title="programs"
    )
    figure.update_xaxes(type="log")
    figure.update_yaxes(rangemode="tozero")
    return figure


def _point(report: Report) -> Iterator[tuple[int, int, str]]:
    if isinstance(report.plan, Launch) and isinstance(report.problem, SoftmaxProblem):
        occupancy = report.plan.occupancy
        words = f"{words_of(report.problem)}<br>limited by {' and '.join(occupancy.limited_by)}"
        yield report.problem.n_cols, occupancy.programs_per_multiprocessor, words


def _bandwidth(run: Run, device: str, direction: str, dtype: str) -> Any:
    import plotly.graph_objects as go

    wanted = device, direction, dtype
    rates = [rate for rate in run.rates if (run.measured_on(rate), rate.direction, rate.dtype) == wanted]
    names = dict.fromkeys(name for rate in rates for name in rate.gb_per_s)
    figure = go.Figure(layout=LAYOUT)
    for name in names:
        known = [rate for rate in rates if name in rate.gb_per_s]
        figure.add_scatter(
            x=[[rate.sweep for rate in known], [rate.shape for rate in known]],
            y=[rate.gb_per_s[name] for rate in known],
            name=name,
            mode="lines+markers",
            line={"width": 3 if name == OURS else 1.5, "color": COLOURS.get(name)},
            hovertemplate=f"{name}: %{{y:.0f}} GB/s<br>%{{x}}",
        )
    figure.update_layout(title=f"Bandwidth: {device}, {direction}, {dtype}", xaxis_title="rows x columns", yaxis_title="GB/s")
    figure.update_yaxes(rangemode="tozero")
    return figure
