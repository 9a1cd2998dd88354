"""A saved run asked again: each change with its kind, its verdict and the exit code; and what is no run to compare with."""

import dataclasses
import json
import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from portable_probe import cases, program
from portable_probe.regression import compare, load, save
from portable_probe.report_types import SCHEMA_VERSION, Comparison
from portable_softmax import Device

ROOT = Path(__file__).parents[2]
CASES = ["plan", "--on", "nvidia/h200", "amd/mi300x", "--shapes", "64x781", "4096x8192", "--dtype", "bfloat16", "float32"]
KERNEL = ["kernel", f"{ROOT}/tests/support/decorated_kernels.py:tuned", "--on", "nvidia/h200", "--config", "1"]
TYPES = ["--args", "x_ptr=*fp32:16", "y_ptr=*fp32:16", "out_ptr=*fp32:16", "n_elements=i32:16"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    file = tmp_path_factory.mktemp("saved") / "run.json"
    assert program.main([*CASES, "--save", str(file)]) == 0
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


RESOURCES = "plan", "resources"
OCCUPANCY = "plan", "occupancy", "programs_per_multiprocessor"
CHANGED = [  # path, change, name, and whether it is worse
    (("plan", "num_programs"), {"by": -1}, "num_programs", True),
    (("plan", "tiling", "walk"), {"to": True}, "walk", True),
    (OCCUPANCY, {"by": 1}, "programs_per_multiprocessor", True),
    (OCCUPANCY, {"by": -1}, "programs_per_multiprocessor", False),
    ((*RESOURCES, "registers_per_thread"), {"by": -3}, "registers_per_thread", False),
    ((*RESOURCES, "spilled_bytes_per_thread"), {"by": 8, "case": 5}, "spilled_bytes_per_thread", False),
    (("problem", "dtype"), {"to": "int3"}, "error", True),
]


@pytest.mark.parametrize(("path", "change", "what", "worse"), CHANGED)
def test_a_change_for_the_worse_turns_the_exit_code(altered, run, path, change, what, worse):
    found, out, _ = run("diff", altered(*path, **change), "--json")
    comparison = msgspec.json.decode(out, type=Comparison)
    told = comparison.changes[0]
    assert (found, comparison.regressed, comparison.cases) == (3 if worse else 0, worse, 8)
    assert (told.what, told.worse, told.device) == (what, worse, "nvidia/h200" if "case" not in change else "amd/mi300x")


def test_more_spilled_bytes_are_worse(saved):
    (report, *_) = load(saved)
    resources = dataclasses.replace(report.plan.resources, spilled_bytes_per_thread=8)
    spilling = msgspec.structs.replace(report, plan=msgspec.structs.replace(report.plan, resources=resources))
    assert [(each.what, each.worse) for each in compare([report], [spilling]).changes] == [("spilled_bytes_per_thread", True)]


def test_nothing_changed_nor_what_an_older_report_does_not_tell(saved, altered, run):
    cases = [(report.device.profile, report.problem.n_cols, report.problem.dtype) for report in load(saved)]
    assert len(set(cases)) == len(cases) == 8
    assert run("diff", saved)[:2] == (0, "0 changes in 8 cases, 0 for the worse\n")
    assert run("diff", altered(*RESOURCES, "stack_frame_bytes", to=None))[0] == 0
    assert "software: triton 3.0.0 -> " in run("diff", altered("software", "triton", to="3.0.0"), "--markdown")[1]
    out = run("diff", altered("plan", "tiling", "tile_rows", by=1), "--markdown")[1]
    assert "| nvidia/h200 | 64 x 781 bfloat16 | tile_rows |" in out


def test_a_kernel_of_ones_own(tmp_path, run):
    file = tmp_path / "kernel.json"
    assert run(*KERNEL, *TYPES, "--save", file)[0] == 0
    (report,) = load(file)
    assert (report.kernel.config, report.kernel.resources.num_warps) == (1, 8)
    assert run("diff", file, "--kernel", KERNEL[1], "--save", tmp_path / "again.json")[0] == 0
    assert load(tmp_path / "again.json") == [report]


@pytest.mark.kernel
def test_accuracy_is_the_same_each_time_and_a_wrong_result_is_worse(device, tmp_path, run):
    file = tmp_path / "verified.json"
    assert run("verify", "--shapes", "16x65", "--save", file)[0] == 0
    (report,) = load(file)
    assert run("diff", file)[:2] == (0, "0 changes in 1 case, 0 for the worse\n")
    wrong = msgspec.structs.replace(report, verify=msgspec.structs.replace(report.verify, worst=None, right=False))
    assert compare([report], [wrong]).regressed


def test_a_baseline_of_the_interpreter_is_asked_again_in_it(altered, run, monkeypatch):
    file = altered("device", "backend", to="interpreter")
    started = []

    def started_in(command, env, check):
        started.append((command[-2:], env["TRITON_INTERPRET"]))
        return SimpleNamespace(returncode=3)

    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(subprocess, "run", started_in)
    assert run("diff", file)[0] == 3
    assert started == [(["diff", str(file)], "1")]


def test_a_run_is_kept_whole_or_not_at_all_and_may_go_to_a_pipe(tmp_path, monkeypatch):
    kept = tmp_path / "run.json"
    save([], kept)
    before = kept.read_text()

    def cut_short(path, text, encoding, write=Path.write_text):
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


CLEAR = """
import pathlib
import triton
import triton.language as tl

@triton.jit
def clear(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)

pathlib.Path(__file__).with_suffix(".ran").touch()
"""


def without(name):
    """Changes a saved run: its report lacks this key."""
    return lambda text: json.dumps([{key: value for key, value in json.loads(text)[0].items() if key != name}])


OLDER = f'"schema_version": {SCHEMA_VERSION}', '"schema_version": 1'


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda text: "", "holds no reports of this probe: Input data was truncated"),
        (lambda text: "[]", "holds no reports of this probe: its list is empty"),
        (lambda text: "[1]", "holds no reports of this probe: Expected `object`, got `int`"),
        (lambda text: f'{{"schema_version": {SCHEMA_VERSION}, "profiles": []}}', "Object missing required field"),
        (without("problem"), "without a softmax or kernel, or without its numbers"),
        (without("plan"), "without a softmax or kernel, or without its numbers"),
        (lambda text: re.sub(r'"shared_memory_bytes": \d+', '"shared_memory_bytes": -1', text), "must be at least 0, not -1"),
        (lambda text: text.replace(*OLDER), f"is of schema version 1, and this is {SCHEMA_VERSION}"),
        (lambda text: without("facts")(text).replace(*OLDER), f"is of schema version 1, and this is {SCHEMA_VERSION}"),
    ],
    ids=["empty", "no report", "other JSON", "another answer", "no case", "no numbers", "impossible", "old", "old, less"],
)
def test_nothing_to_compare_is_an_error(saved, tmp_path, run, change, complaint):
    file = tmp_path / "other.json"
    file.write_text(change(saved.read_text()))
    code, out, err = run("diff", file)
    assert (code, out, f"{file} " in err, complaint in err) == (1, "", True, True), err


