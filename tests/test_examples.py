"""Examples run as they are, on a CPU and in Triton's interpreter; those of models and samplers agree with plain formulas."""

import contextlib
import io
import json
import os
import re
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
WORKFLOW = yaml.safe_load((EXAMPLES / "ci_three_vendors.yml").read_text())
STEPS = {job: WORKFLOW["jobs"][job]["steps"][-1]["run"] for job in ("compiled", "interpreted")}
QUICK = {("my_kernel.py", None), ("softmax_and_plan.py", None), ("sampler.py", "1")}


def run(*command, **environment):
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), **environment}
    variables = {name: value for name, value in variables.items() if value is not None}
    ran = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize(
    ("name", "interpret"),
    mostly_slow([(name, interpret) for name in SCRIPTS for interpret in (None, "1")], lambda *case: case in QUICK),
)
def test_an_example_runs(name, interpret):
    assert run(sys.executable, f"examples/{name}", TRITON_INTERPRET=interpret).strip()


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
            text = "".join(line for output in cell["outputs"] for line in output["text"])
            assert printed.getvalue() == text or (text and triton.__version__ != "3.8.0")


def test_the_pipelines_can_be_copied():
    """Both install this package and have the same matrix of devices; actions are pinned, and devices exist."""
    from portable_softmax.devices.backends import BACKENDS
    from portable_softmax.devices.names import find_profiles

    text = (EXAMPLES / "ci_three_vendors.yml").read_text()
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in re.findall(r"uses: (\S+)", text))
    for pipeline in (text, (EXAMPLES / "ci_three_vendors.gitlab-ci.yml").read_text()):
        installs = re.findall(r"pip install (.*)", pipeline)
        assert len(installs) == 3
        assert all("@ $PORTABLE_SOFTMAX" in install for install in installs)
    jobs, gitlab = WORKFLOW["jobs"], yaml.safe_load(pipeline)
    ons = jobs["compiled"]["strategy"]["matrix"]["devices"]
    assert ons == gitlab["compiled"]["parallel"]["matrix"][0]["ON"]
    assert all(find_profiles([on]) for on in ons)
    legs = jobs["hardware"]["strategy"]["matrix"]["include"]
    assert [leg["device"] for leg in legs] == [leg["DEVICE"] for leg in gitlab["hardware"]["parallel"]["matrix"]]
    assert {leg["device"] for leg in legs} <= BACKENDS.keys()
    for job in ("compiled", "interpreted"):
        assert STEPS[job].replace("${{ matrix.devices }}", "$ON") == gitlab[job]["script"][-1]
