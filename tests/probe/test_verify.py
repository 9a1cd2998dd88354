"""`verify`: the softmax against float64, on an emulated device, in the interpreter and on the device here."""

import json
import sys

import pytest

from portable_probe import virtual

OPTIONS = "", "--mask added --scale", "--mask lower_right boolean --temperature rows", "--softcap 30 --sink"


@pytest.mark.each_value
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", ["float32", "bf16", "fp16"])
@pytest.mark.parametrize("direction", ["", "--backward"])
def test_the_softmax_of_an_emulated_device(run, options, dtype, direction):
    if direction and "--softcap" in options:
        pytest.skip("not one launch")
    shape = ["--rows", 12, "--cols", 130 if options else 131, "--dtype", dtype]
    code, out, err = run("verify", "--on", "amd/mi300x", *shape, *options.split(), *direction.split())
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
    asked = "verify", "--on", "amd/mi300x", "--rows", 8, "--cols", 200
    code, out, err = run(*asked)
    assert (code, "verify    FAIL: max error" in out, err[:11]) == (1, True, "WrongResult")
    assert json.loads(run(*asked, "--json")[1])[0]["error"] == "WrongResult"


def test_an_emulator_or_torch_that_is_not_installed_is_4(run, monkeypatch):
    asked = "verify", "--on", "amd/mi300x", "--rows", 3, "--cols", 200
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "amdgcn_cpu", None)
        code, _, err = run(*asked)
        assert (code, "the emulator is not installed" in err) == (4, True)
    monkeypatch.setitem(sys.modules, "portable_probe.verify", None)
    code, _, err = run(*asked)
    assert (code, "DeviceError: verify requires torch (" in err) == (4, True)
