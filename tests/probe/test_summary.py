"""The Markdown of several runs: what it has, and what turns its exit code."""

import json
import shutil

import pytest

from portable_probe import program


@pytest.fixture
def runs(tmp_path):
    """Two runs of two devices, the same but for what a test changes."""
    monday, tuesday = tmp_path / "monday", tmp_path / "tuesday"
    monday.mkdir()
    shapes = ["--shapes", "64x781", "64x4096", "128x64"]
    assert program.main(["plan", "--on", "nvidia/h200", "amd/mi300x", *shapes, "--save", str(monday / "plans.json")]) == 0
    shutil.copytree(monday, tuesday)
    return monday, tuesday


def change(run, edit):
    """Edits the reports of a run."""
    file = run / "plans.json"
    reports = json.loads(file.read_text())
    edit(reports)
    file.write_text(json.dumps(reports))


def test_devices_by_cases_and_nothing_changed(runs, run):
    code, out, _ = run("report", *runs)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines() if line.startswith("|")]
    assert (code, "## What changed\n\nNothing." in out) == (0, True)
    assert [row[0] for row in rows if "float32" in row[0]] == ["64 x 781 float32", "64 x 4096 float32", "128 x 64 float32"]
    assert all("per SM (" in row[1] and "per CU (" in row[2] for row in rows[2:])


def test_one_that_is_worse_turns_the_exit_code_and_no_name_breaks_a_table(runs, run):
    def fewer(reports):
        reports[0]["plan"]["occupancy"]["programs_per_multiprocessor"] -= 1

    def renamed(reports):
        reports[1]["device"]["profile"] = "a|b\n<img>"

    change(runs[1], fewer)
    change(runs[1], renamed)
    code, out, _ = run("report", *runs)
    assert (code, "programs_per_multiprocessor" in out, r"| a\|b \<img>" in out) == (3, True, True)
    assert run("report", *runs[::-1])[0] == 0


@pytest.mark.parametrize("text", ['{"schema_version": 1}', "[" * 200000, "[", "{}"])
def test_a_file_that_cannot_be_read_is_named(runs, run, tmp_path, text):
    for file in (runs[1] / "other.json", tmp_path / "other.json"):
        file.write_text(text)
    code, out, _ = run("report", *runs)
    assert (code, "other.json cannot be read" in out) == (0, True)
    code, _, err = run("report", tmp_path / "other.json")
    assert (code, "holds no reports; other.json cannot be read" in err) == (1, True)
