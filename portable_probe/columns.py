"""Rows as a table of text: the one form of all tables."""

from collections.abc import Iterable, Sequence
from typing import Any

from tabulate import tabulate


def as_columns(
    header: Sequence[str], rows: Iterable[Sequence[Any]], form: str = "plain", align: Sequence[str] | None = None
) -> str:
    """Returns rows below a header.

    Args:
        header: names of the columns.
        rows: what stands in them; None is "-".
        form: of tabulate; "github" for Markdown.
        align: "left" or "right" for each column; all are left if None.
    """
    above, body = ((), [header, *rows]) if form == "plain" else (header, list(rows))  # tabulate widens a plain header
    return tabulate(body, above, form, missingval="-", disable_numparse=True, colalign=align)


def many(number: Any, word: str) -> str:
    """Returns a number and what it counts, in the plural unless it is 1."""
    return f"{number} {word}{'' if number == 1 else 's'}"
