"""The program `portable-softmax`: what it refuses, answers and compares, and exit codes; the next step of an occupancy."""

import ast
import functools
import json
import os
import re
import runpy
import shlex
import sys
import time
from unittest import mock

import pytest

from portable_probe import cases, program
from portable_probe.differences import compared
from portable_probe.explain import next_step
from portable_probe.report import load
from portable_softmax import Device, KernelResources, occupancy, plan
from portable_softmax.runtime import compile as compiler

NAMES = {
    "KERNELS": "tests/support/launched_kernels.py",
    "EXAMPLES": "tests/support/example_kernels.py",
    "RMS": "examples/rms_norm.py",
    "BLOCKS": "--args BM=16 BN=16 BK=16",
    "BYTES": "a=i8[512,512] b=i8[512,512] c=i32[512,512] M=512 N=512 K=512 sam=512 sak=1 sbk=512 sbn=1 scm=512 scn=1",
    "MATRICES": "a=f16[512,512] b=f16[512,512] c=f16[512,512] M=512 N=512 K=512 sam=512 sak=1 sbk=512 sbn=1 scm=512 scn=1",
    "NARROW": "a=f16[64,64] b=f16[64,16] c=f16[64,16] M=64 N=16 K=64 sam=64 sak=1 sbk=16 sbn=1 scm=16 scn=1",
    "ROWS": "x=bf16[16384,4096] w=bf16[4096] y=bf16[16384,4096] n_rows=16384 n_cols=4096 eps=1e-6",
    "TYPES": "--args x_ptr=*fp32:16 y_ptr=*fp32:16 out_ptr=*fp32:16 n_elements=i32:16",
    "VECTORS": "x=f32[4096] y=f32[4096] z=f32[4096] n=4096",
    "X": "--args x_ptr=*fp32:16",
}


def spelled(line):
    """The words of a line of a table, with short names for what is long."""
    return shlex.split(re.sub(r"\w+", lambda word: NAMES.get(word[0], word[0]), line))


