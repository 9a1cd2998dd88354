"""Tables, and files that are written whole."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate


def as_columns(
    header: Sequence[str], rows: Iterable[Sequence[Any]], form: str = "plain", align: Sequence[str] | None = None
) -> str:
    """Returns rows below a header.

    Args:
        header: names of the columns.
        rows: their cells; None is "-".
        form: tabulate's; "github" for Markdown.
        align: "left" or "right" for each column; all are left if None.
    """
    above, body = ((), [header, *rows]) if form == "plain" else (header, list(rows))  # tabulate widens a plain header
    return tabulate(body, above, form, missingval="-", disable_numparse=True, colalign=align)


def many(number: Any, word: str) -> str:
    """Returns a number and what it counts, in the plural unless it is 1."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def write_whole(path: Path, text: str) -> None:
    """Writes a file; an interrupted write leaves the older one."""
    if path.exists() and not path.is_file():  # /dev/stdout, or a pipe
        path.write_text(text)
        return
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
