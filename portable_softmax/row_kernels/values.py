"""What is known of a program that is traced: its values, loops and accesses."""

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from portable_softmax.row_kernels.ttir import Op

MAX_32_BITS = 2**31
UNKNOWN = 2**62  # elements behind all memory
PROGRAM, COLUMNS = "program", "columns"  # that a value depends on, beside parameters: the second are the elements of a block


def _quotient(a: Any, b: Any) -> Any:
    return np.sign(a) * np.sign(b) * (abs(a) // abs(b))


OPERATORS = "addi add, subi sub, muli mul, andi and_, ori or_, xori xor, shli lshift, shrsi rshift, shrui rshift"
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    **{kind: getattr(operator, name) for kind, name in map(str.split, OPERATORS.split(","))},
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},  # predicates, without their sign
    **dict.fromkeys(("divsi", "divui"), _quotient),
    **dict.fromkeys(("remsi", "remui"), lambda a, b: a - _quotient(a, b) * b),
    **dict.fromkeys(("minsi", "minui"), np.minimum),
    **dict.fromkeys(("maxsi", "maxui"), np.maximum),
}


class Value(NamedTuple):
    """What is known of a value.

    Args:
        number: an integer, an array of a tensor's integers, or a pointer's offset in elements; None if it is unknown.
        root: the parameter that a pointer points to; "" if it is unknown, and for numbers.
        sources: what it depends on: parameters, PROGRAM, COLUMNS.
        key: equal for unknown values that are computed alike; None if the value is known.
        wide: the largest of the 32-bit numbers in its computation that do not fit 32 bits; 0 if all fit.
    """

    number: Any = None
    root: str = ""
    sources: frozenset[str] = frozenset()
    key: Any = None
    wide: int = 0

    @property
    def identity(self) -> Any:
        """Returns what is equal for equal values."""
        return self.root, self.key if self.number is None else digest(self.number)


@dataclass(eq=False)
class Loop:
    """A loop.

    Args:
        op: its operation.
        sources: what its bounds depend on.
        trips: the number of its turns; None if it is unknown.
        is_while: its condition may end it before its trips are known.
        turn: the one that is traced.
    """

    op: Op
    sources: frozenset[str]
    trips: int | None = None
    is_while: bool = False
    turn: int = 0


class Access(NamedTuple):
    """A load, store or atomic operation.

    Args:
        root: parameter that the address points to; "" if it is unknown.
        kind: "load", "store" or "atomic".
        place: equal for accesses to the same elements.
        runs: intervals of elements, [first, end), that no mask hides; None if they are unknown.
        address: of the first element.
        loops, turns: loops around it, outermost first, and the turn of each.
        hides: a mask hides elements, or may.
        sure: no unknown mask, branch or loop decides about it.
        stored: equal for values that are computed and masked alike.
        op: its operation.
    """

    root: str
    kind: str
    place: Any
    runs: Any
    address: Value
    loops: tuple[Loop, ...]
    turns: tuple[int, ...]
    hides: bool
    sure: bool
    stored: Any
    op: Op

    @property
    def of_rows(self) -> tuple[Loop | None, int]:
        """Returns the outermost loop whose turns depend on the program, and its turn; (None, 0) without such a loop."""
        pairs = zip(self.loops, self.turns, strict=True)
        return next(((loop, turn) for loop, turn in pairs if PROGRAM in loop.sources), (None, 0))

    def intervals(self) -> Any:
        """Returns its runs; if they are unknown, one behind all memory, equal for accesses to the same elements alone."""
        start = UNKNOWN + hash(self.place) % UNKNOWN
        return np.array([[start, start + 1]]) if self.runs is None else self.runs

    @property
    def words(self) -> str:
        """Returns it in words, such as "a store to y"."""
        return {"load": "a load of", "store": "a store to", "atomic": "an atomic operation on"}[self.kind] + f" {self.root}"


def number(kind: str, operands: Sequence[Any]) -> Any:
    """Returns the result of an operation of two numbers or arrays; None if it is unknown."""
    if len(operands) != 2 or kind not in ARITHMETIC or any(operand is None for operand in operands):
        return None
    a, b = operands
    if (kind[:3] in ("div", "rem") and np.any(b == 0)) or (kind[:2] == "sh" and not np.all((b >= 0) & (b < 64))):
        return None
    try:
        result = ARITHMETIC[kind](a, b)
    except OverflowError:  # a number and an array of 64 bits
        return None
    return int(result) if np.ndim(result) == 0 else result.astype(np.int64, copy=False)


def digest(value: Any) -> Any:
    """Returns what is equal for equal numbers, and for equal arrays."""
    return hash(value.tobytes()) if isinstance(value, np.ndarray) else value


def wide_of(result: Any) -> int:
    """Returns the number of a 32-bit result that is farthest outside of 32 bits; 0 if all fit."""
    ends = [] if result is None else [int(np.max(result)), int(np.min(result))]
    return max((end for end in ends if not -MAX_32_BITS <= end < MAX_32_BITS), key=abs, default=0)


def ahead(states: Sequence[Value], turns: int | None) -> Value:
    """Returns a value after more turns of a loop: known if all turns so far have changed it by the same number.

    `states` are its values before the last turns and now; `turns` is None if their number is unknown.
    """
    last = states[-1]
    unknown = last._replace(number=None, key=hash(("ahead", last.identity)))
    if any(state.number is None or state.root != last.root for state in states):
        return unknown
    steps = [after.number - before.number for before, after in itertools.pairwise(states)]
    if not steps or len({digest(step) for step in steps}) > 1:
        return unknown if steps else last
    if turns is None:
        return unknown if np.any(steps[0] != 0) else last
    return last._replace(number=last.number + turns * steps[-1])


def runs_of(offsets: Any) -> Any:
    """Returns the intervals of the offsets of elements."""
    flat = offsets.reshape(-1)
    if (flat[1:] <= flat[:-1]).any():
        flat = np.unique(flat)
    cuts = np.flatnonzero(flat[1:] - flat[:-1] != 1)
    return np.stack([flat[np.r_[0, cuts + 1]], flat[np.r_[cuts, -1]] + 1], axis=1)
