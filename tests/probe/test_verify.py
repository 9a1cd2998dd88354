"""`verify`: the softmax and user kernels against float64, on an emulated device, in the interpreter and on the device here."""

import json
import sys
from pathlib import Path

import pytest
import torch

from portable_probe import virtual
from portable_probe.loading import load_kernel
from portable_probe.verify import load_case, verify_case
from portable_probe.virtual import run_case
from portable_softmax import Device, inspect_kernel
from portable_softmax.errors import KernelError

KERNELS = Path(__file__).parents[1] / "support" / "example_kernels.py"


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["float32", "bf16", "fp16"])
@pytest.mark.parametrize("direction", [[], ["--backward"]])
def test_the_softmax_of_an_emulated_device(run, dtype, direction):
    code, out, err = run("verify", "--on", "amd/mi300x", "--shapes", "12x131", "--dtype", dtype, *direction)
    assert (code, err) == (0, "")
    assert "\nverify    PASS: max error " in out
    assert "ran gfx942 code on a CPU emulator, " in out
    assert out.endswith("for 12 rows\n")


class Wrong:
    """A kernel whose machine code computes logarithms where it should compute powers."""

    def __init__(self, compiled):
        self.metadata = compiled.metadata
        self.asm = {"amdgcn": compiled.asm["amdgcn"].replace("v_exp_f32", "v_log_f32")}
        assert self.asm["amdgcn"] != compiled.asm["amdgcn"]


def test_a_wrong_result_is_1(run, monkeypatch):
    compile_kernel = virtual.compile_kernel
    monkeypatch.setattr(virtual, "compile_kernel", lambda spec, device: Wrong(compile_kernel(spec, device)))
    command = "verify", "--on", "amd/mi300x", "--shapes", "8x200"
    code, out, err = run(*command)
    assert (code, "verify    FAIL: max error" in out, err[:11]) == (1, True, "WrongResult")
    assert json.loads(run(*command, "--json")[1])[0]["error"] == "WrongResult"


def test_an_emulator_or_torch_that_is_not_installed_is_4(run, monkeypatch):
    command = "verify", "--on", "amd/mi300x", "--shapes", "3x200"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "amdgcn_cpu", None)
        code, _, err = run(*command)
        assert (code, "the emulator is not installed" in err) == (4, True)
    monkeypatch.setitem(sys.modules, "portable_probe.verify", None)
    code, _, err = run(*command)
    assert (code, "DeviceError: verify and --case require torch (" in err) == (4, True)


def test_a_user_kernel_in_the_interpreter(run, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernel = "verify", "--kernel", f"{KERNELS}:add_kernel", "--case", "add_case", "--args", "BLOCK_SIZE=64"
    assert run(*kernel)[0] == 0
    code, out, _ = run(*kernel, "--args", "n_elements=900")
    assert (code, " times the tolerance at out_ptr[" in out) == (1, True), out
    code, _, err = run(*kernel[:-1], "BLOCK_SIZE=63")  # no power of two
    assert (code, "KernelError: the launch fails: " in err) == (1, True), err


def added(**changed):
    """The outcome of add_kernel on the emulator, of a case in which something is changed."""
    file = load_kernel(f"{KERNELS}:add_kernel")
    case = load_case(file, "add_case")
    launch = inspect_kernel(file.kernel, case.arguments, {"BLOCK_SIZE": 64}, num_warps=1, device="amd/mi300x").launch
    arguments = dict(case.arguments) | changed.pop("arguments", {})
    case = case._replace(arguments=arguments, **changed)
    return verify_case(case, lambda: run_case(launch, case, Device.from_profile("amd/mi300x")))


def test_what_is_wrong_with_a_user_kernel():
    assert added().right
    assert added(grid=lambda arguments: (-(-arguments["n_elements"] // arguments["BLOCK_SIZE"]),)).right
    assert not added(grid=(15,)).right, "the last elements are not written"
    case = load_case(load_kernel(f"{KERNELS}:add_kernel"), "add_case")
    expected = case.expected["out_ptr"]
    assert not added(expected={"out_ptr": expected + 0.01}).right
    wrong = expected.clone()
    wrong[77] += 1
    assert added(expected={"out_ptr": wrong}).worst_at == "out_ptr[77]"
    outcome = added(expected={"x_ptr": case.arguments["x_ptr"]})
    assert (outcome.right, outcome.worst, outcome.overwritten) == (False, 0, 1000)
    with pytest.raises(KernelError, match=r"OutOfBounds: 4 bytes at .*of x_ptr with 2000 bytes: .*example_kernels.py:\d+"):
        added(arguments={"x_ptr": torch.zeros(500)})
    for expectation, complaint in (
        ({"n_elements": torch.zeros(1)}, "the expected n_elements must be a tensor of the shape of the argument"),
        ({"out_ptr": "ones"}, "the expected out_ptr must be a tensor of the shape of the argument"),
        ({}, "the case has no expected tensors"),
    ):
        with pytest.raises(ValueError, match=complaint):
            added(expected=expectation)
    nan = torch.full((1000,), float("nan"))
    assert added(arguments={"x_ptr": nan}, expected={"out_ptr": nan}).right
    assert not added(arguments={"x_ptr": nan}).right
