"""The program `portable-softmax`: what it refuses, in a line; answers that come first; exit codes, in text and in JSON."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import portable_softmax
from portable_probe import answers, program
from portable_probe.report_types import SCHEMA_VERSION, Verified
from portable_softmax import DeviceError, plan

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
SCRIPT = ROOT / "scripts" / "probe_device.py"
VECTORS = "x=f32[4096] y=f32[4096] z=f32[4096] n=4096"
MATRICES = "a=f16[512,512] b=f16[512,512] c=f16[512,512] M=512 N=512 K=512 sam=512 sak=1 sbk=512 sbn=1 scm=512 scn=1"
NAMES = {"KERNELS": SUPPORT / "launched_kernels.py", "DECORATED": SUPPORT / "decorated_kernels.py", "H200": "nvidia/h200"}
NAMES |= {"EXAMPLES": SUPPORT / "example_kernels.py", "BLOCKS": "--args BLOCK_M=16 BLOCK_N=16 BLOCK_K=16 GROUP_M=1"}
NAMES |= {"MI300X": "amd/mi300x", "MATRICES": MATRICES, "VECTORS": VECTORS}
NAMES["RMS"] = ROOT / "examples" / "rms_norm.py"
NAMES["ROWS"] = "x=bf16[16384,4096] w=bf16[4096] y=bf16[16384,4096] n_rows=16384 n_cols=4096 eps=1e-6"
TYPES = "--args", "x_ptr=*fp32:16", "y_ptr=*fp32:16", "out_ptr=*fp32:16", "n_elements=i32:16"
NAMES["TYPES"] = " ".join(TYPES)
WRONG = Verified(max_error=0.5, worst=7.0, overwritten=0, right=False)


def spelled(line):
    """The words of a line of a table, with short names for what is long."""
    for name, value in NAMES.items():
        line = re.sub(rf"\b{name}\b", str(value), line)
    return [word.strip("'") for word in line.split()]


COMPLAINTS = """
 | 2 | portable-softmax: the following arguments are required: COMMAND
