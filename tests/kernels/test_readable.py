"""Kernels stay short enough to be read."""

import ast
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "portable_softmax" / "kernels").rglob("*.py"))
MOST_PARAMETERS, OF_AN_ENTRY, MOST_LINES, OF_A_FILE = 24, 16, 70, 200
OF_SCORES = 24  # parameters of an entry that has a mask, factors and sinks too


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_functions_and_entries_are_short(path):
    text, of_an_entry = path.read_text(), OF_SCORES if path.stem == "scored" else OF_AN_ENTRY
    assert len(text.splitlines()) <= OF_A_FILE
    for function in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)):
        parameters = len(function.args.args)
        assert parameters <= (of_an_entry if function.name.endswith("_kernel") else MOST_PARAMETERS), function.name
        assert function.end_lineno - function.lineno < MOST_LINES, function.name
