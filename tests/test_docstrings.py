"""Docstrings: everything public has one, which opens with a verb or a noun that stands alone, and holds no measurement."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = [
    "portable_softmax",  # its own files; the rooms below hold the others
    "portable_softmax/devices/backends",
    "portable_softmax/kernels/special",
    "portable_softmax/probe/page",
    *(
        f"portable_softmax/{room}"
        for room in ("torch_api", "distributed", "testing", "probe", "runtime", "planning", "devices", "kernels", "virtual_amd")
    ),
    "scripts",
    "scripts/benchmark",
]
OPENINGS = re.compile(r"(Of|What|Those|Whether|As|How|Why)\b")
MEASURED = re.compile(r"\d (GB/s|microseconds|us)\b|\b20\d\d-(0\d|1[0-2])-\d\d\b")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef


def documented(tree: ast.Module) -> Iterator[tuple[Documented, bool]]:
    """Yields the module, its classes and functions, and whether they are public; not what functions define inside."""
    inside: list[tuple[Documented, bool]] = [(tree, True)]
    for node, public in inside:
        yield node, public
        if not isinstance(node, ast.FunctionDef):
            inside += [
                (each, public and each.name[0] != "_") for each in node.body if isinstance(each, ast.ClassDef | ast.FunctionDef)
            ]


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings(room):
    wrong = []
    for path in sorted((ROOT / room).glob("*.py")):
        for node, public in documented(ast.parse(path.read_text())):
            where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)} {getattr(node, 'name', 'module')}"
            text = ast.get_docstring(node)
            if text is None:
                wrong += [f"{where} has no docstring"] if public else []
            elif opening := OPENINGS.match(text):
                wrong.append(f"{where} opens with {opening[0]!r}: {text.splitlines()[0]}")
            elif measured := MEASURED.search(text):
                wrong.append(f"{where} holds a measurement, which belongs to docs/ or a profile's sources: {measured[0]!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("text", ["Of all rows.", "Whether it fits.", "At 3800 GB/s on an H200.", "Swept on 2026-11-21."])
def test_the_rules_find_what_they_forbid(text):
    assert OPENINGS.match(text) or MEASURED.search(text)
    assert not OPENINGS.match("Offsets of rows.")