textbook | 2 | argument COMMAND: invalid choice: 'textbook'
plan --on | 2 | argument --on: expected at least one argument
plan --on '' | 2 | --on: it is empty; `portable-softmax profiles` lists the products
plan --on H200 --dtype int8 | 2 | argument --dtype: 'int8' should be one of float16, bfloat16
plan --on H200 --rows 0 | 2 | argument --rows: '0' is no positive number
plan --on H200 --shapes 44 | 2 | argument --shapes: '44' should be ROWSxCOLS
plan --on H200 --shapes 4x4 --rows 4 | 2 | --shapes has no use for --rows
plan --on H200 --out x | 2 | --out says where --dump writes, and there is no --dump
plan --on H200 --config 1 | 2 | unrecognized arguments: --config 1
kernel f.py:k --suggest rows=n | 2 | --suggest of a kernel that goes over rows names three of its parameters: rows=N cols=M
kernel f.py:k --suggest --config 1 | 2 | --suggest has no use for --config
plan --on H200 --scale --temperature | 2 | plan either --scale or --temperature
plan --on H200 --mask boolean added | 2 | --mask boolean added are two masks where a kernel takes one
plan --on H200 --mask sideways | 2 | invalid choice: 'sideways'
plan --on H200 --softcap nan | 2 | argument --softcap: 'nan' should be a number above 0
plan --on H200 --backward --softcap 3 | 2 | --backward of a cap is a launch without it
plan --on nvidia/h2000 | 2 | ProfileError: no profile named 'nvidia/h2000'; did you mean
plan --on H200 --require hip | 1 | DeviceError: a hip device was required; this is cuda
plan --save x.json | 1 | DeviceError: --save needs a device: --on NAME. No accel
plan --dump all | 1 | --dump needs a device: --on NAME. No accelerator: nothing there
plan --explain | 1 | --explain needs a device: --on NAME. No accelerator: nothing there
plan --require hip | 1 | DeviceError: a hip device was required. No accelerator: nothing there
verify --on H200 | 2 | there is a virtual one for hip alone, such as amd/mi300x
verify --on amd/mi300x amd/mi210 | 2 | there is a virtual one for hip alone, such as amd/mi300x
verify --on amd/mi300x --kernel KERNELS:add | 2 | a kernel is verified by --case NAME
verify --on amd/mi300x --kernel f.py:k --rows 4 --mask causal | 2 | --kernel has no use for --mask, --rows, which are
verify --on amd/mi300x --num-warps 8 --case c | 2 | --case, --option are of a kernel of yours; name it: --kernel FILE
kernel EXAMPLES:add_kernel --on H200 --case nothing | 1 | has no function 'nothing'
kernel EXAMPLES:add_kernel --on H200 --case incomplete_case | 1 | should return (grid, arguments, expected):
kernel EXAMPLES:add_kernel --on H200 --case swapped_case | 1 | (grid, arguments, expected): a tuple, a dict and a dict, not
kernel f.py --on H200 | 2 | argument FILE:NAME: a kernel is named FILE:NAME, not 'f.py'
kernel f.py:k --config x | 2 | 'x' should be the number of a configuration, from 0, or all
kernel f.py:k --rows 4 | 2 | unrecognized arguments: --rows 4
kernel f.py:k --args n=1 n=2 | 2 | argument --args: n stands more than once; leave out all but one
kernel f.py:k --args n=i32 --args n=4 | 2 | argument --args: n stands more than once
kernel f.py:k --num-warps 2 --option num_warps=4 | 2 | argument --option: num_warps stands more than once
kernel nowhere.py:k --on H200 | 2 | UnknownKernelError:
kernel KERNELS:add | 1 | DeviceError: a kernel needs a device: --on NAME. No accelerator
kernel KERNELS:add --on H200 --args n=1 | 1 | TypeError: add needs x, y, z too, such as --args
kernel KERNELS:add --on H200 --args n=x | 1 | n=x: an argument is a tensor as f16[4096,4096], a value as 4096
kernel KERNELS:add --on H200 --args x=*fp32:7 | 1 | x=*fp32:7: an argument is a tensor as f16[4096,4096], a value as 4096
kernel KERNELS:add --on H200 --args n=i33 | 1 | types of tensors are fp16, bf16, fp32
kernel KERNELS:add --on H200 --args x=fp32* | 1 | x=fp32*: an argument is a tensor
kernel KERNELS:add --on H200 --args x=f99[4] | 1 | x=f99[4]: an argument is a tensor
kernel KERNELS:add --on intel/arc-a770 --args n=1 | 4 | TargetError: this Triton's backends (
kernel KERNELS:tuned --on H200 --args MATRICES | 1 | and none was chosen; --config N takes one:
kernel DECORATED:tuned --on H200 --config 2 TYPES | 1 | and 2 is none of them
kernel DECORATED:by_heuristic --on H200 --config 0 TYPES | 1 | configuration 0 was chosen, and the kernel is not under
kernel DECORATED:by_arguments --on H200 TYPES | 1 | the heuristic of BLOCK_SIZE needs 'n_elements'; give its value:
kernel KERNELS:add --on H200 --config all | 1 | is not under @triton.autotune
diff f.json --rows 4 | 2 | unrecognized arguments: --rows 4
diff none.json | 2 | FileNotFoundError:
report none | 2 | there is no none; a run is a file of reports
profiles show amd/none | 2 | ProfileError: no profile named 'amd/none'
tune --refit none.csv --on h200 | 2 | FileNotFoundError: [Errno 2] No such file or directory: 'none.csv'
tune --refit none.csv --on ascend/910b3 | 2 | ProfileError: ascend/910b3 gives no `cost` to begin with
tune --refit none.csv | 2 | --refit and --on go together
"""
COMPLAINTS = COMPLAINTS.strip("\n").replace("\n    ", " ")
REFUSED = [tuple(part.strip() for part in line.split("|", 2)) for line in COMPLAINTS.splitlines()]


@pytest.mark.parametrize(("line", "expected", "complaint"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_what_is_refused(run, nothing_here, tmp_path, monkeypatch, line, expected, complaint):
    """With an exit code, and in words whose options are those of the command, or of a command that they give whole."""
    monkeypatch.chdir(tmp_path)
    words = spelled(line)
    code, out, err = run(*words)
    assert (code, out) == (int(expected), "")
    assert complaint in err
    assert expected != "2" or err.count("\n") == 1
    commands = re.findall(r"`portable-softmax ([^`]*)`", err)
    typed = [re.sub(r"`portable-softmax [^`]*`|unrecognized arguments: .*?;", "", err)] if words else []
    for command, text in [*((each.split()[0], each) for each in commands), *((words[0], each) for each in typed)]:
        flags = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", run(command, "--help")[1], re.MULTILINE))
        unknown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) - flags
        assert not unknown or command not in program.COMMANDS, f"{command} has no {', '.join(unknown)}: {err}"
    if expected != "2":
        answer = json.loads(run(*words, "--json")[1])
        assert (answer[0] if isinstance(answer, list) else answer)["error"] in err


ANSWERS = """
 --help | 0 | usage: portable-softmax ;; plan ;; report ;; Exit codes: 0 answered;
