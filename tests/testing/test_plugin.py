"""The plugin in a project of somebody else's, in a folder of its own, with a kernel of its own."""

import json
import sys

import pytest
import torch
import triton
import triton.language  # noqa: F401

import portable_softmax.testing

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)
"""
TESTS = """
from pathlib import Path
import pytest
import torch
from my_kernels import scale_kernel
from portable_softmax.testing import assert_occupancy, assert_plan_unchanged

TYPES = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "n": "i32:16", "factor": "fp32"}
PLANS = Path(__file__).with_name("plans.json")

def test_numbers(portable_torch_device):
    x = torch.randn(1000, device=portable_torch_device)
    y = torch.full_like(x, float("nan"))
    scale_kernel[(4,)](x, y, 1000, 3.0, BLOCK=256)
    assert torch.equal(y, x * 3)

def test_fits(portable_device):
    assert assert_occupancy(scale_kernel, portable_device, signature=TYPES, constexprs={"BLOCK": 1024}, at_least=8)

@pytest.mark.parametrize("block", [256, 1024])
def test_plan(portable_device, block):
    assert_plan_unchanged(scale_kernel, portable_device, PLANS, signature=TYPES, constexprs={"BLOCK": block})

@pytest.mark.backends("hip", "npu")
def test_elsewhere(portable_device):
    assert portable_device.backend != "cuda"

@pytest.mark.accelerator
def test_hardware():
    raise AssertionError("there is none")
"""
TOO_MANY = """
from test_mine import TYPES, scale_kernel
from portable_softmax.testing import assert_occupancy

def test_too_many(portable_device):
    assert_occupancy(scale_kernel, portable_device, signature=TYPES, constexprs={"BLOCK": 16384}, num_warps=4, at_least=9)

def test_spills(portable_device):
    assert_occupancy(scale_kernel, portable_device, signature=TYPES, constexprs={"BLOCK": 65536}, num_warps=4)
"""
H200 = "--profile", "nvidia/h200"


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    pytester.makepyfile(my_kernels=KERNELS, test_mine=TESTS)
    pytester.syspathinsert()
    return pytester


def test_a_device_that_is_not_here(project):
    ran = project.runpytest_inprocess(*H200)
    ran.assert_outcomes(passed=1, failed=2, skipped=3)
    ran.stdout.fnmatch_lines(["device: nvidia/h200, cuda/90, profile nvidia/h200, not here; triton*, torch*"])
    ran.stdout.fnmatch_lines(["*plans.json has no my_kernels:scale_kernel on nvidia/h200 *pytest --save-plans writes it*"])
    project.runpytest_inprocess(*H200, "--save-plans").assert_outcomes(passed=3, skipped=3)
    project.runpytest_inprocess(*H200).assert_outcomes(passed=3, skipped=3)
    project.runpytest_inprocess("--profile", "amd/mi300x").assert_outcomes(passed=2, failed=2, skipped=2)


def test_a_plan_that_changed_fails_with_what_changed(project):
    project.runpytest_inprocess(*H200, "--save-plans").assert_outcomes(passed=3, skipped=3)
    file = project.path / "plans.json"
    plans = json.loads(file.read_text())
    plans[0]["kernel"]["resources"]["registers_per_thread"] -= 1
    plans[1]["kernel"]["occupancy"]["programs_per_multiprocessor"] += 1
    file.write_text(json.dumps(plans))
    ran = project.runpytest_inprocess(*H200)
    ran.assert_outcomes(passed=1, failed=2, skipped=3)
    ran.stdout.fnmatch_lines(["*nvidia/h200  my_kernels:scale_kernel  registers  registers_per_thread * worse*"])
    ran.stdout.fnmatch_lines(["*nvidia/h200  my_kernels:scale_kernel  occupancy  programs_per_multiprocessor * worse*"])


def test_an_occupancy_that_is_too_low_and_spills_say_why(project):
    project.makepyfile(test_more=TOO_MANY)
    ran = project.runpytest_inprocess(*H200, "test_more.py")
    ran.assert_outcomes(failed=2)
    ran.stdout.fnmatch_lines(["*programs per SM, and at least 9 are asked for; registers bind"])
    ran.stdout.fnmatch_lines(["*registers per thread fewer: * programs instead of *"])
    ran.stdout.fnmatch_lines(["*my_kernels:scale_kernel on nvidia/h200 spills * bytes per thread"])


def test_a_named_device_that_is_missing_fails_and_skips_nothing(project):
    ran = project.runpytest_inprocess("--device", "npu")
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines(["ERROR: *DeviceError: *"])
    ran.stdout.no_fnmatch_line("*skipped*")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--device", "interpreter", *H200], "ERROR: Triton's interpreter compiles for no --profile*"),
        (["--profile", "nvidia/h2000"], "ERROR: ProfileError: no profile named 'nvidia/h2000'*"),
    ],
)
def test_options_that_are_wrong(project, options, complaint):
    ran = project.runpytest_inprocess(*options)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines([complaint])


def test_the_interpreter_runs_kernels_in_a_project_that_only_installed_the_package(project):
    ran = project.run(sys.executable, "-m", "pytest", "--device", "interpreter", "-rs")
    ran.assert_outcomes(passed=1, skipped=5)
    ran.stdout.fnmatch_lines(["device: interpreter, *profile triton/interpreter; triton*"])
    ran.stdout.fnmatch_lines(["*Triton's interpreter compiles nothing*"])


def test_auto_skips_what_needs_a_device_and_has_none(project):
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    ran = project.runpytest_inprocess("-rs")
    ran.assert_outcomes(skipped=6)
    ran.stdout.fnmatch_lines(["device: taken when a test first asks (--device auto)*"])
    ran.stdout.fnmatch_lines(["*--profile NAME compiles for one*"])


def test_the_names_that_are_offered():
    assert portable_softmax.testing.__all__ == ["assert_occupancy", "assert_plan_unchanged"]
