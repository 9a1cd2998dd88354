"""Keeps what compilers write to standard error short: some write a kernel's whole code."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

LINES = 20


@contextlib.contextmanager
def few_lines_of_compilers() -> Iterator[None]:
    """Lets the first lines through that anything in this process writes to file descriptor 2, and counts the others."""
    try:
        standard_error = os.dup(2)
    except OSError:  # closed
        yield
        return
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(standard_error, 2)
            os.close(standard_error)
            kept.seek(0)
            lines = kept.read().decode(errors="replace").splitlines()
            for line in lines[:LINES]:
                print(line, file=sys.stderr)
            if len(lines) > LINES:
                print(f"... and {len(lines) - LINES} more lines of the compiler's", file=sys.stderr)
