"""Docstrings: none opens with a word that says nothing, and none holds a measurement. Ruff sees to the rest (D)."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path
    for room in ("portable_softmax", "portable_probe", "amdgcn_cpu", "scripts", "tests")
    for path in (ROOT / room).rglob("*.py")
)
OPENINGS = re.compile(r"(Of|What|Those|Whether|As|How|Why)\b")
MEASURED = re.compile(r"\d (GB/s|microseconds|us)\b|\b20\d\d-(0\d|1[0-2])-\d\d\b")


def complaints(text, of_tests=False):
    """Yields what is wrong with a docstring."""
    if opening := OPENINGS.match(text):
        yield f"it opens with {opening[0]!r}; open with a verb, or a noun that stands alone"
    if not of_tests and (measured := MEASURED.search(text)):
        yield f"it holds a measurement, which belongs to docs/ or a profile's sources: {measured[0]!r}"


def test_docstrings():
    wrong = []
    for path in FILES:
        of_tests = "tests" in path.relative_to(ROOT).parts
        for node in ast.walk(ast.parse(path.read_text())):
            text = ast.get_docstring(node) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else None
            where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
            wrong += [f"{where} {each}" for each in complaints(text or "", of_tests)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("text", ["Of all rows.", "Whether it fits.", "At 3800 GB/s on an H100.", "Swept on 2026-11-21."])
def test_what_is_found(text):
    assert list(complaints(text))
    assert not list(complaints("Returns the rows of a tile."))
