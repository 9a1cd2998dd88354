"""The plugin in a project of somebody else's, in a folder of its own, with a kernel of its own."""

import pytest
import torch  # noqa: F401  an extension is imported once in a process, and pytester forgets what its sessions import
import triton
import triton.language  # noqa: F401

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)
"""
TESTS = """
import pytest
import torch
from my_kernels import scale_kernel
from portable_probe.testing import assert_occupancy

TYPES = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "n": "i32:16", "factor": "fp32"}

def test_numbers(portable_torch_device):
    x = torch.randn(1000, device=portable_torch_device)
    y = torch.full_like(x, float("nan"))
    scale_kernel[(4,)](x, y, 1000, 3.0, BLOCK=256)
    assert torch.equal(y, x * 3)

def test_fits(portable_device):
    assert assert_occupancy(scale_kernel, portable_device, signature=TYPES, constexprs={"BLOCK": 1024}, at_least=8)

@pytest.mark.accelerator
def test_hardware():
    raise AssertionError("there is none")
"""
MISSED = """
import pytest
from test_mine import TYPES, scale_kernel
from portable_probe.testing import assert_occupancy

@pytest.mark.parametrize(("block", "at_least"), [(16384, 9), (65536, 1), (1024, {"hip": 99})])
def test_more(portable_device, block, at_least):
    assert_occupancy(scale_kernel, portable_device, signature=TYPES, constexprs={"BLOCK": block}, at_least=at_least)
"""
H200 = "--on", "nvidia/h200"


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")  # which the plugin changes
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addoption('--device')\n")  # as many a test suite has
    pytester.makepyfile(my_kernels=KERNELS, test_mine=TESTS)
    pytester.syspathinsert()
    return pytester


def test_devices_that_are_not_here_and_skips_that_fail_if_that_is_requested(project):
    ran = project.runpytest_inprocess("--on", "nvidia/h200,amd/mi300x")
    ran.assert_outcomes(passed=2, skipped=3)
    ran.stdout.fnmatch_lines(["device: nvidia/h200 (cuda/90, profile nvidia/h200, absent), amd/mi300x (hip/gfx942, *"])
    project.runpytest_inprocess(*H200, "--fail-on-skip").assert_outcomes(passed=1, errors=2)
    unknown = "--on", "intel/max-1550", "-k", "fits"
    project.runpytest_inprocess(*unknown).assert_outcomes(skipped=1, deselected=2)
    ran = project.runpytest_inprocess(*unknown, "--fail-on-skip")
    ran.assert_outcomes(failed=1, deselected=2)
    ran.stdout.fnmatch_lines(["*skipped, and --fail-on-skip: *this Triton's backends (*"])


def test_what_is_missed_says_why(project):
    project.makepyfile(test_more=MISSED)
    ran = project.runpytest_inprocess(*H200, "test_more.py")
    ran.assert_outcomes(passed=1, failed=2)
    for line in (
        "*programs per SM, at least 9 required; limited by registers",
        "*next step * programs instead of * with at most * registers per thread (* now)",
        "*my_kernels:scale_kernel on nvidia/h200: spills * bytes per thread",
    ):
        ran.stdout.fnmatch_lines([line])
    ran.stdout.no_fnmatch_line("*portable_probe/*")  # no frames of the assertion's own


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("npu", "*DeviceError: *"),
        (
            "interpreter --on nvidia/h200",
            "DeviceError: nvidia/h200 is required; the profile of interpreter is triton/interpreter",
        ),
        ("nvidia/h2000", "ProfileError: no profile named 'nvidia/h2000'*"),
    ],
)
def test_wrong_options_end_the_session_and_skip_nothing(project, options, complaint):
    ran = project.runpytest_inprocess("--on", *options.split())
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines([f"ERROR: {complaint}"])
    ran.stdout.no_fnmatch_line("*skipped*")