def test_the_required_device_is_another_and_one_that_is_gone(saved, altered, run, nothing_here, monkeypatch):
    assert run("diff", saved, "--require", "npu")[::2] == (1, "DeviceError: a npu device was required; this is cuda, hip\n")
    live = altered("device", "here", to=True)
    code, out, err = run("diff", live, "--markdown")
    way_out = "ask where it is, or keep reports of one that need not be here: `portable-softmax plan --on NAME --save FILE`"
    words = f"{live} holds reports of a device that was here; {way_out}. No accelerator: nothing there"
    assert (code, out, err) == (1, "", f"DeviceError: {words}\n")
    monkeypatch.setattr(cases, "current_device", lambda index: Device.from_profile("nvidia/h100-sxm"))
    code, _, err = run("diff", live)
    assert (code, "this is nvidia/h100-sxm" in err) == (1, True)


@pytest.fixture
def of_kernel(tmp_path, run):
    """Returns a saved run of a kernel, and the kernel's name; the file that tells that it ran is gone again."""
    (tmp_path / "mine.py").write_text(CLEAR)
    name, file = f"{tmp_path}/mine.py:clear", tmp_path / "kernel.json"
    assert run("kernel", name, "--on", "nvidia/h200", "--args", "x_ptr=*fp32:16 BLOCK=64", "--save", file)[0] == 0
    (tmp_path / "mine.ran").unlink()
    return file, name


def test_a_kernel_that_is_not_named_does_not_run(of_kernel, tmp_path, run):
    file, name = of_kernel
    for named in ([], ["--kernel", f"{tmp_path}/other.py:clear"], ["--kernel", f"{tmp_path}/../{tmp_path.name}/mine.py:clear"]):
        code, out, err = run("diff", file, *named)
        assert (code, out) == (1, "")
        assert f"If you trust it: `portable-softmax diff {file} --kernel {name}`\n" in err
        assert not (tmp_path / "mine.ran").exists()
    assert run("diff", file, "--kernel", name)[:2] == (0, "0 changes in 1 case, 0 for the worse\n")
    assert (tmp_path / "mine.ran").exists()
    file.write_text(file.read_text().replace(name, "mine.py:clear; date"))
    assert run("diff", file)[2].endswith(f"diff {file} --kernel 'mine.py:clear; date'`\n"), "one word of a shell"
    reports = json.loads(file.read_text().replace("mine.py:clear; date", name))
    evil = f"__import__('pathlib').Path({str(tmp_path / 'evil')!r}).touch()"  # Triton evaluates the layout of a descriptor
    reports[0]["kernel"]["arguments"]["x_ptr"] = f"tensordesc<fp16[16, 16],{evil}>"
    file.write_text(json.dumps(reports))
    code, out, err = run("diff", file, "--kernel", name)
    assert (code, out, "an argument is a tensor as f16[4096,4096]" in err) == (1, "", True)
    assert not (tmp_path / "evil").exists()


def test_a_kernel_stands_beside_softmaxes_and_not_beside_another(saved, of_kernel, tmp_path, run):
    file, name = of_kernel
    code, _, err = run("diff", saved, "--kernel", name)
    assert (code, "holds reports of the softmax alone; leave out --kernel" in err) == (1, True)
    (report,), softmaxes = json.loads(file.read_text()), json.loads(saved.read_text())
    other = report | {"kernel": report["kernel"] | {"name": "z.py:other"}}
    file.write_text(json.dumps([report, other, *softmaxes]))
    code, _, err = run("diff", file, "--kernel", name)
    assert (code, f"holds reports of {name}, z.py:other, and --kernel names one" in err) == (1, True)
    assert not (tmp_path / "mine.ran").exists()
    file.write_text(json.dumps([*softmaxes, report]))
    code, out, _ = run("diff", file, "--kernel", name, "--save", tmp_path / "again.json")
    assert (code, out) == (0, "0 changes in 9 cases, 0 for the worse\n")
    assert load(tmp_path / "again.json") == load(file)
