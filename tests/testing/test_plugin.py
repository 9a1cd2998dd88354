"""The plugin in a user's project, in a folder of its own, with the kernel and the tests of examples/."""

import shutil
from pathlib import Path

import pytest
import torch  # noqa: F401  an extension is imported once in a process, and pytester forgets what its sessions import
import triton
import triton.language  # noqa: F401

EXAMPLES = Path(__file__).parents[2] / "examples"
MORE = """
import pytest
from my_kernel import subtract_max
from portable_probe.testing import assert_occupancy

@pytest.mark.accelerator
def test_hardware():
    raise AssertionError("there is none")

@pytest.mark.parametrize(("block", "at_least"), [(16384, 9), (65536, 1), (1024, {"hip": 99})])
def test_missed(portable_device, block, at_least):
    arguments = {"x": "*fp32:16", "y": "*fp32:16", "n": "i32:16"}
    assert_occupancy(subtract_max, portable_device, signature=arguments, constexprs={"BLOCK": block}, at_least=at_least)
"""
H200 = "--on", "nvidia/h200"


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")  # which the plugin changes
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addoption('--device')\n")  # as many a test suite has
    for name in ("my_kernel.py", "test_my_kernel.py"):
        shutil.copy(EXAMPLES / name, pytester.path)
    pytester.makepyfile(test_more=MORE)
    pytester.syspathinsert()
    return pytester


def test_devices_that_are_not_here_and_skips_that_fail_if_that_is_requested(project):
    chosen = "-k", "not missed"
    ran = project.runpytest_inprocess("--on", "nvidia/h200,amd/mi300x", *chosen)
    ran.assert_outcomes(passed=2, skipped=3, deselected=6)
    ran.stdout.fnmatch_lines(["device: Device('nvidia/h200', cuda/90, *), Device('amd/mi300x', hip/gfx942, *"])
    project.runpytest_inprocess(*H200, "--fail-on-skip", *chosen).assert_outcomes(passed=1, errors=2, deselected=3)
    unknown = "--on", "intel/max-1550", "-k", "fits"
    project.runpytest_inprocess(*unknown).assert_outcomes(skipped=1, deselected=5)
    ran = project.runpytest_inprocess(*unknown, "--fail-on-skip")
    ran.assert_outcomes(failed=1, deselected=5)
    ran.stdout.fnmatch_lines(["*skipped, and --fail-on-skip: *this Triton's backends (*"])


def test_what_is_missed_says_why(project):
    ran = project.runpytest_inprocess(*H200, "-k", "missed")
    ran.assert_outcomes(passed=1, failed=2, deselected=3)
    for line in ("programs per SM, at least 9 required; limited by ", "next step ", "subtract_max on nvidia/h200: spills "):
        ran.stdout.fnmatch_lines([f"*{line}*"])
    ran.stdout.no_fnmatch_line("*portable_probe/*")  # no frames of the assertion's own


def test_wrong_options_end_the_session_and_skip_nothing(project):
    ran = project.runpytest_inprocess("--on", "interpreter", *H200)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    complaint = "nvidia/h200 is required; the profile of interpreter is triton/interpreter"
    ran.stderr.fnmatch_lines([f"ERROR: DeviceError: {complaint}"])
    ran.stdout.no_fnmatch_line("*skipped*")
