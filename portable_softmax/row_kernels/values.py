"""What is known of a program that is traced: its values, loops and accesses."""

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from portable_softmax.row_kernels.ttir import SAME, Op

MAX_32_BITS = 2**31
UNKNOWN = 2**62  # elements behind all memory
PROGRAM, COLUMNS = "program", "columns"  # that a value depends on, beside parameters: the second are the elements of a block
WORDS = {"load": "a load of", "store": "a store to", "atomic": "an atomic operation on"}


def _quotient(a: Any, b: Any) -> Any:
    return np.sign(a) * np.sign(b) * (abs(a) // abs(b))


OPERATORS = "addi add, subi sub, muli mul, andi and_, ori or_, xori xor, shli lshift, shrsi rshift, shrui rshift"
ARITHMETIC: dict[str, Callable[..., Any]] = {
    **{kind: getattr(operator, name) for kind, name in map(str.split, OPERATORS.split(","))},
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},  # comparisons, without their sign
    **dict.fromkeys(("divsi", "divui"), _quotient),
    **dict.fromkeys(("remsi", "remui"), lambda a, b: a - _quotient(a, b) * b),
    **dict.fromkeys(("minsi", "minui"), np.minimum),
    **dict.fromkeys(("maxsi", "maxui"), np.maximum),
    "select": np.where,
}


class Value(NamedTuple):
    """What is known of a number, a tensor of numbers, or a pointer."""

    number: Any = None  # int64, or an array of them; of a pointer its offset in elements; None if it is unknown
    root: str = ""  # the parameter that a pointer points to; "" if it is unknown, and for numbers
    sources: frozenset[str] = frozenset()  # parameters, PROGRAM and COLUMNS that it depends on
    key: Any = None  # of an unknown value: equal for those that are computed alike
    wide: int = 0  # the largest of the 32-bit numbers it is computed from that do not fit; 0 if all do

    @property
    def identity(self) -> Any:
        """Returns what is equal for equal values."""
        return self.root, self.key if self.number is None else self.number.tobytes()


@dataclass(eq=False)
class Loop:
    """A loop that is traced."""

    op: Op
    sources: frozenset[str]  # what its turns depend on
    trips: int | None  # all of its turns; None if they are unknown


class Access(NamedTuple):
    """A load, store or atomic operation."""

    op: Op
    kind: str  # "load", "store" or "atomic"
    root: str  # the parameter that the address points to; "" if it is unknown
    address: Value
    runs: Any  # intervals of elements, [first, end), that no mask hides; of an unknown place one of its own behind all memory
    loops: tuple[tuple[Loop, int], ...]  # around it, outermost first, and their turns
    hides: bool  # a mask hides elements, or may
    sure: bool  # its elements are known, and that it is made
    stored: Any  # equal for values that are computed and masked alike

    @property
    def is_known(self) -> bool:
        """True if its elements are known, but for an unknown mask."""
        return bool(self.runs[0, 0] < UNKNOWN)

    @property
    def place(self) -> Any:
        """Returns what is equal for accesses of a kind to the same elements."""
        return self.root, self.kind, self.runs.tobytes()

    @property
    def of_rows(self) -> tuple[Loop | None, int]:
        """Returns the outermost loop with turns that depend on the program, and its turn; (None, 0) without such a loop."""
        return next(((loop, turn) for loop, turn in self.loops if PROGRAM in loop.sources), (None, 0))

    @property
    def words(self) -> str:
        """Returns it in words, such as "a store to y"."""
        return f"{WORDS[self.kind]} {self.root}"


def sources_of(values: Sequence[Value]) -> frozenset[str]:
    """Returns what values depend on."""
    return frozenset().union(*(value.sources for value in values))


def unknown(what: str, values: Sequence[Value], root: str = "") -> Value:
    """Returns an unknown value that is computed from others; `what` is the operation in words."""
    wide = max((value.wide for value in values), key=abs, default=0)
    return Value(None, root, sources_of(values), hash((what, *(value.identity for value in values))), wide)


def computed(op: Op, operands: Sequence[Value]) -> Any:
    """Returns the number that an operation computes; None if it is unknown."""
    numbers, kind = [one.number for one in operands], op.kind
    if kind in ("constant", "make_range"):
        return op.literal
    if any(one is None for one in numbers):
        return None
    if kind == "expand_dims" and numbers[0].ndim:
        return np.expand_dims(numbers[0], op.axis)
    if kind in SAME:
        return numbers[0]
    if kind == "addptr":
        return numbers[0] + numbers[1]
    if (
        kind not in ARITHMETIC
        or any(one.root for one in operands)
        or (kind.startswith(("div", "rem")) and not np.all(numbers[1]))
    ):
        return None
    return ARITHMETIC[kind](*numbers).astype(np.int64)


def wide_of(result: Any) -> int:
    """Returns the number in a 32-bit result that exceeds 32 bits by most; 0 if all fit."""
    ends = int(np.max(result)), int(np.min(result))
    return max((end for end in ends if not -MAX_32_BITS <= end < MAX_32_BITS), key=abs, default=0)


def trips_of(bounds: Sequence[Value]) -> int | None:
    """Returns the turns of a loop from a first number to an end, in steps; None if they are unknown."""
    numbers = [bound.number for bound in bounds]
    if not numbers or any(one is None for one in numbers) or not numbers[2]:
        return None
    return len(range(*map(int, numbers)))


def ahead(states: Sequence[Value], turns: int | None) -> Value:
    """Returns a value after more turns of a loop, None for an unknown number: known if all turns change it alike.

    `states` are its values before the last turns and now.
    """
    last = states[-1]
    if turns == 0:
        return last
    if all(state.number is not None and state.root == last.root for state in states):
        steps = [later.number - earlier.number for earlier, later in itertools.pairwise(states)]
        if not steps or (turns is None and not np.any(steps)):
            return last
        if turns and len({step.tobytes() for step in steps}) == 1:
            return last._replace(number=last.number + turns * steps[0])
    return last._replace(number=None, key=hash(("ahead", last.identity)))


def runs_of(offsets: Any) -> Any:
    """Returns the intervals of the offsets of elements."""
    flat = offsets.reshape(-1)
    if (flat[1:] <= flat[:-1]).any():
        flat = np.unique(flat)
    cuts = np.flatnonzero(flat[1:] - flat[:-1] != 1)
    return np.stack([flat[np.r_[0, cuts + 1]], flat[np.r_[cuts, -1]] + 1], axis=1)
