"""A file of a run is checked without its device: what was changed by hand is found."""

import csv
import shutil
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from portable_probe.tune import check, files, processes, table
from portable_probe.tune.__main__ import main

SHIPPED = Path(__file__).parents[2] / "device_profiles" / "amd" / "gfx942.yaml"
pytestmark = pytest.mark.xdist_group("tune")  # one process makes the runs that are checked


@pytest.fixture
def here(monkeypatch):
    """Lets this process do the jobs of others, which takes no time to start."""

    def answers(function, jobs, *limits):
        for job in jobs:
            try:
                yield job, function(*job)
            except Exception as error:
                yield job, processes.Failed(processes._line_of(error))

    monkeypatch.setattr(check, "answers", answers)


@pytest.fixture
def copied(faults, tmp_path):
    shutil.copytree(faults[0] / "triton", tmp_path / "triton")
    return tmp_path / "triton" / "interpreter.yaml"


def changed(profile, old, new):
    text = profile.read_text()
    assert old in text
    profile.write_text(text.replace(old, new))


def relined(profile, change):
    """Changes the lines of the table."""
    path = profile.with_suffix(".csv")
    lines = table.read(path)
    for line in lines:
        change(line)
    path.write_text(table.text_of(lines))


def test_a_file_as_it_was_written_is_right(copied, capsys):
    assert main(["check", str(copied)]) == 0
    printed = capsys.readouterr().out
    assert "nothing is wrong" in printed
    assert "scalar: tile 64 x 512" in printed
    assert "programs per multiprocessor" in printed


def test_several_mistakes_are_told_at_once(here, copied, capsys):
    changed(copied, "extends: triton/interpreter", "extends: triton/interpreted")
    relined(copied, lambda line: line.update(median_us=line["median_us"] and "0.001"))
    assert main(["check", str(copied)]) == 1
    printed = capsys.readouterr().out
    assert "there is no 'triton/interpreted'" in printed
    assert "the fastest copy has" in printed
    assert "the table tells" in printed


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("gain: 2.0", "gain: 1.02", "Expected `float` >= 1.03"),
        ("tile_elements: 32768", "tile_elements: 30000", "is not a power of two"),
        ("before, 0.0%", "before, 0.1%", "the table tells"),
        ("a copy ", "a copy 9", "the table tells"),
        ("tile_elements: 32768", "tile_elements: 16384", "here it is"),
    ],
)
def test_a_changed_profile_is_found(here, copied, old, new, told):
    changed(copied, old, new)
    assert any(told in complaint for complaint in check.check(copied))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda line: line.update(launch=line["launch"].replace("tile 64", "tile 32")), "here it is"),
        (lambda line: line.update(numbers="computed"), "here it is"),
        (lambda line: line.update(numbers="warps=3"), "here TypeError"),
        (lambda line: line.update(median_us=line["median_us"] and "70"), "the table tells"),
    ],
)
def test_a_changed_table_is_found(here, copied, change, told):
    relined(copied, lambda line: change(line) if line["class"] == "unaligned" else None)
    assert any(told in complaint for complaint in check.check(copied))


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("dtype", "int8", "'int8' is none of"),
        ("median_us", "0", "median_us is 0, which is no time"),
        ("median_us", "-1", "median_us is -1, which is no time"),
        ("median_us", "nan", "median_us is nan, which is no time"),
        ("again_us", "inf", "again_us is inf, which is no time"),
        ("copy_us", "0.0", "copy_us is 0.0, which is no time"),
        ("n_rows", "0", "0 rows of"),
        ("n_cols", "-3", "rows of -3 columns are no cell"),
        ("launch", "x" * 200_000, "field larger than field limit"),
    ],
    ids=lambda each: each[:20],
)
def test_a_table_that_no_run_writes_is_refused(here, copied, column, value, told):
    path = copied.with_suffix(".csv")
    header, *rows = path.read_text().splitlines()
    at = header.split(",").index(column)
    first = next(csv.reader([rows[0]]))
    first[at] = value
    rows[0] = ",".join(f'"{each}"' for each in first)
    path.write_text("\n".join([header, *rows]))
    assert any(told in complaint for complaint in check.check(copied))


def test_a_file_that_no_run_wrote_is_told(here):
    (told,) = check.check(SHIPPED)
    assert "it extends nothing, so it is no profile that `portable-softmax tune` wrote" in told


def test_files_are_checked_without_what_draws_a_run():
    code = "import sys; sys.modules['tqdm'] = None; from portable_probe.tune.__main__ import main; main(sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, "check", SHIPPED], capture_output=True, text=True, check=False)
    assert "it extends nothing" in done.stdout, done.stderr


def test_two_runs_at_a_time_write_whole_files(tmp_path, monkeypatch):
    """Each has files of its own, until both are whole; nothing is left of those."""
    monkeypatch.setattr(files, "product_of", lambda device: "nvidia/x")
    monkeypatch.setattr(files, "lines_of", lambda run: [])
    monkeypatch.setattr(table, "text_of", lambda lines: "text " * 100_000)
    monkeypatch.setattr(files, "yaml_of", lambda run, *rest: f"{run.device} " * 100_000)

    def write(number):
        for _ in range(20):
            files.write(types.SimpleNamespace(device=number), tmp_path)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert sorted(each.name for each in (tmp_path / "nvidia").iterdir()) == ["x.csv", "x.yaml"]
    assert len({*(tmp_path / "nvidia/x.yaml").read_text().split()}) == 1


def test_a_table_of_other_columns_and_a_missing_one_are_told(here, copied):
    changed(copied.with_suffix(".csv"), "median_us", "us")
    assert any("columns are" in complaint for complaint in check.check(copied))
    copied.with_suffix(".csv").unlink()
    assert any("No such file" in complaint for complaint in check.check(copied))


def test_another_tritons_launches_are_no_mistake(here, copied, capsys):
    changed(copied, "triton 3", "triton 2")
    relined(copied, lambda line: line.update(launch="another"))
    assert not check.check(copied)
    assert "is of another Triton" in capsys.readouterr().out
