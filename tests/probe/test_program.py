"""The program `portable-softmax`: subcommands, short help, usage errors of one line, and answers that come first."""

import csv
import functools
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import portable_softmax
from portable_softmax import NoDeviceError
from portable_softmax.probe import answers, cases, doctor, program
from portable_softmax.probe.verify import Verification

KERNELS = Path(__file__).parents[1] / "support" / "launched_kernels.py"
VECTORS = "x=f32[4096] y=f32[4096] z=f32[4096] n=4096"
MATRICES = "a=f16[512,512] b=f16[512,512] c=f16[512,512] M=512 N=512 K=512 sam=512 sak=1 sbk=512 sbn=1 scm=512 scn=1"


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def ran(*words):
        try:
            code = program.main([str(word) for word in words])
        except SystemExit as stopped:
            code = stopped.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return ran


def test_help_fits_a_screen(run):
    code, out, _ = run("--help")
    assert (code, len(out.splitlines()) <= 24) == (0, True), out
    assert all(name in out for name in program.COMMANDS)
    for name in program.COMMANDS:
        code, out, _ = run(name, "--help")
        assert (code, 5 < len(out.splitlines()) < 60) == (0, True), out


def test_version(run):
    assert run("--version") == (0, f"portable-softmax {portable_softmax.__version__}\n", "")
    command = [sys.executable, "-m", "portable_softmax", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.endswith(
        f"{portable_softmax.__version__}\n"
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "portable-softmax: the following arguments are required: COMMAND; portable-softmax --help tells more"),
        (["plot"], "argument COMMAND: invalid choice: 'plot'"),
        (["plan", "nvidia/h200", "--dtype", "int8"], "argument --dtype: 'int8' should be one of float16, bfloat16"),
        (["plan", "nvidia/h200", "--rows", "-1"], "'-1' is no positive number"),
        (["plan", "nvidia/h200", "--config", "1"], "unrecognized arguments: --config 1"),
        (["kernel", "f.py:k", "--config", "x"], "'x' should be the number of a configuration, from 0, or all"),
        (
            ["kernel", "f.py"],
            "kernel: a kernel is named FILE:NAME, not 'f.py'; portable-softmax kernel --help tells",
        ),
        (["diff", "f.json", "--tolerate", "memory=much"], "'much' of memory should be 0 or more, or any"),
    ],
)
def test_a_usage_error_is_one_line(run, words, complaint):
    code, out, err = run(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err


COMPLAINTS = """
plan --save x.json | plan --explain | plan  | plan amd/mi300x --shapes 4x4 --rows 4 | plan amd/mi300x --out x
plan amd/mi300x --plot p --backward | plan amd/mi300x --plot p --shapes 4x4 | plan amd/mi300x --scale --temperature
plan amd/mi300x --backward --softcap 3 | compare amd/mi300x --mask boolean added | probe --save x | probe --require hip
kernel KERNELS:add | kernel KERNELS | kernel KERNELS:add --on amd/mi300x | kernel KERNELS:tuned --on amd/mi300x --args ALL
kernel KERNELS:add --on amd/mi300x --args n=1 n=2 | kernel KERNELS:add --on amd/mi300x --num-warps 2 --option num_warps=4
kernel KERNELS:add --on amd/mi300x --args n=x | verify nvidia/h200 | verify amd/mi300x --kernel KERNELS:add
verify amd/mi300x --case c | verify amd/mi300x --kernel KERNELS:add --rows 4 | diff kernel.json | diff empty.json
diff kernel.json --kernel other.py:k | diff live.json | diff kernel.json --tolerate plan plan | report empty.json
report kernel.json --tolerate plan plan | profiles show amd/none
"""


@pytest.mark.parametrize(
    "words", [words.strip("\n ") for line in COMPLAINTS.strip().splitlines() for words in line.split(" | ")]
)
def test_options_in_an_error_are_those_of_the_command(run, monkeypatch, tmp_path, words):
    """Each option that an error names is one of the command that was typed, or of the whole command that the error gives."""

    def nothing(index):
        raise NoDeviceError("nothing there")

    reports = [
        report | {"device": report["device"] | {"here": here, "index": 0}}
        for here, report in zip((False, True), json.loads(kept_reports(run, tmp_path)), strict=True)
    ]
    monkeypatch.chdir(tmp_path)
    for name, report in zip(("kernel.json", "live.json"), reports, strict=True):
        Path(name).write_text(json.dumps([report]))
    Path("empty.json").write_text("[]")
    for room in (answers, cases):
        monkeypatch.setattr(room, "current_device", nothing)
    asked = [word.replace("KERNELS", str(KERNELS)) for word in words.split()] + ([""] if words == "plan" else [])
    asked = [*asked[:-1], MATRICES] if asked[-1] == "ALL" else asked
    code, _, err = run(*asked)
    assert (code > 0, bool(err)) == (True, True)
    for command, text in told_commands(asked[0], err):
        unknown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) - flags_of(run, command)
        assert not unknown, f"{command} has no {', '.join(unknown)}: {err}"


