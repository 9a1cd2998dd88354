"""The probe's command line as strangers use it: wrong options, wrong files, and one device of several that fails."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from portable_softmax import NoDeviceError
from portable_softmax.probe import __main__ as probe
from portable_softmax.probe import answers
from portable_softmax.probe.arguments import value_of

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "tests" / "support" / "decorated_kernels.py"
SCALED = """
import triton
import triton.language as tl

@triton.jit
def scaled(x_ptr, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr = 128):
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
TYPES = ["--signature", "x_ptr=*fp32:16", "y_ptr=*fp32:16", "out_ptr=*fp32:16", "n_elements=i32:16"]
H200 = ["--profile", "nvidia/h200"]


def printed(capsys, *arguments):
    code = probe.main([str(word) for word in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def refused(capsys, *arguments):
    """The complaint of a command line that is wrong usage."""
    with pytest.raises(SystemExit) as stopped:
        probe.main([str(word) for word in arguments])
    assert stopped.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--list", "--rows", "5"], "--list has no use for --rows"),
        (["--matrix", "--explain"], "--matrix has no use for --explain"),
        (["--profile", ""], "--profile is empty"),
        ([*H200, "--runner", "self-hosted"], "--runner choose legs of --matrix"),
        ([*H200, "--num-warps", "8"], "--num-warps are of a kernel of yours; name it: --kernel FILE:NAME"),
        ([*H200, "--signature", "x=i32", "--config", "0"], "--config, --signature are of a kernel of yours"),
        ([*H200, "--kernel", "f.py:k", "--rows", "4", "--dtype", "float16"], "--kernel has no use for --dtype, --rows"),
        ([*H200, "--kernel", "f.py:k", "--plot", "p.png"], "--kernel has no use for --plot"),
        ([*H200, "--kernel", "f.py"], "a kernel is named FILE:NAME, not 'f.py'"),
        (
            [*H200, "--verify"],
            "a kernel is verified on the device that is here or in Triton's interpreter if no device is named",
        ),
        (["--baseline", "f.json", "--rows", "4"], "--baseline asks again what its file holds, and has no use for --rows"),
        ([*H200, "--tolerate", "plan"], "--tolerate is of --baseline, and there is none"),
        ([*H200, "--shapes", "4x4", "--rows", "4"], "--shapes has no use for --rows"),
        ([*H200, "--shapes", "44"], "'44' should be ROWSxCOLS"),
        ([*H200, "--dtype", "float16", "float32", "--plot", "p.png"], "--plot draws rows of every length in one type"),
        (["--baseline", "f.json", "--tolerate", "luck"], "'luck' should be one of plan, registers"),
        (["--baseline", "f.json", "--tolerate", "plan=2"], "a plan is the same or not"),
        ([*H200, "--offline"], "--offline choose legs of --matrix"),
        (
            ["--compare", "amd/mi300x", "--verify"],
            "a kernel is verified on the device that is here or in Triton's interpreter if no device is named",
        ),
        (["--profile", "amd/mi300x", "--kernel", "f.py:k", "--verify"], "a kernel is verified by --case NAME"),
        (
            ["--profile", "amd/mi300x", "--verify", "--case", "c"],
            "--case are of a kernel of yours; name it",
        ),
        ([*H200, "--kernel", "f.py:k", "--args", "x=f16[4, 4] n=4", "n=5"], "n stands more than once in --args, --signature"),
        (["--baseline", "f.json", "--tolerate", "registers=nan"], "'nan' of registers should be 0 or more"),
        (["--baseline", "f.json", "--tolerate", "registers=-5"], "'-5' of registers should be 0 or more"),
        (["--baseline", "f.json", "--tolerate", "plan", "--tolerate", "plan"], "plan stands more than once in --tolerate"),
        (
            [*H200, "--kernel", "f.py:k", "--signature", "n=i32", "m=i1", "n=i64"],
            "n stands more than once in --args",
        ),
        (
            [*H200, "--kernel", "f.py:k", "--constexpr", "BLOCK=128", "--constexpr", "BLOCK=128"],
            "BLOCK stands more than once in --args, --signature or --constexpr; leave out all but one",
        ),
        ([*H200, "--out", "somewhere"], "--out says where --dump writes, and there is no --dump"),
    ],
)
def test_no_option_is_ignored_in_silence(capsys, arguments, complaint):
    assert complaint in refused(capsys, *arguments)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("def broken(:\n", "cannot be imported: SyntaxError"),
        ("1 / 0\n", "cannot be imported: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)\n", "cannot be imported: SystemExit: 3"),
        ("x = 1\n", "has no @triton.jit function 'k'; it has none"),
    ],
)
def test_a_file_that_is_not_right_gives_one_clear_error_in_json_too(tmp_path, capsys, text, complaint):
    file = tmp_path / "theirs.py"
    file.write_text(text)
    code, out, err = printed(capsys, *H200, "--kernel", f"{file}:k", "--json")
    expected = 2 if "has no" in complaint else 1
    assert code == expected
    assert complaint in err
    assert complaint in json.loads(out)["message"]
    code, _, err = printed(capsys, "--compare", "nvidia/h200", "amd/mi300x", "--kernel", f"{file}:k")
    assert (code, err.count(complaint)) == (expected, 1), "once, not for each device"


