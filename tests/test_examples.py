"""Examples run as they are; each is named in examples/README.md."""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from sweep import mostly_slow

from portable_softmax.devices.detect import interpreting

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py") if not path.name.startswith("test_"))
# Those that compile for devices that are not here, which the interpreter cannot.
COMPILE = {"my_kernel.py", "new_device.py", "softmax_and_plan.py", "warm_up_at_start.py"}
WORKFLOW = yaml.safe_load((EXAMPLES / "ci_three_vendors.yml").read_text())
INTERPRETED = "sampler.py"  # in the default run
FIRST = {"my_kernel.py", "sampler.py", "softmax_and_plan.py", "vocab_parallel.py"}  # there too, on a CPU or offline
SECONDS = 120


def run(*command, **environment):
    # The checkout that is tested, wherever the package is installed from.
    told = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), **environment}
    for name in [name for name, value in told.items() if value is None]:
        del told[name]
    ran = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("name", mostly_slow(SCRIPTS, lambda name: name in FIRST))
def test_an_example_runs(name):
    assert run(sys.executable, f"examples/{name}", TRITON_INTERPRET=None).strip()


@pytest.mark.parametrize(
    "name", mostly_slow([name for name in SCRIPTS if name not in COMPILE], lambda name: name == INTERPRETED)
)
def test_an_example_runs_its_kernel_in_the_interpreter(name):
    assert run(sys.executable, f"examples/{name}", TRITON_INTERPRET="1").strip()


def test_every_example_is_named():
    told = (EXAMPLES / "README.md").read_text()
    files = [path.name for path in EXAMPLES.iterdir() if path.is_file() and path.name != "README.md"]
    assert [name for name in files if f"({name})" not in told] == []


def test_the_notebook_prints_what_it_says(monkeypatch):
    """If not: jupyter nbconvert --to notebook --inplace --execute. Other releases of Triton compile to other registers."""
    import triton

    if interpreting():
        pytest.skip("the interpreter compiles nothing")
    monkeypatch.syspath_prepend(EXAMPLES)
    space = {}
    for cell in json.loads((EXAMPLES / "will_it_fit.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec("".join(cell["source"]), space)
            told = "".join(line for output in cell["outputs"] for line in output["text"])
            assert printed.getvalue() == told or (told and triton.__version__ != "3.8.0")


def test_the_workflows_actions_are_pinned():
    uses = re.findall(r"uses: (\S+)", (EXAMPLES / "ci_three_vendors.yml").read_text())
    assert uses
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each) for each in uses)


def test_the_workflow_is_of_another_project():
    """It installs this package from somewhere else, and each line to change is marked."""
    text = (EXAMPLES / "ci_three_vendors.yml").read_text()
    installs = [
        step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "pip install" in step.get("run", "")
    ]
    assert len(installs) == 2
    assert all("@ $PORTABLE_SOFTMAX" in each and " -e " not in each for each in installs)
    assert WORKFLOW["env"].keys() == {"PORTABLE_SOFTMAX", "TESTS"}
    assert text.count("CHANGE:") == 3


@pytest.mark.slow
@pytest.mark.parametrize("step", WORKFLOW["jobs"]["compiled"]["steps"][2:], ids=lambda step: step["run"][-20:])
def test_the_workflows_steps_without_a_device_run(step):
    command = shlex.split(step["run"].replace("$TESTS", "examples/test_my_kernel.py"))
    assert command[0] == "python"
    assert "passed" in run(sys.executable, *command[1:], TRITON_INTERPRET=None)


def test_the_workflows_jobs_are_for_devices_that_there_are():
    from portable_softmax.devices.backends import BACKENDS

    legs = WORKFLOW["jobs"]["hardware"]["strategy"]["matrix"]["include"]
    assert {leg["device"] for leg in legs} <= BACKENDS.keys()
    assert len({leg["vendor"] for leg in legs}) == 3
    words = WORKFLOW["jobs"]["hardware"]["steps"][-1]["run"]
    assert "--require ${{ matrix.device }}" in words
    assert "--device ${{ matrix.device }}" in words
