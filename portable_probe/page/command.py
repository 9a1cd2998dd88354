"""`portable-softmax report RUN...`: makes the page, and tells by its exit code whether something regressed."""

import argparse
import os
import re
import sys
from datetime import datetime, timezone
from pathlib import Path

from portable_probe.options import tolerate
from portable_probe.output import as_columns
from portable_probe.page.figures import figures
from portable_probe.page.findings import failing, plans, regressions, tests
from portable_probe.page.runs import Run, read
from portable_probe.regression import CHANGE_HEADER, REGRESSED, change_row
from portable_probe.schema import Change


def add(command: argparse.ArgumentParser) -> None:
    """Adds the options of `report`."""
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a folder of JSON, XML and CSV; the oldest first")
    command.add_argument("--html", type=Path, metavar="FILE", help="also write a page for browsers")
    command.add_argument("--title", default="Portable kernels", help="of the page")
    command.add_argument("--commit", help="that the page is of (GITHUB_SHA or CI_COMMIT_SHA, if there is one)")
    command.add_argument("--slower", type=_part, default=0.05, metavar="PART", help="that a benchmark may lose (0.05)")
    tolerate(command)
    command.set_defaults(answer=report)


def report(options: argparse.Namespace) -> int:
    """Writes the page of the runs that the command line names, and returns the exit code: see docs/testing.md."""
    runs = [read(path) for path in options.runs]
    changes = regressions(runs, options.slower, options.tolerate)
    if options.html:
        options.html.write_text(html(runs, changes, _heading(options)), encoding="utf-8")
        print(f"wrote {options.html}", file=sys.stderr)
    print(markdown(runs, changes, _heading(options)))
    if any(not change.tolerated for change in changes):
        return REGRESSED
    return 1 if failing(runs) else 0


def _heading(options: argparse.Namespace) -> list[str]:
    """Returns the title, and what is known of the page: commit and day."""
    commit = options.commit or os.environ.get("GITHUB_SHA") or os.environ.get("CI_COMMIT_SHA")
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return [options.title, ", ".join(filter(None, (commit and f"commit {commit[:12]}", f"page of {day}")))]


def _part(text: str) -> float:
    if not (part := float(text)) >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} should be 0 or more")
    return part


def markdown(runs: list[Run], changes: list[Change], heading: list[str]) -> str:
    """Returns the summary: what changed, plans and tests, as tables in Markdown."""
    sections = {
        "What changed": (list(CHANGE_HEADER), [list(change_row(change)) for change in changes]),
        "Plans side by side": plans(runs),
        "Tests": tests(runs),
    }
    title, about = heading
    named = "; ".join(f"run {run.label} ({run.made})" if run.made else f"run {run.label}" for run in runs)
    lines = [f"# {plain(title)}", "", f"{plain(named)}. {about}"]
    if failures := failing(runs):
        lines += ["", f"{len(failures)} tests fail: {plain(', '.join(failures[:10]))}"]
    for title, (header, rows) in sections.items():
        told = [[plain(each) for each in row] for row in (header, *rows)]
        table = as_columns(told[0], told[1:], "github") if rows else "Nothing."
        lines += ["", f"## {title}", "", table]
    return "\n".join([*lines, *(f"\n{plain(note)}" for run in runs for note in run.notes)])


def plain(text: str) -> str:
    """Returns text that stays one cell and one line of Markdown, whatever a test or a file is called."""
    return re.sub(r"[|<]|\](?=\()", r"\\\g<0>", " ".join(text.split()))


def html(runs: list[Run], changes: list[Change], heading: list[str]) -> str:
    """Returns the page, with plots and all that they need in it.

    Raises:
        ImportError: plotly or jinja2 is missing.
    """
    try:
        import jinja2
        from markupsafe import Markup
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError(f"--html needs {error.name}: pip install jinja2 plotly") from error
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["versions"] = _versions
    template = environment.from_string(Path(__file__).with_name("template.html").read_text(encoding="utf-8"))
    return template.render(
        runs=runs,
        title=heading[0],
        about=heading[1],
        failing=failing(runs),
        changes=[(change, change_row(change)) for change in changes],
        change_header=CHANGE_HEADER,
        plans=plans(runs),
        tests=tests(runs),
        notes=[note for run in runs for note in run.notes],
        # No name of a device may end the script.
        figures=[Markup(figure.to_json().replace("<", "\\u003c")) for figure in figures(runs)],
        plotly_js=Markup(get_plotlyjs()),
    )


def _versions(software: dict[str, str]) -> str:
    return ", ".join(f"{name} {software[name]}" for name in ("triton", "triton-ascend", "torch") if name in software)