def kept_reports(run, tmp_path):
    """Two reports of a kernel, as --save keeps them."""
    file = tmp_path / "both.json"
    both = ["nvidia/h200", "amd/mi300x"]
    assert run("kernel", f"{KERNELS}:add", "--on", *both, "--args", f"{VECTORS} BLOCK=64", "--save", file)[0] == 0
    return file.read_text()


def told_commands(command, text):
    """(command, text) of each command that an error gives whole, and of the one that was typed with all other words."""
    whole = re.findall(r"`(portable-softmax [^`]*)`", text)
    yield from ((each.split()[1], each) for each in whole)
    yield command, re.sub(r"`portable-softmax [^`]*`", "", text)


@functools.cache
def flags_of(run, command):
    """The options that the help of a command names at the beginning of a line."""
    return {flag for line in run(command, "--help")[1].splitlines() for flag in re.findall(r"^  (?:-\w, )?(--[a-z-]+)", line)}


def test_the_answer_comes_first(run):
    code, out, _ = run("plan", "nvidia/h200", "--rows", "1823", "--cols", "781")
    titles = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert (code, titles) == (0, ["softmax", "plan", "occupancy", "uses", "time", "why", "next"])
    assert max(map(len, out.splitlines())) <= 120
    assert "of 64 warps (" in out
    code, out, _ = run("plan", "nvidia/h200", "--facts")
    assert out.index("next step") < out.index("multiprocessor_count")


