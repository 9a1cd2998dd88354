"""The README, docs/ and examples/: links have targets, and examples and commands run and print what the pages say."""

import json
import re
import runpy
from pathlib import Path

import consoles
import pytest
import torch
import triton
import yaml
from api_page import PAGE, page

import portable_softmax
from portable_probe.program import COMMANDS
from portable_softmax import Device
from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.names import find_profiles

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLES = ROOT / "examples"
PATTERNS = "*.md", "docs/**/*.md", ".github/*.md", "*/README.md", "scripts/results/*.md"
PAGES = sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)})
PYTHON = re.compile(r"^```python\n(.*?)^```\n(?:\n```\n(.*?)```)?", re.MULTILINE | re.DOTALL)  # code, and what it prints
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`(?!\])", re.MULTILINE | re.DOTALL)  # where `kernel[grid](x)` is no link
LINK = re.compile(r"\]\((?!https?://)([^)#]*)(#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_page_names_is_there(page):
    """Targets of links, files, subcommands and extras; examples and help are run by other tests."""
    text = page.read_text()
    for target, anchor in LINK.findall(CODE.sub("", text)):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor[1:] in [heading.lower().replace(" ", "-") for heading in headings], target + anchor
    files = re.findall(r"\b(?:python|bash) ((?:scripts|examples)/[\w./]+)", text)
    assert [path for path in files if not (ROOT / path).exists()] == []
    assert set(re.findall(r"(?:`|\$ |^)portable-softmax ([a-z]+)", text, re.MULTILINE)) <= COMMANDS.keys()
    extras = set(re.findall(r"pip install (?:-e )?'?\.\[(\w+)\]", text))
    assert [extra for extra in extras if f"\n{extra} = [" not in (ROOT / "pyproject.toml").read_text()] == []


def test_pages_are_short_enough_to_read():
    assert max(map(len, README.splitlines())) <= 120 >= len(README.splitlines())
    assert "\n## Install\n" in README  # errors of the package name it
    assert sum(len(page.read_text().splitlines()) for page in PAGES if ROOT / "docs" in page.parents and page != PAGE) <= 1300


@pytest.mark.parametrize("path", consoles.PAGES, ids=lambda path: path.name)
def test_what_is_generated_is_that_of_today(path):
    """If not: python scripts/consoles.py, or python scripts/api_page.py."""
    generated = page() if path == PAGE else consoles.filled(path.read_text())  # each command succeeds
    if path == PAGE or triton.__version__ == "3.8.0":  # others compile to other numbers of registers
        assert generated == path.read_text()
    assert [name for name in portable_softmax.__all__ if path == PAGE and f"### {name}\n" not in generated] == []


@pytest.mark.parametrize(
    ("page", "at"),
    [
        pytest.param("README.md", 0, marks=pytest.mark.kernel),
        pytest.param("examples/sampler.py", None, marks=pytest.mark.kernel),
        pytest.param("docs/row_kernels.md", 0, marks=pytest.mark.slow),
        ("README.md", 1),
        ("docs/log_probs.md", 0),
        pytest.param("docs/usage.md", 1, marks=pytest.mark.filterwarnings("ignore:warm_up")),
        ("docs/testing.md", 0),
        ("examples/will_it_fit.ipynb", None),
        ("examples/my_kernel.py", None),
        ("examples/softmax_and_plan.py", None),
    ],
)
def test_a_quick_example_runs_and_prints_what_its_page_says(page, at, tmp_path, monkeypatch, capsys):
    """A gate is called too. What is printed is that of a CPU and of Triton 3.8, which the notebook is executed with."""
    monkeypatch.syspath_prepend(EXAMPLES)
    text = (ROOT / page).read_text()
    code, expected = (text, "") if at is None else PYTHON.findall(text)[at]
    if page.endswith(".ipynb"):
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        code = "\n".join("".join(cell["source"]) for cell in cells)
        expected = "".join(line for cell in cells for output in cell["outputs"] for line in output["text"])
    file = tmp_path / "example.py"  # Triton reads the source of kernels
    file.write_text(code)
    space = runpy.run_path(str(file), run_name="__main__")
    if expected and triton.__version__ == "3.8.0" and not torch.accelerator.is_available():
        assert capsys.readouterr().out == expected
    if "test_it_fits" in space:
        space["test_it_fits"](Device.from_profile("nvidia/h200"))


def test_the_pipelines_can_be_copied():
    """Both have the same devices, runners and commands, and torch without CUDA comes first; actions are pinned."""
    text, other = ((EXAMPLES / f"ci_three_vendors.{name}").read_text() for name in ("yml", "gitlab-ci.yml"))
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in re.findall(r"uses: (\S+)", text))
    text = re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda name: f"${name[1].upper()}", text).replace("$DEVICES", "$ON")
    github, gitlab = yaml.safe_load(text)["jobs"], yaml.safe_load(other)
    for job in ("compiled", "interpreted", "hardware"):
        commands = "\n".join(step["run"] for step in github[job]["steps"] if "run" in step).splitlines()
        assert commands == gitlab[job]["script"]
        assert commands[0].endswith("/whl/cpu") or job == "hardware"
        assert '"portable-softmax' in commands[job != "hardware"]
    devices = github["compiled"]["strategy"]["matrix"]["devices"]
    assert [{"ON": devices}] == gitlab["compiled"]["parallel"]["matrix"]
    assert all(find_profiles(on.split(",")) for on in devices)
    legs = github["hardware"]["strategy"]["matrix"]["include"]
    assert [{name.upper(): value for name, value in leg.items()} for leg in legs] == gitlab["hardware"]["parallel"]["matrix"]
    assert {leg["device"] for leg in legs} <= BACKENDS.keys()
