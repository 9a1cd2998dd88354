"""Kernels stay short enough to be read."""

import ast
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "portable_softmax" / "kernels").rglob("*.py"))
MOST_PARAMETERS, MOST_LINES, OF_A_FILE = 16, 100, 200
LONGER = {"softmax_kernel": 26, "do_alone": 23, "find_folded": 23}  # parameters of the entry, and of the fallback


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_and_functions_are_short(path):
    text = path.read_text()
    assert len(text.splitlines()) <= OF_A_FILE
    for function in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)):
        assert len(function.args.args) <= LONGER.get(function.name, MOST_PARAMETERS), function.name
        assert function.end_lineno - function.lineno < MOST_LINES, function.name