def test_devices_and_cases_are_a_table_that_a_screen_holds(run):
    devices = ["nvidia/h200", "amd/mi300x", "amd/rx-7900-xtx", "ascend/910b3"]
    shapes = ["--shapes", "64x781", "128x151936", "--dtype", "float32", "bf16"]
    code, out, _ = run("compare", *devices, *shapes, "--facts")
    lines = out.splitlines()
    assert (code, max(map(len, lines)) < 140) == (0, True), out
    assert len([line for line in lines if line.startswith("multiprocessor_count")]) == 1
    assert len([line for line in lines if line.startswith(tuple(devices))]) == 16
    assert "softmax, Triton " in out
    code, out, _ = run("compare", *devices, *shapes, "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (len(rows), rows[0]["device"], int(rows[0]["registers_per_thread"]) > 16) == (16, "nvidia/h200", True)
    code, out, _ = run("compare", *devices[:2], "--brief", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert (code, [each["device"]["name"] for each in found], found[0]["facts"]) == (0, devices[:2], {})
    code, out, _ = run("compare", *devices[:2], "--markdown")
    assert "softmax 4096 x 4096 float32, Triton " in out


def test_a_kernel(run):
    code, out, _ = run("kernel", f"{KERNELS}:matmul", "--on", "nvidia/h200", "--args", f"{MATRICES} BM=64 BN=64 BK=64")
    assert code == 0
    assert "num_warps=4 (default)  num_stages=3 (default)  num_ctas=1 (default)" in out
    assert "sak=1 (specialised, by the argument)" in out
    assert "4 programs per SM" in out
    assert "M N K sam sbk scm: i32, multiple of 16" in out


def test_a_parameter_that_is_called_as_an_option_is(run, tmp_path):
    """In Triton's tutorial 02, too: the number is the kernel's, and the backend keeps its own."""
    file = tmp_path / "theirs.py"
    body = "    for at in tl.range(0, n, num_stages=num_stages):\n        tl.store(x + at, 0.0)\n"
    head = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(x, n, num_stages: tl.constexpr):\n"
    file.write_text(head + body)
    code, out, _ = run("kernel", f"{file}:k", "--on", "nvidia/h200", "--num-stages", 4, "--args", "x=f32[64] n=64")
    assert code == 0
    assert "num_stages=3 (default)" in out
    assert "num_stages is a parameter of the kernel too, and its own; the backend's is this one" in out
    assert "constants num_stages=4 (given)" in out


def test_every_configuration_on_every_device(run):
    devices = "nvidia/h200", "amd/mi300x"
    code, out, _ = run("kernel", f"{KERNELS}:tuned", "--on", *devices, "--args", MATRICES, "--config", "all")
    lines = [line for line in out.splitlines() if line.startswith(devices)]
    rows = [line for line in lines if "CompileError:" not in line]
    assert code == 0, "each vendor refuses the other's options, and takes its own"
    assert (len(rows), len(lines)) == (6, 8)
    assert [line.split()[0] for line in rows] == ["nvidia/h200"] * 3 + ["amd/mi300x"] * 3
    assert {"1: maxnreg 64", "2: waves_per_eu 4 matrix_instr_nonkdim 16"} <= {line[13:].partition("  ")[0] for line in lines}
    assert "CompileError" not in "".join(rows)
    assert out.count("not compiled") == 2
    one = ["--on", "nvidia/h200", "--args", MATRICES, "--config", 1, "--option", "maxnreg=96", "--json"]
    found = json.loads(run("kernel", f"{KERNELS}:tuned", *one)[1])["kernel"]
    assert found["launch"]["options"]["maxnreg"] == {"value": 96, "from": "given"}
    assert found["launch"]["constants"]["BM"] == {"value": 64, "from": "configuration"}
    code, out, _ = run("kernel", f"{KERNELS}:tuned", *one[:4], "--config", "all", "--option", "num_stages=16")
    assert (code, "0/SM" in out, "does not fit: a program needs " in out) == (1, True, True)
    code, _, err = run("kernel", f"{KERNELS}:add", "--on", "nvidia/h200", "--args", VECTORS, "--config", "all")
    assert (code, "is not under @triton.autotune" in err) == (1, True)


def test_what_is_wrong_on_several_devices_is_said_once(run):
    code, out, _ = run("kernel", f"{KERNELS}:add", "--on", "nvidia/h200", "amd/mi300x")
    assert code == 1
    assert out.count(" needs ") == 1
    assert "nvidia/h200; amd/mi300x: TypeError: add needs " in out


def test_a_kernel_that_spills_says_so_first(run):
    code, out, _ = run("kernel", f"{KERNELS}:add", "--on", "nvidia/h200", "--args", f"{VECTORS} BLOCK=16384", "--num-warps", 1)
    assert code == 0
    assert out.splitlines()[1].startswith("SPILLS    ")
    assert "next step spills " in out
    assert " instead of " not in out


def test_exit_codes_and_errors_in_json(run, tmp_path):
    for words, code, error in (
        (["plan", "nvidia/h2000"], 2, "ProfileError"),
        (["kernel", "nowhere.py:k", "--on", "nvidia/h200"], 2, "UnknownKernelError"),
        (["diff", tmp_path / "none.json"], 2, "FileNotFoundError"),
        (["kernel", f"{KERNELS}:add", "--on", "nvidia/h200", "--args", "n=1"], 1, "TypeError"),
    ):
        found, out, err = run(*words, "--json")
        assert (found, err.startswith(error)) == (code, True), err
        answer = json.loads(out)
        assert (answer[0] if isinstance(answer, list) else answer)["error"] == error
    found, _, err = run("kernel", f"{KERNELS}:add", "--on", "ascend/910b3", "--args", VECTORS)
    assert (found, "TargetError" in err) == (4, True)


def test_a_wrong_result_and_a_regression_are_errors_in_json(run, tmp_path, monkeypatch):
    file = tmp_path / "run.json"
    assert run("plan", "nvidia/h200", "--save", file)[0] == 0
    reports = json.loads(file.read_text())
    reports[0]["plan"]["occupancy"]["programs_per_multiprocessor"] += 1
    file.write_text(json.dumps(reports))
    code, out, _ = run("diff", file, "--json")
    assert (code, json.loads(out)["error"], json.loads(out)["regressed"]) == (3, "Regression", True)
    monkeypatch.setattr("portable_softmax.probe.trial.compared", lambda *_: Verification(0.5, 7.0, 0))
    code, out, err = run("verify", "amd/mi300x", "--rows", 3, "--cols", 200, "--json")
    assert (code, json.loads(out)["error"], "WrongResult" in err) == (1, "WrongResult", True)


def test_what_the_compiler_prints_is_no_part_of_json(run):
    """Triton prints ptxas's complaint: so few registers cannot be."""
    words = ["--on", "nvidia/h200", "--args", f"{MATRICES} BM=64 BN=64 BK=64", "--option", "maxnreg=32", "--json"]
    code, out, err = run("kernel", f"{KERNELS}:matmul", *words)
    assert (code, json.loads(out)["error"]) == (1, "CompileError")
    assert "ptxas" in err


def test_a_required_device_that_is_missing_is_an_error_in_json(run, monkeypatch):
    def nothing(index):
        raise NoDeviceError("nothing there")

    monkeypatch.setattr(answers, "current_device", nothing)
    code, out, _ = run("probe", "--require", "cuda", "--json")
    assert (code, json.loads(out)["error"]) == (1, "DeviceError")
    assert run("probe")[0] == 0


def test_a_difference(run, tmp_path):
    file = tmp_path / "run.json"
    assert run("compare", "nvidia/h200", "--save", file)[0] == 0
    assert run("diff", file) == (0, "0 changes in 1 case, 0 of them regressions\n", "")


def test_verify_without_torch_says_what_is_missing(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "portable_softmax.probe.virtual", None)
    code, _, err = run("verify", "amd/mi300x")
    assert (code, "DeviceError: to verify is to compare tensors, which needs torch (" in err) == (1, True)


def test_profiles(run):
    code, out, _ = run("profiles")
    assert (code, out.split()[:3]) == (0, ["profile", "target", "architecture"])
    assert run("profiles", "list")[1] == out
    code, out, _ = run("profiles", "show", "amd/mi300x")
    assert (code, "multiprocessor_count" in out, "https://" in out) == (0, True, True)
    assert run("profiles", "show", "amd/none")[0] == 2


def test_the_matrix(run):
    assert "include" in json.loads(run("matrix", "--offline")[1])


def test_the_doctor(run, monkeypatch):
    def nothing():
        raise NoDeviceError("nothing there")

    monkeypatch.setattr(doctor, "current_device", nothing)
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None if name == "matplotlib" else True)
    code, out, _ = run("doctor")
    assert code == 0
    assert "optional   matplotlib, for --plot: pip install matplotlib\n" in out
    assert "device     none: nothing there" in out
    monkeypatch.setattr(doctor, "broken_installation", lambda: "two Tritons")
    assert run("doctor")[0] == 1
    monkeypatch.setattr(doctor, "broken_installation", lambda: None)
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None if name in ("torch", "triton") else True)
    code, out, _ = run("doctor")
    assert (code, "device     not looked for, without torch and triton\n" in out, "compiles" in out) == (0, True, False)


def test_a_kernel_without_a_device_is_told_where_to_name_one(run, monkeypatch):
    def nothing(index):
        raise NoDeviceError("nothing there")

    monkeypatch.setattr(answers, "current_device", nothing)
    for words, told in (
        (("kernel", f"{KERNELS}:add"), "a kernel needs a device: --on NAME. "),
        (("plan", "--save", "x"), "--save needs a device: its NAME. "),
        (("probe", "--save", "x"), "--save needs a device: `portable-softmax plan NAME` plans for one. "),
    ):
        code, _, err = run(*words)
        assert (code, told in err) == (1, True), err


def test_an_interpreter_that_dies_is_told(run, monkeypatch):
    def nothing(index):
        raise NoDeviceError("nothing there")

    monkeypatch.setattr(answers, "current_device", nothing)
    monkeypatch.setattr(answers.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=-11))
    code, _, err = run("verify", "--rows", 4)
    assert (code, "the interpreter died of signal 11: " in err) == (1, True)
