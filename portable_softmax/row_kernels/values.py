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
WORDS = {"load": "a load of", "store": "a store to", "atomic": "an atomic operation on"}


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
    """What is known of a number, a tensor of numbers, or a pointer."""

    number: Any = None  # an integer, an array of integers, or a pointer's offset in elements; None if it is unknown
    root: str = ""  # the parameter that a pointer points to; "" if it is unknown, and for numbers
    sources: frozenset[str] = frozenset()  # parameters, PROGRAM and COLUMNS that it depends on
    key: Any = None  # of an unknown value: equal for those that are computed alike
    wide: int = 0  # the largest of the 32-bit numbers it is computed from that do not fit; 0 if all do

    @property
    def identity(self) -> Any:
        """Returns what is equal for equal values."""
        return self.root, self.key if self.number is None else digest(self.number)


@dataclass(eq=False)
class Loop:
    """A loop that is traced."""

    op: Op
    sources: frozenset[str]  # what its bounds depend on
    trips: int | None = None  # all of its turns; None if they are unknown
    is_while: bool = False  # its condition may end it before its trips are known
    turn: int = 0  # that is traced


class Access(NamedTuple):
    """A load, store or atomic operation."""

    root: str  # parameter that the address points to; "" if it is unknown
    kind: str  # "load", "store" or "atomic"
    place: Any  # equal for accesses to the same elements
    runs: Any  # intervals of elements, [first, end), that no mask hides; None if they are unknown
    address: Value
    loops: tuple[Loop, ...]  # around it, outermost first
    turns: tuple[int, ...]  # of these
    hides: bool  # a mask hides elements, or may
    sure: bool  # no unknown mask, branch or loop decides about it
    stored: Any  # equal for values that are computed and masked alike
    op: Op

    @property
    def of_rows(self) -> tuple[Loop | None, int]:
        """Returns the outermost loop whose turns depend on the program, and its turn; (None, 0) without such a loop."""
        pairs = zip(self.loops, self.turns, strict=True)
        return next(((loop, turn) for loop, turn in pairs if PROGRAM in loop.sources), (None, 0))

    @property
    def intervals(self) -> Any:
        """Returns its runs; if they are unknown, one behind all memory, equal for accesses to the same elements alone."""
        start = UNKNOWN + hash(self.place) % UNKNOWN
        return np.array([[start, start + 1]]) if self.runs is None else self.runs

    @property
    def words(self) -> str:
        """Returns it in words, such as "a store to y"."""
        return f"{WORDS[self.kind]} {self.root}"


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
    """Returns a value after more turns of a loop, whose number may be unknown: known if all turns change it alike.

    `states` are its values before the last turns and now.
    """
    last = states[-1]
    unknown = last._replace(number=None, key=hash(("ahead", last.identity)))
    if any(state.number is None or state.root != last.root for state in states):
        return unknown
    steps = [after.number - before.number for before, after in itertools.pairwise(states)]
    if not steps:
        return last
    if len({digest(step) for step in steps}) > 1 or (turns is None and np.any(steps[0] != 0)):
        return unknown
    return last._replace(number=last.number + (turns or 0) * steps[-1])


def runs_of(offsets: Any) -> Any:
    """Returns the intervals of the offsets of elements."""
    flat = offsets.reshape(-1)
    if (flat[1:] <= flat[:-1]).any():
        flat = np.unique(flat)
    cuts = np.flatnonzero(flat[1:] - flat[:-1] != 1)
    return np.stack([flat[np.r_[0, cuts + 1]], flat[np.r_[cuts, -1]] + 1], axis=1)
