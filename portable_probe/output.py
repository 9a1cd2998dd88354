"""Tables, and numbers with their words and units."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from tabulate import tabulate


def as_columns(
    header: Sequence[str], rows: Iterable[Sequence[Any]], form: str = "plain", align: Sequence[str] | None = None
) -> str:
    """Returns rows below a header.

    Args:
        header: names of the columns.
        rows: their cells; None is "-".
        form: tabulate's; "github" for Markdown, where text stays one cell whatever a kernel or a file is called.
        align: "left" or "right" for each column; all are left if None.
    """
    if form != "plain":
        rows = [[cell if cell is None else _one_cell(str(cell)) for cell in row] for row in rows]
    above, body = ((), [header, *rows]) if form == "plain" else (header, list(rows))  # tabulate widens a plain header
    return tabulate(body, above, form, missingval="-", disable_numparse=True, colalign=align)


def _one_cell(text: str) -> str:
    return re.sub(r"[|<]|\](?=\()", r"\\\g<0>", " ".join(text.split()))


def many(number: Any, word: str) -> str:
    """Returns a number and what it counts, in the plural unless it is 1."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def in_units(number: float, unit: str) -> str:
    """Returns a number of bytes or seconds with three digits, in a unit that suits it."""
    prefix, size = next(
        ((p, 10.0**n) for p, n in zip("TGMk m", (12, 9, 6, 3, 0, -3), strict=True) if number >= 10.0**n), ("u", 1e-6)
    )
    return f"{number / size:.3g} {prefix.strip()}{unit}"
