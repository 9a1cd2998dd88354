"""`verify`: the softmax and user kernels against float64, on an emulated device, in the interpreter and on the device here."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from sweep import in_turn

from portable_probe import virtual
from portable_probe.loading import load_kernel
from portable_probe.verify import load_case, verify_case
from portable_probe.virtual import run_case
from portable_softmax import Device, inspect_kernel
from portable_softmax.errors import KernelError

KERNELS = Path(__file__).parents[1] / "support" / "example_kernels.py"


@pytest.mark.parametrize(("dtype", "direction"), in_turn(["float32", "bf16", "fp16"], [[], ["--backward"]]))
def test_the_softmax_of_an_emulated_device(run, dtype, direction):
    code, out, err = run("verify", "--on", "amd/mi300x", "--shapes", "12x131", "--dtype", dtype, *direction)
    assert (code, err) == (0, "")
    assert re.search(r"\nverify    PASS: max error .*\n.*ran gfx942 code on a CPU emulator, .* for 12 rows\n$", out)


def test_a_wrong_result_is_1(run, monkeypatch):
    """A kernel is run whose machine code computes logarithms where it should compute powers."""
    compiled = virtual.compiled

    def wrong(kernel, device):
        right = compiled(kernel, device)
        assembly = right.asm["amdgcn"].replace("v_exp_f32", "v_log_f32")
        return SimpleNamespace(metadata=right.metadata, asm={"amdgcn": assembly})

    monkeypatch.setattr(virtual, "compiled", wrong)
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
    monkeypatch.delitem(sys.modules, "portable_probe.verify")
    monkeypatch.setitem(sys.modules, "torch", None)
    code, _, err = run(*command)
    assert (code, "; install PyTorch and Triton for the device" in err) == (4, True)


def test_a_user_kernel_in_the_interpreter(run, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernel = "verify", "--kernel", f"{KERNELS}:add_kernel", "--case", "add_case", "--args", "BLOCK_SIZE=64"
    assert run(*kernel)[0] == 0
    code, out, _ = run(*kernel, "--args", "n_elements=900")
    assert (code, " times the tolerance at out_ptr[" in out) == (1, True), out
    code, _, err = run(*kernel[:-1], "BLOCK_SIZE=63")  # no power of two
    assert (code, "KernelError: the launch fails: " in err) == (1, True), err


FILE = """
import torch
import triton
import triton.language as tl
@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    {body}
def case():
    x = torch.arange(1.0, 100)[:98]
    return (1,), {{"x": x, "y": torch.zeros(98), "n": 98, "BLOCK": 128}}, {{"y": x}}
"""
RIGHT = "tl.store(y + i, tl.load(x + i, i < n), i < n)"
ACCESSES = {  # the last one of x's memory, behind which it has an element that is not in x, and those outside of x and y
    RIGHT: None,
    "tl.store(y + i, tl.load(x + i, i < n + 1), i < n)": None,
    "tl.store(y + i, tl.load(x + i), i < n)": "a load of 4 bytes at byte 396 of the memory of x, which has 396",
    RIGHT.replace("i < n)", "i < n + 1)"): "a store of 4 bytes at byte 392 of the memory of y, which has 392",
    "tl.atomic_add(y + i, tl.load(x + i, i < n))": "an atomic of 4 bytes at byte 392 of the memory of y, which has 392",
    f"{RIGHT}; tl.atomic_cas(y + n, 0, 0)": "an atomic of 4 bytes at byte 392 of the memory of y, which has 392",
}


@pytest.mark.parametrize(("body", "fault"), ACCESSES.items())
def test_the_interpreter_checks_addresses(run, tmp_path, monkeypatch, body, fault):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    (tmp_path / "mine.py").write_text(FILE.format(body=body))
    code, out, err = run("verify", "--kernel", f"{tmp_path}/mine.py:copy", "--case", "case")
    assert (code, "PASS" in out) == ((1, False) if fault else (0, True)), err
    assert not fault or f"KernelError: OutOfBounds: {fault} ({tmp_path}/mine.py:8)" in err


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
    wrong = expected.clone()
    wrong[77] += 1
    assert added(expected={"out_ptr": wrong}).worst_at == "out_ptr[77]"
    outcome = added(expected={"x_ptr": case.arguments["x_ptr"]})
    assert (outcome.right, outcome.worst, outcome.overwritten) == (False, 0, 1000)
    with pytest.raises(KernelError, match=r"OutOfBounds: 4 bytes at .*of x_ptr with 2000 bytes: .*example_kernels.py:\d+"):
        added(arguments={"x_ptr": torch.zeros(500)})
    for expectation, complaint in (
        ({"out_ptr": "ones"}, "the expected out_ptr must be a tensor of the shape of the argument"),
        ({}, "the case has no expected tensors"),
    ):
        with pytest.raises(ValueError, match=complaint):
            added(expected=expectation)
    nan = torch.full((1000,), float("nan"))
    assert added(arguments={"x_ptr": nan}, expected={"out_ptr": nan}).right
    assert not added(arguments={"x_ptr": nan}).right
