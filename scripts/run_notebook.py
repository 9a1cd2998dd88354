#!/usr/bin/env python3
"""Runs the cells of examples/will_it_fit.ipynb in order, prints what they print, and writes it into it.

Jupyter does the same; this needs none of it. A test compares what the cells print with what the notebook says.
"""

import argparse
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "examples" / "will_it_fit.ipynb"


def printed(notebook: dict[str, Any]) -> list[str]:
    """Runs the cells of code in one namespace, in the notebook's folder, and returns what each prints."""
    space: dict[str, Any] = {}
    found = []
    sys.path.insert(0, str(NOTEBOOK.parent))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            with contextlib.redirect_stdout(io.StringIO()) as text:
                exec("".join(cell["source"]), space)
            found.append(text.getvalue())
    return found


def kept(notebook: dict[str, Any]) -> list[str]:
    """Returns what the notebook says that its cells print."""
    cells = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    return ["".join(line for output in cell["outputs"] for line in output["text"]) for cell in cells]


def main() -> None:
    """Prints the notebook's outputs, and writes them into it."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell, text in zip(cells, printed(notebook), strict=True):
        print(text, end="")
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}]
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
