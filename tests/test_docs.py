"""The README, docs/ and examples/: links have targets, and examples and commands run and print what the pages say."""

import json
import re
import runpy
from pathlib import Path

import generated
import pytest
import torch
import triton

import portable_softmax
from portable_probe.program import COMMANDS
from portable_softmax import Device

ROOT = Path(__file__).parents[1]
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


@pytest.mark.parametrize("path", generated.PAGES, ids=lambda path: path.name)
def test_what_is_generated_is_that_of_today(path, monkeypatch):
    """If not: python scripts/generated.py."""
    monkeypatch.chdir(ROOT)
    page = generated.generated(path)  # each command succeeds
    if path == generated.API or triton.__version__ == "3.8.0":  # others compile to other numbers of registers
        assert page == path.read_text()
    assert [name for name in portable_softmax.__all__ if path == generated.API and f"### {name}\n" not in page] == []


@pytest.mark.parametrize(
    ("page", "at"),
    [
        pytest.param("README.md", 0, marks=pytest.mark.kernel),
        pytest.param("examples/sampler.py", None, marks=pytest.mark.kernel),
        pytest.param("docs/row_kernels.md", 0, marks=pytest.mark.slow),
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
