"""A file of a run is checked without its device: what was changed by hand is found."""

import shutil

import pytest

from portable_softmax.tune import check, processes, table
from portable_softmax.tune.__main__ import main

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
        (lambda line: line.update(dtype="int8"), "'int8' is none of"),
    ],
)
def test_a_changed_table_is_found(here, copied, change, told):
    relined(
        copied, lambda line: change(line) if line["class"] == "ragged" else None
    ) if told != "'int8' is none of" else changed(copied.with_suffix(".csv"), "bfloat16", "int8")
    assert any(told in complaint for complaint in check.check(copied))


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
