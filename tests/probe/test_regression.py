"""A saved run asked again: nothing changed, or each change with its kind, its verdict and the exit code."""

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from portable_softmax import Device, NoDeviceError
from portable_softmax.probe import __main__ as probe
from portable_softmax.probe import answers, cases
from portable_softmax.probe.regression import compare, load, save
from portable_softmax.probe.schema import ANSWERS, Change, Comparison, Report, encoded, json_schema

ROOT = Path(__file__).parents[2]
CASES = ["--compare", "nvidia/h200", "amd/mi300x", "--shapes", "64x781", "4096x8192", "--dtype", "bfloat16", "float32"]
KERNEL = ["--kernel", f"{ROOT}/tests/support/decorated_kernels.py:tuned", "--config", "1"]
TYPES = ["--signature", "x_ptr=*fp32:16", "y_ptr=*fp32:16", "out_ptr=*fp32:16", "n_elements=i32:16"]


def printed(capsys, *arguments):
    code = probe.main([str(word) for word in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    file = tmp_path_factory.mktemp("saved") / "run.json"
    assert probe.main([*CASES, "--save", str(file)]) == 0
    return file


@pytest.fixture
def altered(saved, tmp_path):
    """Writes the saved run with one number of one case changed."""

    def alter(*path, by=None, to=None, case=0):
        reports = json.loads(saved.read_text())
        place = reports[case]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = place[path[-1]] + by if by is not None else to
        file = tmp_path / "altered.json"
        file.write_text(json.dumps(reports))
        return file

    return alter


def test_a_run_is_saved_for_every_device_shape_and_type(saved):
    cases = [(report.device.profile, report.problem.n_cols, report.problem.dtype) for report in load(saved)]
    assert len(set(cases)) == len(cases) == 8


def test_nothing_changed(saved, capsys):
    code, out, _ = printed(capsys, "--baseline", saved)
    assert (code, out) == (0, "0 changes in 8 cases, 0 of them regressions\n")


RESOURCES = "plan", "resources"
OCCUPANCY = "plan", "occupancy", "programs_per_multiprocessor"


@pytest.mark.parametrize(
    ("path", "change", "expected", "tolerance"),
    [
        (("plan", "num_programs"), {"by": -1}, ("plan", "num_programs", "changed"), "plan"),
        (("plan", "strategy"), {"to": "online"}, ("plan", "strategy", "changed"), "plan"),
        (OCCUPANCY, {"by": 1}, ("occupancy", OCCUPANCY[-1], "worse"), "occupancy=1"),
        ((*RESOURCES, "registers_per_thread"), {"by": -3}, ("registers", "registers_per_thread", "worse"), "registers=3"),
    ],
)
def test_a_change_for_the_worse_turns_the_exit_code(altered, capsys, path, change, expected, tolerance):
    file = altered(*path, **change)
    code, out, _ = printed(capsys, "--baseline", file, "--json")
    comparison = msgspec.json.decode(out, type=Comparison)
    (found,) = comparison.changes
    assert (code, comparison.regressed) == (3, True)
    assert (found.kind, found.what, found.verdict, found.device) == (*expected, "nvidia/h200")
    assert printed(capsys, "--baseline", file, "--tolerate", tolerance)[0] == 0
    if "=" in tolerance:
        kind, _, by = tolerance.partition("=")
        assert printed(capsys, "--baseline", file, "--tolerate", f"{kind}={int(by) - 1}")[0] == 3


def test_what_an_older_report_does_not_tell_is_not_compared(altered, capsys):
    assert printed(capsys, "--baseline", altered(*RESOURCES, "stack_frame_bytes", to=None))[0] == 0
    code, out, _ = printed(capsys, "--baseline", altered(*RESOURCES, "stack_frame_bytes", by=8))
    assert (code, "memory  stack_frame_bytes  8         0        better" in out) == (0, True)


def test_an_improvement_is_shown_and_is_no_regression(altered, capsys):
    code, out, _ = printed(capsys, "--baseline", altered(*RESOURCES, "spilled_bytes_per_thread", by=8, case=5))
    assert code == 0
    assert out.startswith("1 change in 8 cases, 0 of them regressions")
    assert "spills  spilled_bytes_per_thread  8         0        better" in out


def test_a_case_that_does_not_work_any_more(altered, capsys):
    code, out, _ = printed(capsys, "--baseline", altered("problem", "dtype", to="int3", case=4))
    assert code == 3
    assert "error" in out
    assert "int3" in out


def test_markdown_and_versions(altered, capsys):
    code, out, _ = printed(capsys, "--baseline", altered("software", "triton", to="3.0.0"), "--markdown")
    assert code == 0
    assert "software: triton 3.0.0 -> " in out
    code, out, _ = printed(capsys, "--baseline", altered("plan", "tile_rows", by=1), "--markdown")
    assert "| nvidia/h200 | 64 x 781 bfloat16 | plan   | tile_rows |" in out
    code, out, _ = printed(capsys, *CASES, "--markdown")
    assert (code, out.count("\n|")) == (0, out.count("|\n") - 1)


def test_a_kernel_of_ones_own(tmp_path, capsys):
    file = tmp_path / "kernel.json"
    assert printed(capsys, "--profile", "nvidia/h200", *KERNEL, *TYPES, "--save", file)[0] == 0
    (report,) = load(file)
    assert (report.kernel.config, report.kernel.resources.num_warps) == (1, 8)
    assert printed(capsys, "--baseline", file, *KERNEL[:2], "--save", tmp_path / "again.json")[0] == 0
    assert load(tmp_path / "again.json") == [report]


@pytest.mark.kernel
def test_accuracy_is_the_same_each_time_and_a_worse_one_is_seen(device, tmp_path, capsys):
    file = tmp_path / "verified.json"
    assert printed(capsys, "--verify", "--shapes", "16x65", "--save", file)[0] == 0
    (report,) = load(file)
    better = msgspec.structs.replace(report, verify=msgspec.structs.replace(report.verify, worst=report.verify.worst - 0.2))
    file.write_text(encoded([report, better]))
    code, out, _ = printed(capsys, "--baseline", file, "--json")
    (change,) = msgspec.json.decode(out, type=Comparison).changes
    assert code == 3
    assert (change.kind, change.verdict, change.tolerated) == ("accuracy", "worse", False)
    assert printed(capsys, "--baseline", file, "--tolerate", "accuracy=0.3")[0] == 0
    wrong = msgspec.structs.replace(report, verify=msgspec.structs.replace(report.verify, worst=None, right=False))
    assert compare([report], [wrong], {"accuracy": None}).regressed


def test_a_baseline_of_the_interpreter_is_asked_again_in_it(altered, capsys, monkeypatch):
    file = altered("device", "backend", to="interpreter")
    started = []

    def run(command, env, check):
        started.append((command[-2:], env["TRITON_INTERPRET"]))
        return SimpleNamespace(returncode=3)

    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(subprocess, "run", run)
    assert printed(capsys, "--baseline", file)[0] == 3
    assert started == [(["--baseline", str(file)], "1")]


def test_a_baseline_of_a_device_that_was_here(saved, altered, capsys, monkeypatch):
    file = altered("device", "here", to=True)
    monkeypatch.setattr(cases, "current_device", lambda index: Device.from_profile("nvidia/h100-sxm"))
    code, _, err = printed(capsys, "--baseline", file)
    assert (code, "this is nvidia/h100-sxm" in err) == (1, True)


def test_the_schema_of_json_is_published():
    command = "python -c 'from portable_softmax.probe.schema import *; print(encoded(json_schema()))' > docs/probe.schema.json"
    assert json.loads((ROOT / "docs" / "probe.schema.json").read_text()) == json_schema(), command


@pytest.mark.parametrize(
    "arguments",
    [
        ["--profile", "amd/mi300x", "--explain", "--textbook"],
        ["--profile", "nvidia/h200", *KERNEL, *TYPES, "--explain"],
        ["--compare", "nvidia/h200", "ascend/910b3", *KERNEL, *TYPES],
        ["--list"],
        ["--profile", "none/such"],
        [],
    ],
    ids=["softmax", "kernel", "error in a column", "list", "failure", "no device"],
)
def test_every_answer_is_of_the_schema(capsys, monkeypatch, arguments):
    def nothing(index):
        raise NoDeviceError("nothing there")

    monkeypatch.setattr(answers, "current_device", nothing)
    answer = json.loads(printed(capsys, *arguments, "--json")[1])
    matched = [kind for kind in ANSWERS if of_type(answer, kind)]
    assert len(matched) == 1


def of_type(answer, kind):
    """True if nothing of the answer is lost, nor added, by the type."""
    try:
        return msgspec.to_builtins(msgspec.convert(answer, kind)) == answer
    except msgspec.ValidationError:
        return False


def test_a_key_that_the_schema_lacks_is_seen():
    assert not of_type({"schema_version": 2, "profiles": [], "more": 1}, ANSWERS[-1])
    assert Report in ANSWERS
    assert Change not in ANSWERS


def test_a_run_is_kept_whole_or_not_at_all_and_may_go_to_a_pipe(tmp_path, monkeypatch):
    kept = tmp_path / "run.json"
    save([], kept)
    before = kept.read_text()

    def cut_short(path, text, write=Path.write_text):
        write(path, text[:1])
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", cut_short)
        with pytest.raises(OSError, match="no space left"):
            save([], kept)
    assert (kept.read_text(), [each.name for each in tmp_path.iterdir()]) == (before, ["run.json"])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    save([], pipe)
    assert reader.communicate(timeout=30)[0] == before