@pytest.mark.parametrize(
    ("name", "options", "num_warps"),
    [
        ("tuned", ["--config", "0"], 4),
        ("tuned", ["--config", "1"], 8),
        ("tuned", ["--config", "1", "--num-warps", "2"], 2),
        ("tuned_once", [], 8),
        ("by_heuristic", [], 4),
        ("by_arguments", ["--constexpr", "BLOCK_SIZE=256"], 4),
        ("logged", [], 8),
    ],
)
def test_kernels_are_taken_out_of_their_decorators(capsys, name, options, num_warps):
    code, out, err = printed(capsys, *H200, "--kernel", f"{KERNELS}:{name}", *TYPES, *options, "--json")
    assert code == 0, err
    assert json.loads(out)["kernel"]["resources"]["num_warps"] == num_warps


@pytest.fixture
def scaled(tmp_path, capsys):
    """Asks for the kernel above, with the options; returns the exit code, its TTIR, its part of the report, and the error."""
    file = tmp_path / "theirs.py"
    file.write_text(SCALED)
    where = [*H200, "--kernel", f"{file}:scaled", "--json", "--dump", "ttir", "--out", tmp_path, "--save", tmp_path / "saved"]

    def ask(*options):
        code, out, err = printed(capsys, *where, *options)
        ttir = tmp_path / "scaled.ttir"
        return code, ttir.read_text() if ttir.exists() else "", json.loads(out).get("kernel"), err

    return ask


@pytest.mark.parametrize(
    ("text", "value", "instruction"),
    [
        ("1.5", 1.5, "dense<1.500000e+00>"),
        ("1e-6", 1e-6, "dense<9.99999997E-7>"),
        ("-.25", -0.25, "dense<-2.500000e-01>"),
        ("-3", -3, "dense<-3.000000e+00>"),
        ("7", 7, "dense<7.000000e+00>"),
        ("None", None, "arith.divf"),
        ("True", True, "arith.addf"),
        ("text", "text", "math.exp"),
    ],
)
def test_constexprs_are_what_python_makes_of_them(tmp_path, capsys, scaled, text, value, instruction):
    code, ttir, kernel, err = scaled("--signature", "x_ptr=*fp32:16", "n=i32", "--constexpr", f"FACTOR={text}")
    assert code == 0, err
    assert repr(kernel["launch"]["constants"]["FACTOR"]["value"]) == repr(value)
    assert instruction in ttir
    code, out, err = printed(capsys, "--baseline", tmp_path / "saved", "--kernel", kernel["name"])
    assert (code, out) == (0, "0 changes in 1 case, 0 of them regressions\n"), err


@pytest.mark.parametrize("text", ["²", "--5", "1_0", "0x10", "nan", "inf", "1e999", "1.5.2", "e5", ".", "٣", " 1", "true"])
def test_a_word_that_is_no_plain_number_is_text(text):
    assert value_of(text) == text


def test_a_constexpr_has_its_default_where_it_is_not_given(scaled):
    types = ["--signature", "x_ptr=*fp32:16", "--signature", "n=i32"]
    assert "tensor<128xf32>" in scaled(*types, "--constexpr", "FACTOR=2")[1]
    assert "tensor<256xf32>" in scaled(*types, "--constexpr", "BLOCK=256", "--constexpr", "FACTOR=2")[1]
    code, _, _, err = scaled(*types)
    assert code == 1
    assert "scaled needs FACTOR too. Placeholders, to be changed: --args 'FACTOR=64'\n" in err


@pytest.mark.parametrize(
    ("types", "complaint"),
    [
        (["x_ptr=*fp32:7", "n=i32"], "x_ptr=*fp32:7: an argument is a tensor as f16[4096,4096], a value as 4096, or a type"),
        (["x_ptr=*fp32:160", "n=i32"], "x_ptr=*fp32:160: an argument is"),
        (["x_ptr=*fp32:16S", "n=i32"], "x_ptr=*fp32:16S: an argument is"),
        (["x_ptr=*fp32", "n=i33"], "n=i33: an argument is"),
        (["x_ptr=fp32*", "n=i32"], "x_ptr=fp32*: an argument is"),
        (["x_ptr=f99[4]", "n=i32"], "types are fp16, bf16, fp32"),
    ],
)
def test_a_type_that_triton_has_not_is_refused(scaled, types, complaint):
    code, _, _, err = scaled("--signature", *types, "--constexpr", "FACTOR=2")
    assert code == 1
    assert complaint in err


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        (
            "tuned",
            [],
            "tuned over 2 configurations, and none was chosen; --config N takes one:\n  0: BLOCK_SIZE: 1024, num_warps: 4",
        ),
        ("tuned", ["--config", "2"], "and 2 is none of them"),
        ("by_heuristic", ["--config", "0"], "configuration 0 was chosen, and the kernel is not under @triton.autotune"),
        ("by_arguments", [], "the heuristic of BLOCK_SIZE needs 'n_elements'; give its value: --args BLOCK_SIZE=VALUE"),
    ],
)
def test_a_choice_that_only_the_user_can_make_is_asked_for(capsys, name, options, complaint):
    code, _, err = printed(capsys, *H200, "--kernel", f"{KERNELS}:{name}", *TYPES, *options)
    assert code == 1
    assert complaint in err


