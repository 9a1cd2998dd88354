"""Reads Triton's IR (TTIR) as a tree of operations, and computes their integers and the offsets of pointers."""

import functools
import itertools
import json
import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from portable_softmax.row_kernels.decorators import constants_of

LOCATION = re.compile(r"\s*\bloc\([^()]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)[^()]*)*\)")
VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
RESULTS = re.compile(r"(%[\w$.-]+)(?::(\d+))?(?:, )?")
NAME = re.compile(r'"?([a-z_]+\.[\w.]+)"?')
SIZES = re.compile(r"tensor<((?:\d+x)+)")
REFERENCE, PLACE = re.compile(r"#loc\d*"), re.compile(r'"([^"]+)":(\d+):\d+')
BITS = re.compile(r"(?:bf|f|i)(\d+)")
CONSTANT = re.compile(r"arith\.constant (?:dense<)?(true|false|-?\d+)>?(?= :| loc|$)")
RANGE = re.compile(r"end = (-?\d+).*start = (-?\d+)")
ASSIGNED = re.compile(r"(%[\w$.-]+) = (%[\w$.#-]+)")
ACCESSES = {
    "load": "load", "store": "store", "atomic_rmw": "atomic", "atomic_cas": "atomic", "descriptor_load": "load",
    "descriptor_store": "store", "descriptor_gather": "load", "descriptor_scatter": "store", "descriptor_reduce": "atomic",
    "experimental_descriptor_load": "load", "experimental_descriptor_store": "store",
}  # fmt: skip
SAME = "extsi", "extui", "trunci", "index_cast", "splat", "broadcast", "unsplat", "bitcast", "convert_layout", "expand_dims"
AXIS = re.compile(r"axis = (\d+)")
MAX_32_BITS = 2**31
UNKNOWN = 2**62  # elements behind all memory
PROGRAM, COLUMNS = "program", "columns"  # that a value depends on, beside parameters: the second are the elements of a block


@dataclass(eq=False)
class Op:
    """An operation."""

    name: str  # such as "arith.addi"; "label" for the head of a block
    results: list[str]
    operands: list[str]
    text: str  # of its first line, without results and locations
    line: str = ""  # file and line of the kernel's source; "" if unknown
    regions: "list[list[Op]]" = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kind = self.name.partition(".")[2]  # its name without the dialect's; of a comparison such as "lt"
        self.label = VALUE.sub("", self.text)  # its text without values
        self.bounds, self.carried = list[str](), ASSIGNED.findall(self.text)  # values in a loop, and those it begins with
        if self.name == "scf.for":
            self.bounds, self.carried = self.operands[1:4], self.carried[1:]
        if self.kind == "cmpi":
            self.kind = self.text.split()[1].rstrip(",")[-2:]
        sizes = SIZES.findall(self.text.rpartition(" : ")[2]) or [""]
        self.elements = math.prod(map(int, filter(None, sizes[0].split("x"))))  # of its type's tensor, 1 of a scalar
        bits = BITS.findall(self.text.partition(" : ")[2].split(",")[0].split("->")[0]) or ["8"]
        self.size = max(1, int(bits[-1]) // 8)  # bytes of an element of its first operand's type, or what that points to

    @functools.cached_property
    def literal(self) -> Any:
        """Returns the integer of a constant, or the array of a range; None of another constant."""
        if self.kind == "make_range":
            end, start = map(int, RANGE.findall(self.text)[0])
            return np.arange(start, end)
        constant = CONSTANT.match(self.text)
        return constant and np.int64(json.loads(constant[1]))


class Function(NamedTuple):
    """A kernel: the names of its run-time parameters by their values, its operations, and all of its module in order."""

    parameters: dict[str, str]
    body: list[Op]
    every: list[Op]


def parsed_of(compiled: Any, jit: Any) -> Function:
    """Returns a compiled kernel; functions that it calls without inlining remain calls.

    Where values are more than run-time parameters, as of descriptors, their own names are those of parameters.
    """
    regions: list[list[Op]] = [[]]
    every: list[Op] = []
    source = compiled.asm["ttir" if "ttir" in compiled.asm else "ttgir"]  # Gluon's kernels have no TTIR
    places = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", source, re.MULTILINE))
    for raw in source.splitlines():
        line, location = LOCATION.sub("", raw).strip(), raw.rpartition(" loc(")[2]
        if not line or line.startswith("#"):
            continue
        if line.startswith("}"):  # } else {, and } do {
            regions.pop()
        else:
            while not (place := PLACE.search(location)) and (reference := REFERENCE.search(location)):
                location = places.get(reference[0], "")  # of a call, that of the function that is called
            every.append(_op(line, f"{place[1].rpartition('/')[2]}:{place[2]}" if place else ""))
            regions[-1].append(every[-1])
        if line.endswith("{"):
            owner = regions[-1][-1]
            owner.regions.append([])
            regions.append(owner.regions[-1])
    functions = [op for op in every if op.name == "tt.func"]
    kernel = next((function for function in functions if " public " in function.text), functions[0])
    names = [name for name in jit.arg_names if name not in constants_of(compiled, jit)]
    if len(names) != len(kernel.operands):
        names = [value.removeprefix("%") for value in kernel.operands]
    return Function(dict(zip(kernel.operands, names, strict=True)), kernel.regions[0], every)


def _op(text: str, line: str) -> Op:
    left, _, body = text.partition(" = ")
    if text.startswith("^"):
        return Op("label", VALUE.findall(text), [], text, line)
    if not text.startswith("%"):
        left, body = "", text
    results = []
    for name, count in RESULTS.findall(left):
        results += [f"{name}#{index}" for index in range(int(count or 0))] or [name]
    return Op((NAME.findall(body) or [""])[0], results, VALUE.findall(body), body, line)


def stores_elsewhere(function: Function) -> bool:
    """True if a kernel may store to memory that is none of its arguments': by pointers in memory, functions and assembly."""
    return any(op.kind in ("int_to_ptr", "call") or "pure = false" in op.text for op in function.every)


def _quotient(a: Any, b: Any) -> Any:
    return np.sign(a) * np.sign(b) * (abs(a) // abs(b))


DIVISIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("divsi", "divui"), _quotient),
    **dict.fromkeys(("remsi", "remui"), lambda a, b: a - _quotient(a, b) * b),
}
OPERATORS = "addi add, subi sub, muli mul, andi and_, ori or_, xori xor, shli lshift, shrsi rshift, shrui rshift"
ARITHMETIC: dict[str, Callable[..., Any]] = {
    **{kind: getattr(operator, name) for kind, name in map(str.split, OPERATORS.split(","))},
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},  # comparisons, without their sign
    **DIVISIONS,
    **dict.fromkeys(("minsi", "minui"), np.minimum),
    **dict.fromkeys(("maxsi", "maxui"), np.maximum),
    "select": np.where,
}


