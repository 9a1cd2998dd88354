"""Saved reports: a change's verdict and exit code, what cannot be compared, kernels that run only if named."""

import functools
import json

import pytest

from portable_probe import program
from portable_probe.report import load


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    file = tmp_path_factory.mktemp("saved") / "run.json"
    shapes = "--shapes", "64x781", "512x512", "--dtype", "bf16"
    assert program.main(["plan", "--on", "h200,mi300x", *shapes, "--save", str(file)]) == 0
    return file


@pytest.fixture
def altered(saved, tmp_path):
    """Writes the saved run with one value of its first report changed."""

    def alter(path, value):
        reports = json.loads(saved.read_text())
        *above, last = path.split(".")
        functools.reduce(dict.__getitem__, above, reports[0])[last] = value
        file = tmp_path / "altered.json"
        file.write_text(json.dumps(reports))
        return file

    return alter


CHANGED = {  # what was saved, what `diff` calls it, and whether today's is worse
    ("launch.num_programs", 3): ("num_programs", True),
    ("launch.tiling", "tile 7 x 1024"): ("tiling", True),
    ("numbers.programs_per_multiprocessor", 99): ("programs_per_multiprocessor", True),
    ("numbers.programs_per_multiprocessor", 1): ("programs_per_multiprocessor", False),
    ("numbers.registers_per_thread", 3): ("registers_per_thread", False),
    ("numbers.spilled_bytes_per_thread", 8): ("spilled_bytes_per_thread", False),
    ("case.dtype", "int3"): ("error", True),
}


@pytest.mark.parametrize(("path", "value"), CHANGED)
def test_a_change_for_the_worse_is_3(altered, run, path, value):
    name, worse = CHANGED[path, value]
    code, out, _ = run("diff", altered(path, value), "--markdown")
    (change,) = (line for line in out.splitlines() if f"| {name} " in line)
    assert (code, "| worse |" in change, "| nvidia/h200 |" in change) == (3 if worse else 0, worse, True)


def test_nothing_changed_and_what_an_older_report_lacks_is_no_change(saved, altered, run, tmp_path):
    same = "0 changes in 4 cases, 0 for the worse\n"
    assert run("diff", saved, "--save", tmp_path / "again.json")[:2] == (0, same)
    assert load(tmp_path / "again.json") == load(saved)
    assert run("diff", altered("numbers.stack_frame_bytes", None))[0] == 0
    assert "software: triton 3.0.0 -> " in run("diff", altered("software.triton", "3.0.0"), "--markdown")[1]


def test_what_was_not_compiled_is_4(run, tmp_path):
    file = tmp_path / "saved.json"
    code, _, err = run("plan", "--on", "intel/max-1550,h200", "--shapes", "64x64", "--save", file)
    assert (code, f"wrote {file}" in err) == (4, True)
    assert run("diff", file)[:2] == (4, "0 changes in 2 cases, 0 for the worse, 1 not compiled\n")


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", "[" * 200_000, '[{"schema_version": 1}]', "older"])
def test_a_file_without_reports_is_2(saved, tmp_path, run, text):
    file = tmp_path / "other.json"
    file.write_text(saved.read_text().replace('"schema_version": ', '"schema_version": -') if text == "older" else text)
    code, out, err = run("diff", file)
    assert (code, out, f"ValueError: {file} holds no reports" in err) == (2, "", True), err


def test_a_kernel_that_is_not_named_does_not_run(tmp_path, run, saved):
    file, name, ran = tmp_path / "kernel.json", f"{tmp_path}/mine.py:plain", tmp_path / "ran"
    (tmp_path / "mine.py").write_text(f"open({str(ran)!r}, 'w')\nfrom example_kernels import plain\n")
    assert run("kernel", name, "--on", "nvidia/h200", "--args", "x_ptr=*fp32:16 BLOCK_SIZE=64", "--save", file)[0] == 0
    ran.unlink()
    for named in ([], ["--kernel", f"{tmp_path}/other.py:clear"]):
        code, out, err = run("diff", file, *named)
        assert (code, out, ran.exists()) == (2, "", False)
        assert f"If you trust it: `portable-softmax diff {file} --kernel {name}`\n" in err
    assert run("diff", saved, "--kernel", name)[0] == 2
    assert run("diff", file, "--kernel", name)[1] == "0 changes in 1 case, 0 for the worse\n"