def test_a_device_that_cannot_be_shown_leaves_the_others(capsys):
    kernel = ["--kernel", f"{KERNELS}:tuned_once", *TYPES]
    code, out, _ = printed(capsys, "--compare", "nvidia/h200", "ascend/910b3", *kernel)
    assert code == 4
    assert "8 warps, 2 stages" in out
    assert ": TargetError: this Triton's backends (" in out
    code, out, _ = printed(capsys, "--compare", "nvidia/h200", "ascend/910b3", *kernel, "--json")
    here, missing = json.loads(out)
    assert here["kernel"]["resources"]["num_warps"] == 8
    assert (missing["device"]["name"], missing["error"]) == ("ascend/910b3", "TargetError")


def test_each_device_dumps_into_a_folder_of_its_own(tmp_path, capsys):
    names = "nvidia/h200", "nvidia/a100-80gb-sxm"
    code, out, _ = printed(
        capsys, "--compare", *names, "--kernel", f"{KERNELS}:tuned_once", *TYPES, "--dump", "ptx", "--out", tmp_path, "--json"
    )
    assert code == 0
    targets = [(tmp_path / name / "add_kernel.ptx").read_text() for name in names]
    assert [".target sm_90a" in targets[0], ".target sm_80" in targets[1]] == [True, True]
    assert all(Path(path).is_file() for report in json.loads(out) for path in report["dump"])
    shapes = ["--shapes", "8x64", "8x4096", "--dtype", "float16"]
    assert printed(capsys, "--profile", names[0], *shapes, "--dump", "ptx", "--out", tmp_path / "two")[0] == 0
    assert printed(capsys, "--compare", *names, "--cols", 64, "--dump", "ptx", "--out", tmp_path / "one")[0] == 0
    found = {str(path.parent.relative_to(tmp_path)) for path in tmp_path.glob("[ot]*/**/*.ptx")}
    assert found == {"two/8-x-64-float16", "two/8-x-4096-float16", *(f"one/{name}" for name in names)}


@pytest.mark.parametrize("options", [["--dump", "all"], ["--explain"], ["--plot", "p.png"], ["--textbook"]])
def test_what_needs_a_device_fails_without_one(capsys, monkeypatch, options):
    def nothing(index):
        raise NoDeviceError("nothing there")

    monkeypatch.setattr(answers, "current_device", nothing)
    code, _, err = printed(capsys, *options)
    assert code == 1
    assert f"{options[0]} needs a device: --profile NAME. No accelerator: nothing there" in err


def test_a_device_that_is_required_and_missing_fails(capsys, monkeypatch):
    def nothing(index):
        raise NoDeviceError("nothing there")

    assert printed(capsys, *H200, "--require", "cuda")[0] == 0
    code, _, err = printed(capsys, *H200, "--require", "hip")
    assert (code, err) == (1, "DeviceError: a hip device was required; this is cuda\n")
    monkeypatch.setattr(answers, "current_device", nothing)
    code, _, err = printed(capsys, "--require", "cuda")
    assert code == 1
    assert "a cuda device was required. No accelerator: nothing there" in err


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_kernel_of_which_no_program_fits_is_an_error_with_the_way_out(capsys, as_json):
    kernel = ["--kernel", f"{KERNELS}:plain", "--signature", "x_ptr=*fp32:16", "--constexpr", "BLOCK_SIZE=8192"]
    code, out, err = printed(capsys, *H200, *kernel, "--num-warps", "64", *as_json)
    assert code == 1
    way_out = "no program fits: threads per program bind; with 32 warps instead of 64, if a thread needs no more then, 2 would"
    assert way_out in (json.loads(out)["message"] if as_json else err)


def test_a_closed_pipe_is_no_traceback():
    command = f"{sys.executable} {ROOT / 'scripts' / 'probe_device.py'} --list | head -1"
    outcome = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert outcome.stdout.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--profile", "intel/arc-b580"], ["--compare", "intel/arc-b580", "amd/mi300x"]])
def test_a_softmax_for_a_device_of_another_triton_is_no_failure(capsys, arguments):
    code, out, err = printed(capsys, *arguments)
    assert code == 4
    assert "do not compile for xpu" in out + err