plan --on MI300X --rows 1823 --cols 781 --dtype bf16 | 0 |
    softmax 1823 x 781 bfloat16 on amd/mi300x; Triton ;; programs per CU, 32 of 32 warps (100%), limited by warps
plan --on MI300X --cols 781 --facts | 0 |
    device amd/mi300x (hip/gfx942, CDNA 3, not here) ;; multiprocessor_count - 304 304 profile (vendor)
plan --on H200 MI300X --markdown | 0 | | device | launch | regs | ;; | nvidia/h200 | tile
plan --on MI300X H200 ascend/910b3 --dtype float32 f16 --facts | 0 | warp_size 64 32 - ;; ascend/910b3 4096x4096 float16
plan --on intel/arc-b580 | 4 |
plan --on intel/arc-b580 MI300X | 4 | amd/mi300x tile
kernel KERNELS:matmul --on H200 --args MATRICES BM=64 BN=64 BK=64 | 0 |
    num_warps=4 (default) num_stages=3 (default) num_ctas=1 (default) ;; sak=1 (specialised, by the argument) ;;
    4 programs per SM ;; M N K sam sbk scm: i32, multiple of 16
kernel DECORATED:tuned --on H200 --config 0 TYPES | 0 | num_warps 4
kernel DECORATED:tuned --on H200 --config 1 --num-warps 2 TYPES | 0 | num_warps 2
kernel DECORATED:tuned_once --on H200 TYPES | 0 | num_warps 8
kernel DECORATED:by_heuristic --on H200 TYPES | 0 | num_warps 4
kernel DECORATED:by_arguments --on H200 --args BLOCK_SIZE=256 TYPES | 0 | num_warps 4
kernel DECORATED:logged --on H200 TYPES | 0 | num_warps 8
kernel KERNELS:tuned --on H200 --args MATRICES --config all --option num_stages=16 | 1 | 0/SM ;; does not fit: a program needs
kernel DECORATED:plain --on MI300X --args x_ptr=*fp32:16 BLOCK_SIZE=1024 --suggest | 0 | 16 warps, 4 stages
kernel RMS:rms_norm_kernel --on MI300X --args ROWS --suggest rows=n_rows cols=n_cols block=BLOCK | 0 | why num_programs ;;
    expected ;; BLOCK=4096 (given) ;; programs on the device: num_programs where ;; a row moves 16,384 bytes of memory
kernel KERNELS:add --on H200 MI300X | 1 | nvidia/h200; amd/mi300x: TypeError: add needs
kernel DECORATED:plain --on ascend/910b3 --args x_ptr=*fp32:16 BLOCK_SIZE=65536 | 1 |
    0 programs per vector core ;; bytes of Unified Buffer ;; the largest BLOCK_SIZE that certainly
kernel DECORATED:plain --on ascend/910b3 --args x_ptr=*fp32:16 BLOCK_SIZE=1024 | 0 | 40 programs on the device
kernel DECORATED:tuned_once --on H200 intel/arc-a770 TYPES | 4 | 8 warps, 2 stages ;; : TargetError: this Triton's backends (
kernel KERNELS:add --on H200 --args VECTORS BLOCK=16384 --num-warps 1 | 0 |
    add on nvidia/h200; Triton ;; SPILLS ;; next step spills
kernel DECORATED:plain --on H200 --args x_ptr=*fp32:16 BLOCK_SIZE=8192 --num-warps 64 | 1 |
    no program fits: threads per program bind; with 32 warps instead of 64, if a thread needs no more then, 2 would
kernel EXAMPLES:add_kernel --on H200 --args BLOCK_SIZE=64 --case wide_case | 1 | REFUSED a grid of 1 x 67108864 x 1 has
    67,108,864 programs along y, and nvidia/h200 launches at most ;; grid 1 x 67108864 x 1
