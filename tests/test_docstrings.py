"""Docstrings: everything public has one, a function's opens with a verb, and none holds a measurement."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = [
    "portable_softmax",  # its own files; the rooms below hold the others
    "portable_softmax/devices/backends",
    "portable_softmax/probe/page",
    *(
        f"portable_softmax/{room}"
        for room in (
            "api",
            "distributed",
            "operators",
            "testing",
            "probe",
            "tune",
            "runtime",
            "planning",
            "devices",
            "kernels",
            "virtual_amd",
        )
    ),
    "scripts",
    "scripts/benchmark",
    "scripts/benchmark_sharded",
]
# Opens a function's docstring; add yours. "Registers per" and "Copies of" are nouns.
VERB = re.compile(
    r"("
    r"Adds|Allocates|Allows|Answers|Applies|Asks|Begins|Builds|Calls|Captures|Checks|Collects|Compares|"
    r"Compiles|Computes|Converts|Copies|Counts|Cuts|Describes|Does|Draws|Drops|Enters|Estimates|Fills|"
    r"Finds|Forgets|Gathers|Gives|Imports|Joins|Keeps|Launches|Lets|Lists|Loads|Looks|Makes|Maps|"
    r"Measures|Moves|Multiplies|Names|Opens|Parses|Performs|Picks|Plans|Plots|Prepares|Prints|Publishes|"
    r"Raises|Reads|Reduces|Refuses|Registers|Rejects|Releases|Removes|Repeats|Replaces|Returns|Routes|"
    r"Runs|Saves|Says|Selects|Sends|Sets|Shows|Skips|Sorts|Splits|Starts|Stops|Stores|Takes|Tells|"
    r"Times|Translates|Tries|Tunes|Turns|Waits|Walks|Warns|Widens|Wraps|Writes|Yields"
    r")\b(?! (of|per|whose)\b)"
)
OPENINGS = re.compile(r"(Of|What|Those|Whether|As|How|Why)\b")
MEASURED = re.compile(r"\d (GB/s|microseconds|us)\b|\b20\d\d-(0\d|1[0-2])-\d\d\b")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef


def documented(tree: ast.Module) -> Iterator[tuple[Documented, bool]]:
    """Yields the module, its classes and functions, and whether they are public; no function inside another function."""
    inside: list[tuple[ast.AST, bool]] = [(tree, True)]
    for node, public in inside:
        if isinstance(node, Documented):
            yield node, public
        if not isinstance(node, ast.FunctionDef):
            within = [each for each in ast.iter_child_nodes(node) if isinstance(each, Documented | ast.If)]
            inside += [(each, public and getattr(each, "name", "")[:1] != "_") for each in within]


def opening_of(node: ast.AST, text: str) -> str | None:
    """Returns the first word of a docstring if it may not stand there; None if it may."""
    allowed = VERB.match(text) if isinstance(node, ast.FunctionDef) else not OPENINGS.match(text)
    return None if allowed else text.split()[0]


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings(room):
    wrong = []
    for path in sorted((ROOT / room).glob("*.py")):
        for node, public in documented(ast.parse(path.read_text())):
            where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)} {getattr(node, 'name', 'module')}"
            text = ast.get_docstring(node)
            if text is None:
                wrong += [f"{where} has no docstring"] if public else []
            elif opening := opening_of(node, text):
                wanted = "; a function's opens with a verb, see VERB" if isinstance(node, ast.FunctionDef) else ""
                wrong.append(f"{where} opens with {opening!r}{wanted}: {text.splitlines()[0]}")
            elif measured := MEASURED.search(text):
                wrong.append(f"{where} holds a measurement, which belongs to docs/ or a profile's sources: {measured[0]!r}")
    assert not wrong, "\n".join(wrong)


def test_docstrings_of_tests():
    wrong = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            text = ast.get_docstring(node) if isinstance(node, Documented) else None
            if text and OPENINGS.match(text):
                wrong.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)} {text.splitlines()[0]}")
    assert not wrong, "\n".join(wrong)


FUNCTION, CLASS = ast.parse("def f(): pass\nclass C: pass").body
NOUNS = (
    "Rows of a tile.",
    "The maximum.",
    "Of all rows.",
    "(a, b) of rows.",
    "a * b + c.",
    "Registers per thread.",
    "Copies of rows.",
)


@pytest.mark.parametrize("text", NOUNS)
def test_a_function_opens_with_a_verb(text):
    assert opening_of(FUNCTION, text)
    assert not opening_of(FUNCTION, f"Returns {text}")


@pytest.mark.parametrize("text", ["Of all rows.", "Whether it fits."])
def test_a_class_opens_with_a_noun(text):
    assert opening_of(CLASS, text)
    assert not opening_of(CLASS, "Rows of a tile.")


@pytest.mark.parametrize("text", ["At 3800 GB/s on an H200.", "Swept on 2026-11-21."])
def test_measurements_are_found(text):
    assert MEASURED.search(text)
