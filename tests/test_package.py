"""The package as it is installed and imported."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command, cwd=ROOT):
    outcome = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout


def test_the_wheel_brings_its_profiles(tmp_path):
    """In a venv with nothing but the wheel and its dependencies: neither torch nor triton."""
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    code = """
import sys
from portable_softmax import Device, KernelResources, occupancy
from portable_softmax import profiles
device = Device.from_profile("amd/mi100")
print(len(profiles()), occupancy(KernelResources(4, 66, 16), device).programs_per_multiprocessor, "torch" in sys.modules)
"""
    assert run(python, "-c", code, cwd=tmp_path).split() == [str(len(list_profiles())), "3", "False"]
    assert "amd/mi100" in run(tmp_path / "venv" / "bin" / "portable-softmax", "--list", cwd=tmp_path)
    assert "cuda" in run(tmp_path / "venv" / "bin" / "portable-softmax", "--matrix", cwd=tmp_path)
    planned = [tmp_path / "venv" / "bin" / "portable-softmax", "--profile", "nvidia/h200"]
    without_triton = subprocess.run([str(word) for word in planned], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert without_triton.returncode == 1
    assert "CompileError: plans are made of compiled kernels, and Triton cannot be imported" in without_triton.stderr
    installed = next((tmp_path / "venv").glob("lib/python*/site-packages/portable_softmax"))
    assert all((installed / name).is_file() for name in ("py.typed", "matrix.json", "probe/page/template.html"))
    (tmp_path / "empty").mkdir()
    empty = subprocess.run([str(planned[0]), "report", "empty"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (empty.returncode, "holds no reports" in empty.stderr) == (1, True)


def list_profiles():
    from portable_softmax import profiles

    return profiles()


def test_nothing_is_probed_at_import():
    code = "import sys, portable_softmax; print([m for m in ('torch', 'triton') if m in sys.modules])"
    assert run(sys.executable, "-c", code).strip() == "[]"


def test_every_public_name_is_there_and_documented():
    import portable_softmax

    for name in portable_softmax.__all__:
        assert getattr(portable_softmax, name).__doc__, name
    with pytest.raises(AttributeError, match="has no attribute 'softplus'"):
        _ = portable_softmax.softplus


def test_a_tensor_on_the_cpu_is_computed_by_torch():
    code = """
import torch
from portable_softmax import softmax
x = torch.randn(3, 5)
assert torch.equal(softmax(x, 0, torch.float64), torch.softmax(x, 0, torch.float64))
nested = torch.nested.nested_tensor([x, x])
assert torch.equal(softmax(nested, 1).unbind()[0], torch.softmax(nested, 1).unbind()[0])
for arguments in (([1.0], 0), (x, True), (x, None)):
    try:
        softmax(*arguments)
    except TypeError:
        continue
    raise AssertionError(arguments)
"""
    run(sys.executable, "-c", code)