kernel EXAMPLES:add_kernel --on MI300X --args BLOCK_SIZE=64 --case wide_case | 1 | has 17,179,869,184 threads, and amd/mi300x
verify --kernel EXAMPLES:add_kernel --on MI300X --args BLOCK_SIZE=64 --case wide_case | 1 | has 17,179,869,184 threads, and
verify --on MI300X --kernel EXAMPLES:matmul_kernel --case matmul_case BLOCKS | 0 | PASS ;; on a CPU emulator:
verify --on amd/rx-7900-xtx --kernel EXAMPLES:matmul_kernel --case matmul_case BLOCKS | 0 | PASS ;; on a CPU emulator:
verify --on amd/rx-6900-xt --kernel EXAMPLES:matmul_kernel --case matmul_case BLOCKS | 0 | PASS ;; on a CPU emulator:
verify --on MI300X --rows 3 --cols 200 --facts | 0 | verify PASS: max error ;; gfx942 code on a CPU emulator: 3 rows, ;; warp
profiles | 0 | profile target architecture ;; nvidia/h200 cuda/90 Hopper
profiles list | 0 | nvidia/h200 cuda/90 Hopper
profiles --json | 0 | "ascend/910b3"
profiles show MI300X | 0 | multiprocessor_count 304 vendor ;; https://
tune --help | 0 | usage: portable-softmax tune [-h]
profiles show MI300X --json | 0 | "threads": 4294967295
"""
ANSWERED = [
    tuple(part.strip() for part in f"{line} ".split(" | ", 2))
    for line in ANSWERS.strip("\n").replace("\n    ", " ").splitlines()
]


@pytest.mark.parametrize(("line", "expected", "words"), ANSWERED, ids=[line for line, _, _ in ANSWERED])
def test_what_is_answered(run, line, expected, words):
    code, out, err = run(*spelled(line))
    assert code == int(expected), err
    said = " ".join(out.split())
    assert [each for each in words.split(" ;; ") if " ".join(each.split()) not in said] == []
    if code == 0 and line.startswith(("plan", "kernel")):
        assert max(map(len, out.splitlines())) < 170, "a screen holds it"


def test_help_fits_a_screen_and_the_script_has_that_of_plan(run):
    out = run("--help")[1]
    assert len(out.splitlines()) <= 24, out
    for name in program.COMMANDS:
        code, told, _ = run(name, "--help")
        assert (code, 5 < len(told.splitlines()) < 65, name in out) == (0, True, True), told
    ran = subprocess.run([sys.executable, str(SCRIPT), "--help"], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == run("plan", "--help")[1].split()
    told = f"portable-softmax {portable_softmax.__version__}\n"
    assert run("--version") == (0, told, "")
    command = [sys.executable, "-m", "portable_probe", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == told


def test_the_answer_comes_first_and_json_has_the_same(run):
    softmax = "--on", "amd/mi300x", "--rows", "1823", "--cols", "781"
    out = run("plan", *softmax, "--explain")[1]
    titles = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert titles == ["softmax", "plan", "occupancy", "uses", "time", "why", "limits", "next"]
    found = plan(1823, 781, "float32", "amd/mi300x")
    for words in f"plan {found.tiling}, num_programs {found.num_programs} ", f"uses {found.resources}":
        assert words in " ".join(out.split())
    assert run("plan", *softmax, "--facts")[1].startswith(run("plan", *softmax)[1])
    report = json.loads(run("plan", *softmax, "--json")[1])
    assert (report["schema_version"], report["device"]["here"]) == (SCHEMA_VERSION, False)
    count = report["facts"]["multiprocessor_count"]
    assert (count["profile"], count["used"], count["from"], count["profile_source"]["verified"]) == (
        304,
        304,
        "profile",
        "vendor",
    )
    assert report["problem"] == {"n_rows": 1823, "n_cols": 781, "dtype": "float32"}
    assert report["plan"]["tiling"] == vars(found.tiling)
    assert report["plan"]["resources"] == vars(found.resources)
    assert report["plan"]["occupancy"]["limited_by"] == list(found.occupancy.limited_by)


def test_devices_and_cases_are_rows(run):
    devices, shapes = ("nvidia/h200", "amd/mi300x"), ["--shapes", "64x781", "128x151936", "--dtype", "float32", "bf16"]
    found = json.loads(run("plan", "--on", *devices, *shapes, "--json")[1])
    assert [each["device"]["name"] for each in found] == [devices[0]] * 4 + [devices[1]] * 4
    tuned = f"{NAMES['KERNELS']}:tuned", "--args", MATRICES
    code, out, _ = run("kernel", *tuned, "--on", *devices, "--config", "all")
    lines = [line for line in out.splitlines() if line.startswith(devices)]
    rows = [line.split()[0] for line in lines if "CompileError:" not in line]
    assert (code, len(lines), rows) == (0, 8, [devices[0]] * 3 + [devices[1]] * 3), "each refuses the other's options"
    assert {"1: maxnreg 64", "2: waves_per_eu 4 matrix_instr_nonkdim 16"} <= {line[13:].partition("  ")[0] for line in lines}
    out = run("kernel", *tuned, "--on", "h200", "--config", 1, "--option", "maxnreg=96", "--json")[1]
    launch = json.loads(out)["kernel"]["launch"]
    assert launch["options"]["maxnreg"] == {"value": 96, "from": "given"}
    assert launch["constants"]["BM"] == {"value": 64, "from": "configuration"}


@pytest.mark.parametrize(
    ("text", "complaint", "expected"),
    [
        ("def broken(:\n", "cannot be imported: SyntaxError", 1),
        ("raise SystemExit(3)\n", "cannot be imported: SystemExit: 3", 1),
        ("x = 1\n", "has no @triton.jit function 'k'; it has none", 2),
    ],
)
def test_a_file_that_has_no_kernel_is_told_once(run, tmp_path, text, complaint, expected):
    (tmp_path / "theirs.py").write_text(text)
    code, out, err = run("kernel", f"{tmp_path}/theirs.py:k", "--on", "nvidia/h200", "amd/mi300x", "--json")
    assert (code, err.count(complaint), complaint in json.loads(out)["message"]) == (expected, 1, True)


def test_each_device_dumps_into_a_folder_of_its_own(tmp_path, run):
    names = "nvidia/h200", "nvidia/a100-80gb-sxm"
    once = f"{NAMES['DECORATED']}:tuned_once", "--on", *names, *TYPES
    code, out, _ = run("kernel", *once, "--dump", "ptx", "--out", tmp_path, "--json")
    targets = [(tmp_path / name / "add_kernel.ptx").read_text() for name in names]
    assert (code, ".target sm_90a" in targets[0], ".target sm_80" in targets[1]) == (0, True, True)
    assert all(Path(path).is_file() for report in json.loads(out) for path in report["dump"])
    shapes = ["--shapes", "8x64", "8x4096", "--dtype", "float16"]
    assert run("plan", "--on", names[0], *shapes, "--dump", "ptx", "--out", tmp_path / "two")[0] == 0
    assert run("plan", "--on", *names, "--cols", 64, "--dump", "ptx", "--out", tmp_path / "one")[0] == 0
    found = {str(path.parent.relative_to(tmp_path)) for path in tmp_path.glob("[ot]*/**/*.ptx")}
    assert found == {"two/8-x-64-float16", "two/8-x-4096-float16", *(f"one/{name}" for name in names)}
    assert run("plan", "--on", names[0], "--dump", "sass", "--out", tmp_path)[0] == 2


SCALED = """
import triton
import triton.language as tl

