"""Output of answers: tables, few lines of a compiler, and a standard output that is closed."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from portable_softmax.row_kernels.compiling import stderr_lines

LINES = 20  # of a compiler


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


@contextlib.contextmanager
def few_lines_of_compilers() -> Iterator[None]:
    """Lets the first lines through that anything in this process writes to file descriptor 2, and counts the others."""
    lines: list[str] = []
    try:
        with stderr_lines() as lines:
            yield
    finally:
        if len(lines) > LINES:
            lines[LINES:] = [f"... and {len(lines) - LINES} more lines of the compiler's"]
        for line in lines:
            print(line, file=sys.stderr)


def write_whole(path: Path, text: str) -> None:
    """Writes a file; a write that is cut short leaves an older one, and another process may write the same."""
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


def delivered(answer: Callable[[], int]) -> int:
    """Prints an answer, and returns its exit code, or 1 if standard output does not take it.

    Args:
        answer: prints, and returns the exit code. An OSError that it raises is standard output's.
    """
    if sys.stdout is None:
        print("the answer has nowhere to go: standard output is closed", file=sys.stderr)
        return 1
    try:
        code = answer()
        sys.stdout.flush()
        return code
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the interpreter's own flush
        if isinstance(error, BrokenPipeError):  # nobody reads on: `... | head`
            return 0
        print(f"the answer cannot be written: {error}", file=sys.stderr)
        return 1
