"""The package as it is installed and imported."""

import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]


def attempt(*command, cwd):
    return subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)


def run(*command, cwd=ROOT):
    outcome = attempt(*command, cwd=cwd)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the source distributions, and of the wheels that are built from them: of this one and of the emulator."""
    folder = tmp_path_factory.mktemp("built")
    for source in (ROOT, ROOT / "amdgcn_cpu"):
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source)
    return folder


@pytest.mark.parametrize("kind", ["*.whl", pytest.param("*.tar.gz", marks=pytest.mark.slow)])  # the second is built by pip
def test_what_is_released_brings_its_profiles(built, kind, tmp_path):
    """In a venv with nothing but the wheel, or the sources, and dependencies: neither torch nor triton."""
    (released,) = built.glob(f"portable_softmax{kind}")
    venv.create(tmp_path / "venv")
    python, program = (tmp_path / "venv" / "bin" / name for name in ("python", "portable-softmax"))
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check", released)
    code = """
import sys
from portable_softmax import Device, KernelResources, occupancy
from portable_softmax import profiles
device = Device.from_profile("amd/mi100")
print(len(profiles()), occupancy(KernelResources(4, 66, 16), device).programs_per_multiprocessor, "torch" in sys.modules)
"""
    assert run(python, "-c", code, cwd=tmp_path).split() == [str(len(list_profiles())), "3", "False"]
    assert "amd/mi100" in run(program, "profiles", cwd=tmp_path)
    failed = attempt(program, "plan", "--on", "nvidia/h200", cwd=tmp_path)
    assert failed.returncode == 1
    assert "CompileError: plans are made of compiled kernels, and Triton cannot be imported" in failed.stderr
    (installed,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    for name in ("portable_softmax/py.typed", "portable_probe/py.typed"):
        assert (installed / name).is_file()
    (tmp_path / "empty").mkdir()
    failed = attempt(program, "report", "empty", cwd=tmp_path)
    assert (failed.returncode, "holds no reports" in failed.stderr) == (2, True)


@pytest.mark.parametrize("kind", ["*.whl", pytest.param("*.tar.gz", marks=pytest.mark.slow)])
def test_the_emulator_is_released_by_itself_and_the_extra_brings_it(built, kind, tmp_path):
    """In a venv with nothing but the emulator and numpy, and then with what the extra `virtual` asks for."""
    (emulator,), (released,) = built.glob(f"amdgcn_cpu{kind}"), built.glob("portable_softmax*.whl")
    executes = f"""
import sys
from amdgcn_cpu import run
print(run({ENDS!r}, (2, 1, 1), [], num_warps=3, shared_bytes=0), "portable_softmax" in sys.modules)
"""
    venv.create(tmp_path / "venv")
    python, program = (tmp_path / "venv" / "bin" / name for name in ("python", "portable-softmax"))
    for wanted in ([emulator], ["--find-links", built, f"{released}[virtual]"]):
        run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check", *wanted)
        assert run(python, "-I", "-c", executes, cwd=tmp_path).split() == ["6", "False"]
    run(program, "profiles", cwd=tmp_path)


ENDS = """\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
kernel:
\ts_endpgm
.Lfunc_end0:
\t.amdhsa_kernel kernel
\t\t.amdhsa_group_segment_fixed_size 0
\t\t.amdhsa_private_segment_fixed_size 0
\t\t.amdhsa_kernarg_size 0
\t\t.amdhsa_user_sgpr_count 2
\t.end_amdhsa_kernel
"""


def list_profiles():
    from portable_softmax import profiles

    return profiles()


def test_nothing_is_probed_at_import():
    code = "import sys, portable_softmax; print([m for m in ('torch', 'triton') if m in sys.modules])"
    assert run(sys.executable, "-c", code).strip() == "[]"


def test_the_version_is_the_same_everywhere():
    import portable_softmax

    version = portable_softmax.__version__
    cited, changed = (yaml.safe_load((ROOT / "CITATION.cff").read_text()), (ROOT / "CHANGELOG.md").read_text())
    released = re.findall(r"^## \[([\d.]+)\] - (\d{4}-\d\d-\d\d)$", changed, re.MULTILINE)
    assert released[0] == (cited["version"], str(cited["date-released"]))
    assert cited["version"] == version
