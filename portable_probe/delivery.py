"""Brings an answer to standard output, which may be closed, full, or read no further."""

import os
import sys
from collections.abc import Callable


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
