"""Saved reports: a change's verdict and exit code, what cannot be compared, kernels that run only if named."""

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


CHANGES = [  # a value of the first report as it was saved, and what `diff` says
    ("launch.num_programs", 3, "| nvidia/h200 | 64 x 781 bfloat16 | num_programs | 3 | 64 | worse |"),
    ("launch.tiling", "tile 7 x 1024", "| tiling | tile 7 x 1024 | tile 1 x 1024, num_warps 8 | worse |"),
    ("numbers.programs_per_multiprocessor", 99, "| programs_per_multiprocessor | 99 | 8 | worse |"),
    ("numbers.programs_per_multiprocessor", 1, "| programs_per_multiprocessor | 1 | 8 | |"),
    ("numbers.registers_per_thread", 3, "| registers_per_thread | 3 | 32 | |"),
    ("numbers.spilled_bytes_per_thread", 8, "| spilled_bytes_per_thread | 8 | 0 | |"),
    ("numbers.stack_frame_bytes", None, "| stack_frame_bytes | - | 0 | |"),
    ("case.dtype", "int3", "one as dtype= | worse |"),
    ("software.triton", "3.0.0", "software: triton 3.0.0 -> "),
]


@pytest.mark.parametrize(("path", "value", "words"), CHANGES)
def test_a_change_for_the_worse_is_3(saved, run, tmp_path, path, value, words):
    reports, (group, name) = json.loads(saved.read_text()), path.split(".")
    reports[0][group][name] = value
    (tmp_path / "altered.json").write_text(json.dumps(reports))
    code, out, _ = run("diff", tmp_path / "altered.json", "--markdown")
    assert (code, words in " ".join(out.split())) == (3 if "worse" in words else 0, True), out


def test_nothing_changed(saved, run, tmp_path):
    same = "0 changes in 4 cases, 0 for the worse\n"
    assert run("diff", saved, "--save", tmp_path / "again.json")[:2] == (0, same)
    assert load(tmp_path / "again.json") == load(saved)


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
