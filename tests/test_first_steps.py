"""All that somebody meets first: names, errors about what is not installed, --help of every script, the demo."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sweep import mostly_slow

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
PYTHON = [*SCRIPTS.glob("*.py"), SCRIPTS / "benchmark"]
SHELL = [path for path in SCRIPTS.glob("*.sh") if path.name != "environment.sh"]  # that is sourced
NOT_OF_THE_DEMO = ("pytest", "hypothesis")  # scripts/environment.sh does not install them


def run(*command, cwd=ROOT, **environment):
    told = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | environment
    return subprocess.run(list(map(str, command)), cwd=cwd, env=told, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def demo_environment(tmp_path_factory):
    """A PYTHONPATH in which nothing can be imported that demo.sh does not install."""
    folder = tmp_path_factory.mktemp("hidden")
    for name in NOT_OF_THE_DEMO:
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')")
    return {"PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT)))}


@pytest.mark.parametrize("name", ["softmax", "override_aten"])
def test_without_torch_an_import_says_what_to_install(name):
    code = f"import sys; sys.modules['torch'] = None; from portable_softmax import {name}"
    outcome = run(sys.executable, "-c", code)
    said = outcome.stderr.splitlines()[-1]
    assert outcome.returncode == 1
    assert said.startswith(f"ImportError: portable_softmax.{name} needs torch; README.md, Install, says")
    assert said.endswith("pip install torch triton 'numpy<2.4'")


@pytest.mark.parametrize("missing", ["triton", pytest.param("numpy", marks=pytest.mark.slow)])
def test_the_interpreter_says_what_it_needs(missing):
    code = f"""
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "{missing}" else find(name, *rest)
import torch, portable_softmax
portable_softmax.softmax(torch.zeros(2, 3))
"""
    said = run(sys.executable, "-c", code, TRITON_INTERPRET="1").stderr.splitlines()[-1]
    assert said.endswith(f"Triton's interpreter needs {missing}: pip install torch triton 'numpy<2.4'")


@pytest.mark.parametrize(
    "script", mostly_slow(PYTHON, lambda path: path.name in ("probe_device.py", "benchmark")), ids=lambda path: path.name
)
def test_a_script_tells_its_options_after_the_demo(script, demo_environment):
    outcome = run(sys.executable, script, "--help", **demo_environment)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith("usage:")


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_a_shell_script_tells_what_it_does(script):
    outcome = run("bash", script, "--help")
    first = script.read_text().splitlines()[1].removeprefix("# ")
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith(first)
    assert "set -eu" not in outcome.stdout


def test_the_demo_names_its_steps_and_ends(tmp_path):
    """All of it but the installation."""
    for name in ("portable_softmax", "portable_probe", "device_profiles", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPTS / "demo.sh", tmp_path / "scripts")
    (tmp_path / "scripts" / "environment.sh").write_text("set_up() { :; }\n")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    outcome = run("bash", tmp_path / "scripts" / "demo.sh", "--rows", 8, cwd=tmp_path, PATH=path, PYTHONPATH=str(tmp_path))
    assert outcome.returncode == 0, outcome.stderr
    assert [f"== Step {number} of 4: " in outcome.stdout for number in (1, 2, 3, 4)] == [True] * 4
    assert "verify    PASS: max error" in outcome.stdout
    assert torch.cuda.is_available() or "Running in Triton's interpreter instead" in outcome.stderr
    assert "nvidia/h200" in outcome.stdout
    assert "RuntimeWarning" not in outcome.stderr