def computed(op: Op, operands: Sequence[Any]) -> Any:
    """Returns the number that an operation computes from values; None if it is unknown."""
    numbers, kind = [one.number for one in operands], op.kind
    if kind in ("constant", "make_range"):
        return op.literal
    if any(one is None for one in numbers):
        return None
    if kind == "expand_dims" and numbers[0].ndim:
        return np.expand_dims(numbers[0], int(AXIS.findall(op.text)[0]))
    if kind in SAME:
        return numbers[0]
    if kind == "addptr":
        return numbers[0] + numbers[1]
    if kind not in ARITHMETIC or any(one.root for one in operands) or (kind in DIVISIONS and not np.all(numbers[1])):
        return None
    return ARITHMETIC[kind](*numbers).astype(np.int64)


class Value(NamedTuple):
    """What is known of a number, a tensor of numbers, or a pointer."""

    number: Any = None  # int64, or an array of them; of a pointer its offset in elements; None if it is unknown
    root: str = ""  # the parameter that a pointer points to; "" if it is unknown, and for numbers
    sources: frozenset[Any] = frozenset()  # parameters, PROGRAM, COLUMNS and numbers beyond 32 bits that it depends on
    key: Any = None  # of an unknown value: equal for those that are computed alike

    @property
    def identity(self) -> Any:
        """Returns what is equal for equal values."""
        return self.root, self.key if self.number is None else self.number.tobytes()

    def depends(self, *values: "Value") -> "Value":
        """Returns the value as one that depends on others."""
        return self._replace(sources=self.sources.union(*(value.sources for value in values)))

    @classmethod
    def unknown(cls, what: str, values: "Sequence[Value]", root: str = "") -> "Value":
        """Returns an unknown value that is computed from others; `what` is the operation in words."""
        return cls(None, root, key=hash((what, *(value.identity for value in values)))).depends(*values)

    @classmethod
    def of(cls, op: Op, operands: "Sequence[Value]") -> "Value":
        """Returns the result of an operation; what is loaded is unknown."""
        root = next((one.root for one in operands if op.kind not in ACCESSES), "")  # of a pointer made of a pointer
        result, beyond = computed(op, operands), set[int]()
        if result is None:
            return cls.unknown(op.label, operands, root)
        if op.kind in ARITHMETIC and op.text.rstrip(">").endswith("i32"):
            beyond = {end for end in (int(np.max(result)), int(np.min(result))) if not -MAX_32_BITS <= end < MAX_32_BITS}
        return cls(result, root, frozenset(beyond)).depends(*operands)

    @classmethod
    def ahead(cls, states: "Sequence[Value]", turns: int | None) -> "Value":
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
        return cls.unknown("ahead", [last], last.root)


@dataclass(eq=False)
class Loop:
    """A loop that is traced."""

    op: Op
    trips: int | None = None  # all of its turns; None if they are unknown
    sources: frozenset[Any] = frozenset()  # what its turns depend on


Turns = tuple[tuple[Loop, int], ...]  # loops, outermost first, and turns of them


class Access(NamedTuple):
    """A load, store or atomic operation of a program."""

    op: Op
    kind: str  # "load", "store" or "atomic"
    label: str  # such as "a store to y"
    root: str  # the parameter that the address points to; "" if it is unknown
    address: Value
    runs: Any  # intervals of elements, [first, end), that no mask hides; of an unknown place one of its own behind all memory
    place: Any  # equal for accesses of a kind to the same elements
    program: int  # along axis 0
    loops: Turns  # around it
    row: tuple[
        Loop | None, int
    ]  # the outermost loop with turns that depend on the program, and its turn; (None, 0) without one
    hides: bool  # a mask hides elements, or may
    sure: bool  # its elements are known, and that it is made
    stored: Any  # equal for values that are computed and masked alike
