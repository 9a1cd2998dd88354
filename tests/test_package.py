"""The package as it is released, installed and imported, and first steps: errors, the demo."""

import os
import re
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest
import yaml

import portable_softmax
from portable_softmax.devices import detect

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"


def run(*command, code=0, cwd=ROOT, **environment):
    """Returns what a command prints that ends with that code."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | environment
    ran = subprocess.run(command, cwd=cwd, env=environment, stdout=PIPE, stderr=STDOUT, text=True, check=False, timeout=600)
    assert ran.returncode == code, ran.stdout
    return ran.stdout


def test_the_version_is_the_same_everywhere():
    cited, changed = (yaml.safe_load((ROOT / "CITATION.cff").read_text()), (ROOT / "CHANGELOG.md").read_text())
    released = re.findall(r"^## \[([\d.]+)\] - (\d{4}-\d\d-\d\d)$", changed, re.MULTILINE)
    assert released[0] == (cited["version"], str(cited["date-released"])) == (portable_softmax.__version__, released[0][1])


def test_an_import_imports_little():
    for module in ("portable_softmax", "portable_probe.program"):
        run(sys.executable, "-c", f"import sys, {module}; assert not {{'torch', 'triton'}} & sys.modules.keys()")
    assert {"softmax", "override_aten", "warm_up", "limits", "__version__"} <= set(dir(portable_softmax))
    with pytest.raises(AttributeError, match="has no attribute 'softplus'"):
        _ = portable_softmax.softplus


def test_what_is_not_installed_is_named(monkeypatch):
    for missing, statement, code in (
        ("torch", "from portable_softmax import override_aten", 1),
        ("torch", "from portable_probe.program import main; raise SystemExit(main(['tune']))", 4),
        ("triton", "import portable_softmax; portable_softmax.plan(64, 64, 'float32', 'h200')", 1),
    ):
        printed = run(sys.executable, "-c", f"import sys; sys.modules[{missing!r}] = None; {statement}", code=code)
        assert "pip install torch triton; AMD: pip" in printed.splitlines()[-1], statement
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(portable_softmax.DeviceError, match=r"Triton's interpreter requires triton\. CPU: pip install torch"):
        detect._interpreter.__wrapped__()


@pytest.mark.slow
@pytest.mark.parametrize("interpret", ["0", "1"])
@pytest.mark.parametrize("example", sorted({*(ROOT / "examples").glob("*.py")} - {ROOT / "examples" / "test_my_kernel.py"}))
def test_an_example_runs(example, interpret):
    assert run(sys.executable, example, PYTHONPATH=str(ROOT), TRITON_INTERPRET=interpret)


@pytest.mark.slow
def test_the_demo_names_its_steps_and_ends():
    """All of it but the installation."""
    demo, sourced = SCRIPTS / "demo.sh", "\nsource scripts/environment.sh\n"
    assert sourced in demo.read_text()
    text = demo.read_text().replace(sourced, "\nset_up() { :; }\n")
    printed = run("bash", "-c", text, demo, "--shapes", "8x781", PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert [f"== Step {number} of 4: " in printed for number in (1, 2, 3, 4)] == [True] * 4
    assert "verify    PASS: max error" in printed