TABLE = """
 | 2 | the following arguments are required: COMMAND
plan --on '' | 2 | no profile named ''; `portable-softmax profiles` lists all, 'VENDOR/*' selects one of each architecture
plan --on interpreter | 2 | the interpreter compiles nothing; --on h200 names a device
plan --on H200 --at-least metal=3 | 2 | 'metal=3' is not N, or BACKEND=N with cuda, hip
plan --on H200 --json --markdown | 2 | --json and --markdown exclude each other
kernel KERNELS:add --on H200 --args VECTORS BLOCK=64 foo=1 | 1 | CompileError: ;; foo was specified but unrecognised
kernel KERNELS:add --on H200 --args VECTORS BLOCK=64 num_warps=four | 2 | num_warps of add should be an integer
plan | 4 | NoDeviceError: nothing there
verify --on H200 | 2 | kernels of nvidia/h200; kernel --on nvidia/h200 compiles them, and verify --on amd/mi300x runs
verify --on amd/mi300x --kernel KERNELS:add | 2 | --kernel requires --case NAME
kernel f.py --on H200 | 2 | ValueError: 'f.py' should be FILE:NAME, and 'f.py' is no Python file
kernel KERNELS --on H200 | 2 | has no @triton.jit function ''; FILE:NAME may name matmul, tuned, pruned, layernorm,
kernel KERNELS:add --on H200 --args n=1 --args n=1 | 2 | --args has n more than once
kernel KERNELS:add --on H200 --args x=bf17[4096] y=f32[4] z=f32[4] n=4 BLOCK=4 | 2 | x=bf17[4096]: an argument is a tensor
kernel KERNELS:tuned --on H200 --config 7 | 2 | has 3 configurations, and 7 is none of them; select one with --config N:
kernel RMS:rms_norm_kernel --on H200 --suggest cols=n_cols block=BLOCK | 2 | requires rows=PARAMETER, or --case NAME
kernel KERNELS:add --suggest rows=n | 2 | --suggest accepts rows=PARAMETER cols=PARAMETER block=PARAMETER
kernel KERNELS:add --on H200 --args n=1 | 2 | 'x', 'y', and 'z'; pass --args 'NAME=VALUE ...': f16[4096,4096] is
kernel EXAMPLES:plain --on H200 X BLOCK_SISE=64 | 2 | BLOCK_SISE is no parameter: did you mean BLOCK_SIZE?; pass --args
diff none.json none.json --jsn | 2 | usage: portable-softmax diff ;; unrecognized arguments: --jsn
kernel KERNELS:matmul --on H200 --args NARROW BM=16 BK=16 --suggest rows=M cols=N block=BN | 1 | grid cannot be computed;
    type --case NAME, a function in the file that returns (grid, arguments, expected), in place of rows=
kernel KERNELS:matmul --on nvidia/t4 --args BYTES BM=64 BN=64 BK=64 | 1 | PassManager::run failed: 'arith.extf' op operand
kernel KERNELS:tuned --on H200 --args MATRICES | 2 | and none was chosen; select one with --config N:
kernel EXAMPLES:by_arguments --on H200 TYPES | 1 | a decorator of add_kernel requires the value of 'n_elements'; pass it
diff none.json none.json | 2 | FileNotFoundError: [Errno 2] No such file or directory: 'none.json'
profiles list h200 | 2 | names of devices follow `profiles show`
--version | 0 | portable-softmax 0.
--help | 0 | usage: portable-softmax ;; plan ;; diff ;; exit codes: 0 success, ;; 4 not checked,
plan --on MI300X --shapes 64x781 --facts | 0 | device amd/mi300x (hip/gfx942, CDNA 3, absent) ;; 304 profile (vendor) [1]
plan --on h200,MI300X --markdown | 0 | | device | launch | regs | ;; | nvidia/h200 | in registers
plan --on H200 --shapes 512x512 --backward --at-least 1 --no-spills | 0 | 512 x 512 float32 backward on
plan --on H200 ascend/910b3 --at-least cuda=64 | 1 | CheckFailed: ;; at least 64 required; limited by
kernel KERNELS:tuned --on H200 --args MATRICES num_stages=16 --config all | 1 | configuration 1 8 warps ;; configuration 2
    ;; 0/SM ;; does not fit: a program needs
kernel EXAMPLES:tuned --on H200 MI300X TYPES --config all | 0 | nvidia/h200 configuration 1 8 warps ;; amd/mi300x configu
kernel RMS:rms_norm_kernel --on MI300X --args ROWS STAGES=1 num_warps=4 --suggest rows=n_rows cols=n_cols block=BLOCK
    --explain | 0 | why num_programs ;; limits ;; expected (not calibrated for this device) ;; BLOCK=4096 (suggested)
kernel EXAMPLES:tuned_once --on H200 intel/arc-a770 TYPES | 4 | 8 warps, 2 stages ;; : TargetError: this Triton's backends (
kernel KERNELS:add --on H200 --args VECTORS BLOCK=8192 num_warps=1 --no-spills | 1 | add on nvidia/h200; Triton ;;
    CheckFailed: spills ;; next step spills registers to memory: use smaller tiles
kernel EXAMPLES:plain --on H200 X BLOCK_SIZE=8192 num_warps=64 | 1 | no program fits: threads per program; use fewer warps
kernel EXAMPLES:add_kernel --on H200 --args BLOCK_SIZE=64 --case wide_case | 1 | a grid of 1 x 67108864 x 1 has
    67,108,864 programs along y, and nvidia/h200 launches at most ;; grid 1 x 67108864 x 1
verify --on amd/rx-7900-xtx --kernel KERNELS:matmul --case matmul_case BLOCKS | 0 | PASS ;; on a CPU emulator
profiles | 0 | profile target architecture ;; nvidia/h200 cuda/90 Hopper
profiles --json | 0 | "name": "ascend/910b3" ;; "memory_bandwidth_gb_per_s": 5300
profiles show MI300X | 0 | multiprocessor_count 304 profile (vendor) ;; https://
"""


def table(text):
    """Returns the cells of each line; an indented line continues the one ahead of it."""
    lines = text.strip("\n").replace("\n    ", " ").splitlines()
    return [tuple(part.strip() for part in f"{line} ".split(" | ", 2)) for line in lines]


