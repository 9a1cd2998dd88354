"""Counts of cases that were compared with a vendor's own answer, for pytest's summary, where a dot would hide them."""

from collections import Counter

import pytest


@pytest.fixture
def record_count(record_property):
    """`record_count(name, cases, differences)` adds to the line `name` of the summary, from xdist's workers too."""

    def record(name, cases, differences):
        record_property("count", [name, cases, differences])

    return record


def pytest_terminal_summary(terminalreporter):
    cases, differences = Counter(), Counter()
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for key, recorded in getattr(report, "user_properties", ()):
            if key == "count" and report.when == "call":
                name, compared, different = recorded
                cases[name] += compared
                differences[name] += different
    if cases:
        terminalreporter.section("compared cases")
    for name in sorted(cases):
        terminalreporter.line(f"{name}: {cases[name]:,} cases, {differences[name]:,} differences")
