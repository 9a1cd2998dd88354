"""Says on a terminal how far a long answer is."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
PATIENCE = 1.0  # seconds without a word


def counted_out(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Yields the items, and writes to a terminal's standard error which of them it is, once a second has gone by."""
    begun, shown = time.monotonic(), False
    for number, item in enumerate(items, 1):
        if sys.stderr.isatty() and time.monotonic() - begun > PATIENCE:
            print(f"\r{what} {number} of {len(items)}", end="", file=sys.stderr, flush=True)
            shown = True
        yield item
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