@pytest.mark.parametrize(("line", "expected", "words"), table(TABLE), ids=lambda text: text[:90])
def test_what_is_printed(run, nothing_here, line, expected, words):
    """The exit code, and parts of what is printed: a refusal on standard error, beside the report of each case."""
    code, out, err = run(*spelled(line))
    assert code == int(expected), err
    text = " ".join((err if expected in "2" else out + err).split())
    assert [part for part in words.split(" ;; ") if " ".join(part.split()) not in text] == []


def test_a_compiler_that_aborts_does_not_end_or_warns(run, monkeypatch):
    inner = cases.report_of

    def noisy(device, case, then):
        print("x.py:1:1: Error: unknown unit", file=sys.stderr, flush=True)
        os.write(2, b"module {\n")
        return then() or inner(device, case)

    for longest, then, code, printed in (
        (60, lambda: os._exit(1), 1, "CompileError: the compiler ended the process; unknown unit\n"),
        (1, lambda: time.sleep(60), 1, "CompileError: not compiled within 1 s; use smaller tiles; unknown unit\n"),
        (60, lambda: None, 0, "x.py:1:1: Error: unknown unit\nmodule {\n"),
    ):
        monkeypatch.setattr(cases, "LONGEST", longest)
        monkeypatch.setattr(cases, "report_of", functools.partial(noisy, then=then))
        assert run("plan", "--on", "h200", "--shapes", "8x64")[::2] == (code, printed)


def test_what_this_machine_lacks_is_4_and_an_interrupt_is_130(run, monkeypatch):
    with monkeypatch.context() as unwritable:
        unwritable.setenv("TRITON_CACHE_DIR", f"{__file__}/cache")
        for line in ("plan --on H200 --shapes 3x5", "kernel KERNELS:add --on H200 --args VECTORS BLOCK=32"):
            code, _, err = run(*spelled(line))
            assert code == 4
            assert re.search("DeviceError: Triton cannot write its cache: .*set TRITON_CACHE_DIR", err)
    for name, version, words in (("gfx1030", (3, 9), "3.5.1 to 3.8"), ("mi50", (3, 7), "3.8.0 or later")):
        monkeypatch.setattr(compiler, "triton_version", lambda version=version: version)
        code, _, err = run("plan", "--on", name)
        assert (code, f"install Triton {words}\n" in err) == (4, True)
    monkeypatch.setattr(program, "bounded_reports", mock.Mock(side_effect=KeyboardInterrupt))
    assert run("plan", "--on", "h200") == (130, "", "")


