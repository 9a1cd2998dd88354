#!/usr/bin/env python3
"""Writes the output of `$ portable-softmax` commands in the documents: `python scripts/consoles.py`; requires Triton 3.8."""

import argparse
import contextlib
import io
import os
import re
import shlex
from pathlib import Path
from unittest import mock

from portable_probe.program import main

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(
    r"^```\n(\$ portable-softmax (?:[^'\\\n]|\\\n|'[^']*')*)\n.*?^```$", re.MULTILINE | re.DOTALL
)  # a command, its output


def filled(page: str) -> str:
    """Returns a page with the output of its commands.

    Raises:
        RuntimeError: a command failed.
    """
    return BLOCK.sub(lambda block: f"```\n{block[1]}\n{_output(block[1])}```", page)


def _output(command: str) -> str:
    arguments = shlex.split(command.replace("\\\n", " "))[2:]
    printed, here = io.StringIO(), Path.cwd()
    os.chdir(ROOT)
    try:
        with mock.patch.dict(os.environ, COLUMNS="120"), contextlib.redirect_stdout(printed):
            code = main(arguments)
    finally:
        os.chdir(here)
    if code:
        raise RuntimeError(f"{command}: exit code {code}\n{printed.getvalue()}")
    return "\n".join(line.rstrip() for line in printed.getvalue().splitlines()) + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    for path in PAGES:
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
