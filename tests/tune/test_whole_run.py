"""Whole runs, in Triton's interpreter or for a device that is not here: what they write, and what they leave out."""

import dataclasses

import msgspec
import pytest
from tiny import plan_for_h200, plan_unless_tuned, time_by_size

from portable_probe.tune import files, report, table
from portable_probe.tune.__main__ import main
from portable_probe.tune.cells import Cell
from portable_probe.tune.run import Limits, Run
from portable_softmax import Device
from portable_softmax.devices.profile_files import read_file

pytestmark = pytest.mark.xdist_group("tune")  # one process makes the runs


@pytest.mark.slow
def test_the_package_takes_the_file_at_once(whole, monkeypatch):
    directory, printed = whole
    profile = directory / "triton" / "interpreter.yaml"
    assert sorted(each.name for each in profile.parent.iterdir()) == ["interpreter.csv", "interpreter.yaml"]
    assert f"PORTABLE_SOFTMAX_PROFILES={directory} takes it" in printed
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(directory))
    found, written = Device.from_profile("triton/interpreter"), read_file(profile)
    assert found.profile.launch.numbers[: len(written.numbers)] == written.numbers
    (source,) = written.sources.values()
    assert source.verified == "measured"
    for told in ("on one interpreter, driver ", "triton ", "torch ", "a copy ", "8 cells; no held-out length"):
        assert told in source.title


@pytest.mark.slow
def test_the_table_holds_each_launch_of_each_cell(whole):
    lines = table.read(whole[0] / "triton" / "interpreter.csv")
    cells = {table.cell_of(line) for line in lines}
    assert {(cell.kind, cell.n_cols, cell.dtype, cell.backward) for cell in cells} == {
        (kind, n_cols, dtype, backward)
        for kind, n_cols in (("row", 2048), ("across", 16))
        for dtype in ("float32", "bfloat16")
        for backward in (False, True)
    }
    computed = [line for line in lines if line["numbers"] == "computed"]
    assert len(computed) == len(cells)
    assert all("before" in line["chosen"] and line["again_us"] and line["copy_us"] for line in computed)
    assert all(0 <= float(line["error"]) <= 1 for line in lines)
    assert {line["numbers"] for line in lines} >= {"computed", "tile_elements=32768", "tile_elements=131072"}


def test_what_goes_wrong_is_named_and_not_chosen(faults):
    directory, printed = faults
    for words in (
        "float32 forward, tile_elements=131072: the process ended by signal 6",
        "row 64 x 2048 float32 forward, tile_elements=32768, vector: tile 16 x 2048, 1 programs: no answer in 3 s",
        "row 64 x 2048 bfloat16 forward, tile_elements=32768, vector: tile 16 x 2048, 1 programs: WrongResultError",
        "4 failed: 2 the process ended by signal 6, 1 no answer in 3 s, 1 WrongResultError",
    ):
        assert words in printed
    rows = read_file(directory / "triton" / "interpreter.yaml").numbers
    assert [(row.access, row.element_bytes, row.given, row.gain) for row in rows] == [
        ("scalar", 4, {"tile_elements": 32768}, 2.0),
        ("scalar", 2, {"tile_elements": 32768}, 2.0),
    ]
    failed = [line for line in table.read(directory / "triton" / "interpreter.csv") if not line["median_us"]]
    assert {(line["class"], line["chosen"]) for line in failed} == {("row", "")}


def test_regret_of_held_out_lengths_is_told_by_class(faults):
    told = [line.split(maxsplit=1) for line in faults[1].splitlines()]
    assert ["unaligned", "100.0% (worst 100.0%)  0.0% (worst 0.0%)"] in told
    assert ["all", "100.0% (worst 100.0%)  0.0% (worst 0.0%)"] in told
    assert "noise: 0.0%" in faults[1]


def tuned(plan):
    cells = [Cell("short", 2**21 // n_cols, n_cols, "float32", held_out=n_cols == 128) for n_cols in (64, 128, 512)]
    run = Run(Device.from_profile("nvidia/h200"), cells, "tuned", Limits(processes=2), plan, time_by_size)
    run.tune(4)
    return run


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    """A run with a device that is not here: plans by its compiler, and made-up times."""
    run = tuned(plan_for_h200)
    directory = tmp_path_factory.mktemp("offline")
    files.write(run, directory)
    return run, directory


@pytest.mark.slow
def test_the_number_that_is_planted_is_found(offline):
    run, _ = offline
    assert run.rows, report.text_of(run, files.lines_of(run))
    assert [(row.given, row.from_cols, row.to_cols, row.gain) for row in run.rows] == [({"words_forward": 5.5}, 64, 512, 1.25)]
    assert table.regrets(files.lines_of(run)) == (pytest.approx((0.25, 0.25)), pytest.approx((0, 0)))


@pytest.mark.slow
def test_rows_that_crash_the_compiler_elsewhere_are_dropped():
    run = tuned(plan_unless_tuned)
    assert not run.rows
    assert [str(each) for each in run.failures] == [f"{run.cells[1]}, chosen: the process ended by signal 6"]
    assert {run.after[cell] for cell in run.cells} == {run.plans[cell][()] for cell in run.cells}


@pytest.mark.slow
def test_nothing_half_written_stays(offline, tmp_path, monkeypatch):
    run, _ = offline
    monkeypatch.setattr(files, "yaml_of", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        files.write(run, tmp_path)
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


@pytest.mark.slow
def test_facts_that_the_device_tells_otherwise_are_written(offline):
    run, _ = offline
    assert "hardware" not in files.yaml_of(run, [], "x.csv")
    hardware = msgspec.structs.replace(run.device.hardware, multiprocessor_count=114)
    origins = {**run.device.origins, "multiprocessor_count": "driver", "warp_size": "driver"}
    device = dataclasses.replace(run.device, hardware=hardware, origins=origins)
    text = files.yaml_of(dataclasses.replace(run, device=device), [], "x.csv")
    assert "hardware:\n  multiprocessor_count: {value: 114, source: tuned}\n" in text


def test_usage():
    with pytest.raises(SystemExit):
        main(["--classes", "none"])
