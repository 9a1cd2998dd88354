"""The benchmark's own arithmetic, and that its checks tell right from wrong; nothing is timed here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from benchmark import layouts, report
from benchmark.directions import DIRECTIONS, Inputs, worst_error
from benchmark.providers import Provider, load
from benchmark.results import read, save

SCRIPTS = Path(__file__).parents[2] / "scripts"
CSV = """\
direction,sweep,dtype,n_rows,n_cols,copy,torch,quack,ours
forward,wide,float32,4096,128,200,50,,100
forward,wide,float32,4096,256,400,50,400,200
backward,wide,float32,4096,256,400,50,100,
"""


def run(*command, **environment):
    """A script, in a process of its own."""
    command = [sys.executable, *map(str, command)]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def test_ratios_of_cells_and_their_geometric_means(tmp_path):
    (tmp_path / "one.csv").write_text(CSV)
    cells = read(tmp_path / "one.csv")
    forward, backward = report.summary(cells)
    assert forward == ("forward", "wide", "float32", "2", "0.50", "2.83", "1.00", "1", "0.50 4096 x 256 (quack)")
    assert backward == ("backward", "wide", "float32", "1", "-", "-", "-", "0", "-")
    assert report.below(cells) == ["  0.500 forward float32 4096 x 256 (quack)"]
    assert report.rates(cells)[-1] == ("backward", "float32", "4096", "256", "400", "50", "-", "100", "-", "-")


def test_a_saved_file_reads_as_it_was(tmp_path):
    (tmp_path / "one.csv").write_text(CSV)
    cells = read(tmp_path / "one.csv")
    assert save(iter(cells), ["copy", "torch", "quack", "ours"], tmp_path / "two.csv") == cells
    assert (tmp_path / "two.csv").read_text() == CSV


def test_the_report_needs_no_torch(tmp_path):
    """It reads several files, as of a run in parts, and draws each direction."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text(CSV)
    (tmp_path / "torch.py").write_text("raise RuntimeError('the report imports torch')")
    arguments = [tmp_path / "one.csv", tmp_path / "two.csv", "--plots", tmp_path / "plots", "--markdown"]
    outcome = run(SCRIPTS / "benchmark", "report", *arguments, PYTHONPATH=str(tmp_path))
    assert outcome.returncode == 0, outcome.stderr
    row = outcome.stdout.splitlines()[2].split("|")
    assert [cell.strip() for cell in row[1:6]] == ["forward", "wide", "float32", "4", "0.50"]
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"forward_float32.png", "backward_float32.png"}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_torch_is_found_right_and_the_ceiling_wrong(direction, dtype):
    providers, what = load(["torch", "naive", "copy"]), DIRECTIONS[direction]
    given = Inputs.random(5, 781, dtype, "cpu")
    worst = {name: worst_error(what.call(each, given)(), given, what) for name, each in providers.items()}
    assert worst["torch"] <= 1
    assert worst["naive"] <= 20
    assert worst["copy"] > 20


def test_an_element_that_is_not_a_number_is_wrong():
    given = Inputs.random(3, 5, "float32", "cpu")
    result = torch.softmax(given.x, -1)
    result[2, 4] = float("nan")
    assert worst_error(result, given, DIRECTIONS["forward"]) == float("inf")


def test_a_provider_without_a_direction_is_left_out():
    given = Inputs.random(2, 3, "float32", "cpu")
    calls = {name: direction.call(Provider(torch.clone), given) for name, direction in DIRECTIONS.items()}
    assert [name for name, call in calls.items() if call] == ["forward"]


@pytest.mark.parametrize("command", [[], ["report"], ["layouts"], ["cold_start"]], ids=str)
def test_a_command_tells_its_options(command):
    told = run(SCRIPTS / "benchmark", *command, "--help")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith(" ".join(["usage: benchmark", *command]))


def test_a_layout_whose_result_is_wrong_has_no_rate(monkeypatch):
    monkeypatch.setattr(layouts, "do_bench", lambda call, **_: call() is None or 1.0)
    providers = {"torch": torch.softmax, "wrong": lambda x, dim: torch.softmax(x, dim) * 1.01}
    heads = layouts.Layout((4, 6, 3, 8), -1, lambda x: x.transpose(1, 2))
    rates = layouts.measure(heads, "float32", "cpu", providers, backward=False)
    assert rates == {"copy": pytest.approx(2e-6 * 576 * 4), "torch": pytest.approx(2e-6 * 576 * 4), "wrong": "WRONG"}


def test_it_starts_as_a_module_too():
    told = run("-m", "benchmark", "report", "--help", PYTHONPATH=str(SCRIPTS))
    assert told.stdout.startswith("usage: benchmark report")


def test_the_interpreter_has_no_cold_start():
    ran = run(SCRIPTS / "benchmark", "cold_start", TRITON_INTERPRET="1")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "the interpreter compiles nothing" in ran.stderr


def test_without_a_device_it_says_so_in_one_line():
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    command = [sys.executable, str(SCRIPTS / "benchmark"), "--quick"]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 1
    assert outcome.stderr.splitlines()[-1].startswith("NoDeviceError: Triton has drivers for")
    assert "Traceback" not in outcome.stderr
