"""Arithmetic of intervals of integers, by the names of the operations in Triton's IR."""

import operator
from collections.abc import Callable

LIMIT = 2**31
Interval = tuple[int, int]


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "addi": operator.add,
    "subi": operator.sub,
    "muli": operator.mul,
    "divsi": _quotient,
    "divui": _quotient,
    "floordivsi": operator.floordiv,
    "ceildivsi": lambda a, b: -(-a // b),
    **dict.fromkeys(("remsi", "remui"), lambda a, b: a - _quotient(a, b) * b),
    "minsi": min,
    "minui": min,
    "maxsi": max,
    "maxui": max,
    "andi": operator.and_,
    "ori": operator.or_,
    "xori": operator.xor,
    "shli": operator.lshift,
    "shrsi": operator.rshift,
    "shrui": operator.rshift,
}
COMPARISONS = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
BITS = "andi", "ori", "xori"


def computed(kind: str, a: Interval, b: Interval) -> Interval | None:
    """Returns an interval of an operation's results for numbers of two intervals; None if it is unknown."""
    function = ARITHMETIC.get(kind)
    if function is None or (("div" in kind or "rem" in kind) and b[0] <= 0 <= b[1]):
        return None
    if kind.startswith("sh") and not 0 <= b[0] <= b[1] < 64:
        return None
    if a[0] != a[1] or b[0] != b[1]:
        if "rem" in kind:
            most = max(map(abs, b)) - 1
            return (0 if a[0] >= 0 else -most), min(most, max(a[1], 0))
        if kind in BITS and (min(*a, *b) < 0 or max(*a, *b) > 1):
            return None
    numbers = [function(x, y) for x in a for y in b]  # others are monotonic in each operand
    return min(numbers), max(numbers)


def compared(kind: str, a: Interval, b: Interval) -> Interval:
    """Returns 1 and 0 as far as numbers of two intervals all compare so: "slt", "uge", "eq" and others."""
    if kind in ("eq", "ne"):
        least, most = a[0] == a[1] == b[0] == b[1], a[0] <= b[1] and b[0] <= a[1]
        return (int(least), int(most)) if kind == "eq" else (int(not most), int(not least))
    results = [COMPARISONS[kind[-2:]](x, y) for x in a for y in b]
    return int(all(results)), int(any(results))
