"""The README and docs/: links lead somewhere, the README stays a page, and its example prints what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from api_page import PAGE, page

import portable_softmax

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [
    path
    for pattern in ("*.md", "docs/*.md", ".github/*.md", "*/README.md", "scripts/results/*.md")
    for path in ROOT.glob(pattern)
]
CODE = re.compile(r"^```.*?^```|`[^`\n]*`(?!\])", re.MULTILINE | re.DOTALL)  # where `kernel[grid](x)` is no link
LINK = re.compile(r"\]\((?!https?://)([^)#]*)(#[^)]*)?\)")


@pytest.mark.parametrize("page", sorted(set(PAGES)), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target, anchor in LINK.findall(CODE.sub("", page.read_text())):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor[1:] in [heading.lower().replace(" ", "-") for heading in headings], target + anchor


def test_the_readme_is_a_page_with_what_others_refer_to():
    assert len(README.splitlines()) <= 150
    assert "\n## Install\n" in README  # errors of the package name it
    assert "bash scripts/test.sh" in README


def test_pre_commit_lints_with_the_same_ruff():
    pinned = re.search(r'"ruff==([\d.]+)"', (ROOT / "pyproject.toml").read_text())[1]
    assert f"rev: v{pinned}\n" in (ROOT / ".pre-commit-config.yaml").read_text()


def test_the_readmes_example_prints_what_it_says():
    code, printed = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL).groups()
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if "No module named 'torch'" in ran.stderr:
        pytest.skip("the example needs torch")
    rounding = re.compile(r"error \S+e-\d+")
    assert rounding.sub("error", ran.stdout) == rounding.sub("error", printed), ran.stderr


def test_the_api_page_is_that_of_the_docstrings():
    """If not: python scripts/api_page.py."""
    assert PAGE.read_text() == page()
    assert [name for name in portable_softmax.__all__ if f"### {name}\n" not in PAGE.read_text()] == []
    for field in ("`num_programs`: size", "`limits`: programs that each", "`origins`: the origin", "`held`: False where"):
        assert field in PAGE.read_text()
