"""Values of programs that are followed: numbers, arrays of a tensor's numbers, pointers; and accesses."""

import itertools
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from portable_softmax.row_kernels.ttir import Op

AXIS = re.compile(r"axis = (\d+)")
ORDER = re.compile(r"order = array<i32: ([\d, ]+)>")

UNKNOWN = 2**62  # elements


def _quotient(a: Any, b: Any) -> Any:
    return abs(a) // abs(b) * (1 - 2 * ((a < 0) ^ (b < 0)))


OPERATORS = "addi add, subi sub, muli mul, andi and_, ori or_, xori xor, shli lshift, shrsi rshift, shrui rshift"
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    **{kind: getattr(operator, name) for kind, name in map(str.split, OPERATORS.split(","))},
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},  # predicates, without their sign
    **dict.fromkeys(("divsi", "divui"), _quotient),
    **dict.fromkeys(("remsi", "remui"), lambda a, b: a - _quotient(a, b) * b),
    **dict.fromkeys(("minsi", "minui"), np.minimum),
    **dict.fromkeys(("maxsi", "maxui"), np.maximum),
}


class Known(NamedTuple):
    """What is known of a value.

    Args:
        value: a number, an array of a tensor's numbers, or a pointer; None if it is unknown.
        sources: what it depends on.
        key: equal for unknown values that are computed alike.
    """

    value: Any = None
    sources: frozenset[str] = frozenset()
    key: Any = None

    @property
    def identity(self) -> Any:
        """Returns what is equal for equal values."""
        if isinstance(self.value, Pointer):
            return self.value.root, self.key if self.value.offset is None else digest(self.value.offset)
        return self.key if self.value is None or isinstance(self.value, Partly) else digest(self.value)


class Partly(NamedTuple):
    """A mask of which only some elements are known, those that are 0."""

    most: Any


class Pointer(NamedTuple):
    """A parameter that points to memory, and offsets in elements; None if they are unknown."""

    root: str
    offset: Any


class Access(NamedTuple):
    """A load, store or atomic operation, or the number of a program along an axis other than 0.

    Args:
        root: parameter that points to the memory; "" if it is unknown.
        kind: "load", "store", "atomic" or "axis".
        offset: of the first element, in elements, None if it is unknown; or the axis.
        place: equal for accesses to the same elements.
        runs: intervals of elements, [first, end), that no mask hides; None if they are unknown.
        sources: what the address depends on.
        loops: numbers of the loops around it, outermost first.
        elements: of the tensor.
        size: bytes of an element.
        hides: a mask hides elements, or may.
        sure: no unknown mask, branch or loop decides about it.
        turn, turns: of the outermost loop around it that depends on the program, and all of its turns.
        stored: equal for values that are computed alike.
        line: of the kernel's source.
    """

    root: str
    kind: str
    offset: int | None
    place: Any = None
    runs: Any = None
    sources: frozenset[str] = frozenset()
    loops: tuple[int, ...] = ()
    elements: int = 0
    size: int = 1
    hides: bool = False
    sure: bool = True
    turn: int = 0
    turns: int = 1
    stored: Any = None
    line: str = ""

    def intervals(self) -> list[list[int]]:
        """Returns its runs; if they are unknown, one behind all memory, equal for accesses to the same elements alone."""
        start = UNKNOWN + hash(self.place) % UNKNOWN
        return [[start, start + 1]] if self.runs is None else self.runs.tolist()

    @property
    def words(self) -> str:
        """Returns it in words, such as "a store to y"."""
        return f"{'an' if self.kind == 'atomic' else 'a'} {self.kind} {'of' if self.kind == 'load' else 'to'} {self.root}"


def number(kind: str, operands: Sequence[Any]) -> Any:
    """Returns the result of an operation of two numbers or arrays; None if it is unknown."""
    if kind == "andi" and not are_numbers(operands):
        known = [getattr(operand, "most", operand) for operand in operands if operand is not None]
        most = known[0] if len(known) == 1 else number(kind, known)
        return Partly(most) if isinstance(most, np.ndarray) else 0 if isinstance(most, int) and most == 0 else None
    if len(operands) != 2 or kind not in ARITHMETIC or not are_numbers(operands):
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


def are_numbers(values: Sequence[Any]) -> bool:
    """True if all values are numbers or arrays."""
    return all(isinstance(value, int | np.ndarray) for value in values)


def shaped(value: Any, op: Op, kind: str) -> Any:
    """Returns a tensor with other dimensions; dimensions along which it is the same have one element."""
    if isinstance(value, Partly):
        return Partly(shaped(value.most, op, kind))
    if not isinstance(value, np.ndarray):
        return value if isinstance(value, int) else None
    if kind == "expand_dims":
        return np.expand_dims(value, int(AXIS.search(op.text)[1]))  # type: ignore[index]
    if kind == "trans":
        return value.transpose([int(axis) for axis in ORDER.search(op.text)[1].split(",")])  # type: ignore[index]
    before, after = op.shapes[-2:]
    return np.broadcast_to(value, before).reshape(after)


def runs_of(offsets: Any) -> Any:
    """Returns the intervals of the offsets of elements."""
    flat = offsets.reshape(-1)
    if (flat[1:] <= flat[:-1]).any():
        flat = np.unique(flat)
    cuts = np.flatnonzero(flat[1:] - flat[:-1] != 1)
    return np.stack([flat[np.r_[0, cuts + 1]], flat[np.r_[cuts, -1]] + 1], axis=1)


def extended(states: Sequence[Known], turns: int | None) -> Known:
    """Returns a value after more turns, if it has changed by the same amount in all turns before; else what is left of it."""
    value, sources, _ = known = states[-1]
    is_pointer = isinstance(value, Pointer)
    numbers = [getattr(state.value, "offset", state.value) for state in states]
    unknown = Known(value._replace(offset=None) if is_pointer else None, sources, hash(("extended", known.identity)))
    if not are_numbers(numbers) or (is_pointer and any(state.value.root != value.root for state in states)):
        return unknown if value is not None else known
    steps = [after - before for before, after in itertools.pairwise(numbers)]
    if len({digest(step) for step in steps}) > 1 or (turns is None and np.any(steps[0] != 0)):
        return unknown
    end = numbers[-1] + (turns or 0) * steps[-1] if steps else numbers[-1]
    return Known(value._replace(offset=end) if is_pointer else end, sources)