@triton.jit
def scaled(x_ptr, n, FACTOR: tl.constexpr, num_stages: tl.constexpr = 2, BLOCK: tl.constexpr = 128):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    if FACTOR is None:
        x = x / 3
    elif FACTOR is True:
        x = x + 1
    elif FACTOR == "text":
        x = tl.exp(x)
    else:
        x = x * FACTOR
    tl.store(x_ptr + at, x, mask=at < n)
"""


@pytest.mark.parametrize(
    ("words", "value", "instruction"),
    [
        ("FACTOR=1e-6", 1e-6, "dense<9.99999997E-7> : tensor<128xf32>"),
        ("FACTOR=-.25", -0.25, "dense<-2.500000e-01>"),
        ("FACTOR=-3 BLOCK=256", -3, "dense<-3.000000e+00> : tensor<256xf32>"),
        ("FACTOR=None", None, "arith.divf"),
        ("FACTOR=True", True, "arith.addf"),
        ("FACTOR=text", "text", "math.exp"),
    ],
)
def test_constexprs_are_what_python_makes_of_them(tmp_path, run, words, value, instruction):
    """The name of an option is the kernel's own number, as in Triton's tutorial 02, and the backend keeps its own."""
    (tmp_path / "theirs.py").write_text(SCALED)
    asked = "kernel", f"{tmp_path}/theirs.py:scaled", "--on", "nvidia/h200", "--args", "x_ptr=*fp32:16 n=i32", words
    more = "--num-stages", 4, "--dump", "ttir", "--out", tmp_path, "--save", tmp_path / "saved"
    code, out, err = run(*asked, *more, "--json")
    assert code == 0, err
    launch = json.loads(out)["kernel"]["launch"]
    assert launch["constants"]["num_stages"] == {"value": 4, "from": "given"}
    assert launch["options"]["num_stages"] == {"value": 3, "from": "default"}
    assert repr(launch["constants"]["FACTOR"]) == repr({"value": value, "from": "given"})
    assert instruction in (tmp_path / "scaled.ttir").read_text()
    assert run("diff", tmp_path / "saved", "--kernel", asked[1])[1] == "0 changes in 1 case, 0 for the worse\n"


def test_no_accelerator_is_an_answer(run, nothing_here):
    code, out, _ = run("plan")
    assert (code, "No accelerator: nothing there\nInstalled: python " in out) == (0, True)
    code, out, _ = run("plan", "--json")
    assert (code, json.loads(out)["device"], json.loads(out)["message"]) == (0, None, "nothing there")


def test_something_broken_is_1_and_goes_to_stderr(run, monkeypatch):
    def current_device():
        raise DeviceError("2 drivers")

    monkeypatch.setattr(answers, "current_device", current_device)
    assert run("plan") == (1, "", "DeviceError: 2 drivers\n")
    assert json.loads(run("plan", "--json")[1])["error"] == "DeviceError"


def test_a_wrong_result_is_told(run, monkeypatch):
    monkeypatch.setattr("portable_probe.trial.compared", lambda *_: WRONG)
    asked = "--on", "amd/mi300x", "--rows", 3, "--cols", 200
    code, out, _ = run("verify", *asked)
    assert (code, "verify    FAIL: max error 0.5, 7 times the tolerance; nothing else written" in out) == (1, True)
    code, out, err = run("verify", *asked, "--json")
    assert (code, json.loads(out)["error"], "WrongResult" in err) == (1, "WrongResult", True)


def test_an_interpreter_that_dies_is_told(run, nothing_here, monkeypatch):
    monkeypatch.setattr(answers.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=-11))
    code, _, err = run("verify", "--rows", 4)
    assert (code, "the interpreter died of signal 11: " in err) == (1, True)


def test_verify_without_torch_says_what_is_missing(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "portable_probe.virtual", None)
    code, _, err = run("verify", "--on", "amd/mi300x")
    assert (code, "DeviceError: to verify is to compare tensors, which needs torch (" in err) == (1, True)


def test_what_the_compiler_prints_is_no_part_of_json(run):
    """Triton prints ptxas's complaint: so few registers cannot be."""
    words = ["--on", "nvidia/h200", "--args", f"{MATRICES} BM=64 BN=64 BK=64", "--option", "maxnreg=32", "--json"]
    code, out, err = run("kernel", f"{NAMES['KERNELS']}:matmul", *words)
    assert (code, json.loads(out)["error"], "ptxas" in err) == (1, "CompileError", True)


@pytest.mark.parametrize(
    ("redirected", "expected", "complaint"),
    [(">&-", 1, "standard output is closed\n"), (">/dev/full", 1, "No space left on device\n"), ("| head -1", 0, "")],
)
def test_an_answer_that_goes_nowhere(redirected, expected, complaint):
    """A closed pipe is no error: `... | head` has read what it wanted."""
    asked = [sys.executable, "-m", "portable_probe", "profiles"]
    command = ["bash", "-o", "pipefail", "-c", f'"$0" "$@" {redirected}', *asked]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (outcome.returncode, outcome.stderr.count("\n")) == (expected, complaint.count("\n"))
    assert outcome.stderr.endswith(complaint)
