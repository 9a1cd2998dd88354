"""Docstrings: none opens with a word that says nothing, and none holds a measurement. Ruff sees to the rest (D)."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOUSES = "portable_softmax", "portable_probe", "amdgcn_cpu/src", "scripts"
FILES = [path for house in HOUSES for path in (ROOT / house).rglob("*.py")]
WRONG = re.compile(
    r"^(Of|What|Those|Whether|As|How|Why)\b"  # open with a verb, or a noun that stands alone
    r"|\d (GB/s|microseconds|us)\b|\b20\d\d-(0\d|1[0-2])-\d\d\b"  # which belongs to docs/ or a profile's sources
)


def test_docstrings():
    wrong = []
    for path in sorted(FILES):
        for node in ast.walk(ast.parse(path.read_text())):
            text = ast.get_docstring(node) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else None
            if found := WRONG.search(text or ""):
                wrong.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: {found[0]!r}")
    assert not wrong, "\n".join(wrong)
    assert all(map(WRONG.search, ("Of all rows.", "Whether it fits.", "At 3800 GB/s on an H100.", "Swept on 2026-11-21.")))
    assert not WRONG.search("Returns the rows of a tile.")