def test_the_script_of_a_device_has_the_options_of_plan(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["scripts/probe_device.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path("scripts/probe_device.py", run_name="__main__")
    assert "usage: portable-softmax plan" in capsys.readouterr().out


def test_json_has_what_the_text_has(run):
    words, planned = spelled("plan --on MI300X --shapes 1823x781"), plan(1823, 781, "float32", "amd/mi300x")
    (report,) = json.loads(run(*words, "--json")[1])
    assert report["case"] == {"type": "softmax", "n_rows": 1823, "n_cols": 781, "dtype": "float32"}
    assert report["launch"] == {"tiling": str(planned.tiling), "num_programs": planned.num_programs}
    assert report["numbers"].items() >= {**vars(planned.resources), "expected_us": planned.terms.total}.items()
    assert (report["device"]["here"], report["limited_by"]) == (False, list(planned.occupancy.limited_by))
    assert f"at least, for {2 * 1823 * 781 * 4 / 1e6:.3g} MB" in report["text"]["time"][1]


STEPS = """
amd/mi100 | 4, 66, 16 | 4 programs instead of 3 with at most 64 registers per thread (66 now)
nvidia/h200 | 4, 24, 4112 | already at the hardware limit (warps)
nvidia/h200 | 4, 100, 50000 | 5 programs instead of 4 with at most 96 registers per thread (100 now)
    and at most 45568 bytes of shared memory (50000 now)
intel/max-1550 | 8, None, 0 | unknown: the compiler does not report registers (install `ocloc`); all else allows 8
"""


def test_the_next_step_is_the_least_that_helps():
    for profile, resources, step in table(STEPS):
        assert next_step(KernelResources(*ast.literal_eval(resources)), Device.from_profile(profile)) == step
    for registers in range(33, 256):
        step = next_step(KernelResources(4, registers, 16), Device.from_profile("nvidia/h200"))
        most = int(step.split(" at most ")[1].split()[0])
        kernels = [KernelResources(4, count, 16) for count in (registers, most, most + 1)]
        now, least, more = (occupancy(kernel, "nvidia/h200").programs_per_multiprocessor for kernel in kernels)
        assert least > now == more


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    file = tmp_path_factory.mktemp("saved") / "run.json"
    shapes = "--shapes", "64x781", "512x512", "--dtype", "bf16"
    assert program.main(["plan", "--on", "h200,intel/max-1550", *shapes, "--save", str(file)]) == 4
    return file


NOT_COMPARED = "0 changes in 4 cases, 0 for the worse, 3 not compared"
CHANGES = [  # a value of the first report as it was saved, and what `diff` says
    ("launch.num_programs", 3, "| nvidia/h200 | 64 x 781 bfloat16 | num_programs | 3 | 64 | worse |"),
    ("launch.tiling", "two-pass 7 x 1024", "| tiling | two-pass 7 x 1024 | in registers 1 x 1024, num_warps 8 | worse |"),
    ("numbers.programs_per_multiprocessor", 99, "| programs_per_multiprocessor | 99 | 8 | worse |"),
    ("numbers.programs_per_multiprocessor", 1, "| programs_per_multiprocessor | 1 | 8 | |"),
    ("numbers.stack_frame_bytes", None, "| stack_frame_bytes | - | 0 | |"),
    ("software.triton", "3.0.0", "software: triton 3.0.0 -> "),
    ("launch.num_programs", 64, "0 changes in 4 cases, 0 for the worse, 2 not compared"),
    *(("numbers.programs_per_multiprocessor", value, NOT_COMPARED) for value in ("nan", True, [8], None, ...)),
    *(("launch.num_programs", value, NOT_COMPARED) for value in ("64", ...)),
    ("launch.num_warps", 4, NOT_COMPARED),
]


@pytest.mark.parametrize(("path", "value", "words"), CHANGES)
def test_a_change_for_the_worse_is_3_and_what_is_not_compared_4(saved, tmp_path, path, value, words):
    reports, (group, name) = json.loads(saved.read_text()), path.split(".")
    reports[0][group] |= {name: value}
    if value is ...:
        del reports[0][group][name]
    (tmp_path / "altered.json").write_text(json.dumps(reports))
    differences = compared(load(tmp_path / "altered.json"), load(saved))
    text = differences.as_text("github")
    assert (differences.code, words in " ".join(text.split())) == (3 if "worse |" in words else 4, True), text


def test_two_saved_files_are_compared(saved, run, tmp_path):
    reports = json.loads(saved.read_text())
    reports[0] |= {"error": "PlanError", "message": "none fits"}
    del reports[3]
    (tmp_path / "new.json").write_text(json.dumps(reports))
    code, out, _ = run("diff", saved, tmp_path / "new.json", "--markdown")
    words = " ".join(out.split())
    assert (code, "| error | - | PlanError: none fits | worse |" in words) == (3, True), out
    assert "1 change in 4 cases, 1 for the worse, 2 not compared" in words, "one has no plan, and one no report"
    code, out, _ = run("diff", saved, tmp_path / "new.json", "--json")
    (change,) = json.loads(out)["changes"]
    assert (code, change["device"], change["value"], change["worse"]) == (3, "nvidia/h200", "error", True)
    assert run("diff", saved, saved)[:2] == (4, "0 changes in 4 cases, 0 for the worse, 2 not compared\n")


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", "[" * 200_000, '[{"schema_version": 1}]', "older"])
def test_a_file_without_reports_is_2(saved, tmp_path, run, text):
    file = tmp_path / "other.json"
    file.write_text(saved.read_text().replace('"schema_version": ', '"schema_version": -') if text == "older" else text)
    code, out, err = run("diff", saved, file)
    assert (code, out, f"ValueError: {file} holds no reports" in err) == (2, "", True), err
