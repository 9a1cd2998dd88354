"""`verify` on a device that is not here: its machine code runs in the virtual device."""

import json
import sys
from pathlib import Path

import pytest
import torch

from portable_probe import answers, virtual
from portable_probe.kernel_case import load_case
from portable_probe.loading import load_kernel
from portable_probe.verify_kernel import placed, verify_case
from portable_probe.virtual import run_case
from portable_softmax import Device, inspect_kernel
from portable_softmax.errors import KernelError

KERNELS = Path(__file__).parents[1] / "support" / "example_kernels.py"


@pytest.mark.parametrize("profile", ["amd/mi300x", "amd/rx-7900-xtx"])
def test_the_softmax_of_a_device_that_is_not_here(run, monkeypatch, profile):
    monkeypatch.setattr(virtual, "MOST_ELEMENTS", 2**16)
    shape = ["--rows", 1000, "--cols", 6500, "--dtype", "bfloat16"]  # of which 10 rows are few enough
    code, out, _ = run("verify", "--on", profile, *shape)
    assert (code, "verify    PASS: max error" in out) == (0, True)
    arch = Device.from_profile(profile).arch
    assert f"ran {arch} code on a CPU emulator: 10 rows, " in out
    code, out, _ = run("verify", "--on", profile, "--rows", 3, "--cols", 200, "--json")
    found = json.loads(out)["verify"]
    assert (code, found["right"], found["rows"], found["executed"]) == (0, True, 3, f"ran {arch} code on a CPU emulator")
    assert found["instructions"] > 100


def test_a_wrong_result_is_told(run, monkeypatch):
    monkeypatch.setattr(virtual, "compile_kernel", wrong(virtual.compile_kernel))
    code, out, _ = run("verify", "--on", "amd/mi300x", "--rows", 8, "--cols", 200)
    assert (code, "verify    FAIL: max error" in out) == (1, True)


def wrong(compile_kernel):
    """Kernels whose machine code computes logarithms where it should take powers."""

    class Wrong:
        def __init__(self, compiled):
            self.metadata = compiled.metadata
            self.asm = {"amdgcn": compiled.asm["amdgcn"].replace("v_exp_f32", "v_log_f32")}
            assert self.asm["amdgcn"] != compiled.asm["amdgcn"]

    return lambda spec, device: Wrong(compile_kernel(spec, device))


def test_a_kernel_of_ones_own_in_the_interpreter(run, monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernel = "verify", "--kernel", f"{KERNELS}:add_kernel", "--case", "add_case", "--args", "BLOCK_SIZE=64"
    code, out, _ = run(*kernel, "--save", f"{tmp_path}/kept.json")
    assert (code, out[:14]) == (0, "verify    PASS")
    told = run("diff", f"{tmp_path}/kept.json", "--kernel", kernel[2])
    assert told == (0, "0 changes in 1 case, 0 for the worse\n", "")
    code, out, _ = run(*kernel, "--args", "n_elements=900")
    told = "verify    FAIL: max error inf, inf times the tolerance at out_ptr[900]; "
    assert (code, out.startswith(told)) == (1, True), "the last elements are not written"


def test_the_interpreter_is_asked_where_nothing_else_is_here(run, nothing_here, monkeypatch):
    asked = []
    monkeypatch.setattr(answers, "_interpreted", lambda options: asked.append(options.words) or 0)
    kernel = ["--kernel", f"{KERNELS}:add_kernel", "--case", "add_case"]
    for words in (["verify", *kernel], ["verify", "--on", "triton/interpreter", *kernel], ["verify", "--backward"]):
        assert run(*words)[0] == 0
        assert asked.pop() == words


def test_tensors_lie_on_a_device_as_they_lie_here():
    whole = torch.arange(24.0).view(4, 6)
    given = {"x": whole[1:, ::2], "y": whole.T, "n": 3}
    there = placed(given, torch.device("meta"))
    assert there["n"] == 3
    assert there["x"].untyped_storage()._cdata == there["y"].untyped_storage()._cdata
    for name in "xy":
        for what in ("shape", "dtype"):
            assert getattr(there[name], what) == getattr(given[name], what)
        assert (there[name].stride(), there[name].storage_offset()) == (given[name].stride(), given[name].storage_offset())


def test_an_emulator_that_is_not_installed_is_asked_for(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "amdgcn_cpu", None)
    code, _, errors = run("verify", "--on", "amd/mi300x", "--rows", 3, "--cols", 200)
    assert (code, "README.md, Install, says how to get amdgcn-cpu" in errors) == (1, True)


def added(**changed):
    """The outcome of add_kernel, of a case in which something is changed."""
    file = load_kernel(f"{KERNELS}:add_kernel")
    case = load_case(file, "add_case")
    launch = inspect_kernel(file.kernel, case.arguments, {"BLOCK_SIZE": 64}, num_warps=1, device="amd/mi300x").launch
    arguments = dict(case.arguments) | changed.pop("arguments", {})
    case = case._replace(arguments=arguments, **changed)
    return verify_case(case, lambda: run_case(launch, case, Device.from_profile("amd/mi300x")))


def test_what_is_wrong_with_a_kernel_is_told():
    assert added().right
    assert added(grid=lambda arguments: (-(-arguments["n_elements"] // arguments["BLOCK_SIZE"]),)).right
    assert not added(grid=(15,)).right  # the last elements are not written
    _, _, expected = load_case(load_kernel(f"{KERNELS}:add_kernel"), "add_case")
    assert not added(expected={"out_ptr": expected["out_ptr"] + 0.01}).right
    wrong = expected["out_ptr"].clone()
    wrong[77] += 1
    assert added(expected={"out_ptr": wrong}).worst_at == "out_ptr[77]"
    outcome = added(expected={"x_ptr": torch.zeros(1000)})
    assert (outcome.right, outcome.overwritten) == (False, 1000)
    with pytest.raises(
        KernelError,
        match=r"OutOfBounds: 4 bytes at 0x\w+, of the memory of x_ptr with 2000 bytes: .* \(example_kernels.py:\d+\)",
    ):
        added(arguments={"x_ptr": torch.zeros(500)})
    with pytest.raises(ValueError, match="expects n_elements, which are no tensors"):
        added(expected={"n_elements": torch.zeros(1)})
    with pytest.raises(ValueError, match="the case expects nothing"):
        added(expected={})


def test_nan_is_right_where_it_is_expected():
    x = torch.full((1000,), float("nan"))
    assert added(arguments={"x_ptr": x}, expected={"out_ptr": x}).right
    assert not added(arguments={"x_ptr": x}).right
