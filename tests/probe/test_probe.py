"""The probe's output and its exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from portable_softmax import DeviceError, NoDeviceError, plan
from portable_softmax.probe import __main__ as probe
from portable_softmax.probe import answers
from portable_softmax.probe.schema import SCHEMA_VERSION
from portable_softmax.probe.verify import Verification

SCRIPT = Path(__file__).parents[2] / "scripts" / "probe_device.py"
PROFILE = ["--profile", "amd/mi300x", "--rows", "1823", "--cols", "781", "--dtype", "bfloat16"]


RATES = str(SCRIPT.parent / "results" / "speed_h100.csv")


def planned_programs():
    return plan(1823, 781, "bfloat16", "amd/mi300x").num_programs


def printed(capsys, *arguments):
    code = probe.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def raising(monkeypatch, error):
    def current_device(index):
        raise error

    monkeypatch.setattr(answers, "current_device", current_device)


def test_text_for_a_device_that_is_not_here(capsys):
    code, out, _ = printed(capsys, *PROFILE)
    assert code == 0
    for words in (
        "device    amd/mi300x  (hip/gfx942, CDNA 3, not here)",
        "multiprocessor_count - 304 304 profile (vendor)",
        "softmax   1823 x 781 bfloat16 on amd/mi300x; Triton ",
        "programs per CU, 32 of 32 warps (100%), limited by warps",
        f"num_programs {planned_programs()}: one per tile",
    ):
        assert words in out or words in " ".join(out.split())


def test_json_has_the_same_and_a_version(capsys):
    code, out, _ = printed(capsys, *PROFILE, "--json")
    report = json.loads(out)
    assert (code, report["schema_version"]) == (0, SCHEMA_VERSION)
    assert report["device"] | {"architecture": None} == {
        "name": "amd/mi300x",
        "backend": "hip",
        "arch": "gfx942",
        "architecture": None,
        "here": False,
        "index": None,
        "profile": "amd/mi300x",
        "multiprocessor": "CU",
    }
    assert report["facts"]["multiprocessor_count"] == {
        "runtime": None,
        "profile": 304,
        "used": 304,
        "from": "profile",
        "profile_source": {"title": "AMD GPU specifications, ROCm documentation", "verified": "vendor"},
    }
    assert report["problem"] == {"n_rows": 1823, "n_cols": 781, "dtype": "bfloat16"}
    assert report["plan"]["num_programs"] == planned_programs()
    assert report["plan"]["occupancy"]["limited_by"]
    assert report["plan"]["resources"]["registers_per_thread"] > 0


def test_list(capsys):
    code, out, _ = printed(capsys, "--list")
    assert code == 0
    assert "nvidia/h200 cuda/90 Hopper" in " ".join(out.split())
    assert json.loads(printed(capsys, "--list", "--json")[1])["profiles"].count("ascend/910b3") == 1


def test_matrix_is_one_line_for_fromjson(capsys):
    code, out, _ = printed(capsys, "--matrix")
    legs = json.loads(out)["include"]
    assert (code, out.count("\n")) == (0, 1)
    assert {leg["device"] for leg in legs} == {"cuda", "hip", "npu", "xpu", "interpreter"}
    assert all(leg["runner"] for leg in legs)


def test_no_accelerator_is_an_answer(capsys, monkeypatch):
    raising(monkeypatch, NoDeviceError("nothing there"))
    code, out, _ = printed(capsys)
    assert code == 0
    assert "No accelerator: nothing there" in out
    code, out, _ = printed(capsys, "--json")
    assert (code, json.loads(out)["device"], json.loads(out)["message"]) == (0, None, "nothing there")


def test_something_broken_is_1_and_goes_to_stderr(capsys, monkeypatch):
    raising(monkeypatch, DeviceError("2 drivers"))
    code, out, err = printed(capsys)
    assert (code, out, err) == (1, "", "DeviceError: 2 drivers\n")
    code, out, _ = printed(capsys, "--json")
    assert (code, json.loads(out)["error"]) == (1, "DeviceError")


def test_a_wrong_result_is_1(capsys, monkeypatch):
    monkeypatch.setattr("portable_softmax.probe.trial.verify_here", lambda *_: Verification(0.5, 7.0, 0))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    code, out, _ = printed(capsys, "--verify")
    assert code == 1
    assert "verify    FAIL: max error 0.5, 7 times the tolerance; nothing else written" in out


@pytest.mark.parametrize(
    "arguments",
    [["--rows", "0"], ["--cols", "many"], ["--dtype", "int8"], ["--profile", "x", "--index", "0"], ["--nonsense"]],
)
def test_wrong_usage_is_2(arguments):
    with pytest.raises(SystemExit) as stopped:
        probe.main(arguments)
    assert stopped.value.code == 2


def test_an_unknown_profile(capsys):
    code, _, err = printed(capsys, "--profile", "mi300y")
    assert code == 2
    assert "no profile named 'mi300y'; did you mean amd/mi300x, " in err


def test_without_an_accelerator_the_script_verifies_in_the_interpreter():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(SCRIPT), "--verify", "--rows", "33", "--cols", "65", "--dtype", "float16", "--json"]
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert "The same kernel runs in Triton's interpreter instead" in outcome.stderr
    report = json.loads(outcome.stdout)
    assert report["device"]["backend"] == "interpreter"
    assert report["verify"]["right"]


@pytest.mark.pairwise
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", [["--list"], ["--list", "--json"], ["report", RATES]], ids=["text", "json", "page"])
@pytest.mark.parametrize(
    ("redirected", "expected", "complaint"),
    [(">&-", 1, "standard output is closed\n"), (">/dev/full", 1, "No space left on device\n"), ("| true", 0, "")],
)
def test_an_answer_that_goes_nowhere(redirected, expected, complaint, arguments, unbuffered):
    """A closed pipe is no error: `... | head` has read what it wanted. Without a buffer the first line fails, not the end."""
    command = ["bash", "-o", "pipefail", "-c", f'"$0" "$@" {redirected}', sys.executable, str(SCRIPT), *arguments]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    outcome = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    assert (outcome.returncode, outcome.stderr.count("\n")) == (expected, complaint.count("\n"))
    assert outcome.stderr.endswith(complaint)
