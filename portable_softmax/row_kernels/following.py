"""Evaluates the integers of a program in Triton's IR: its loads and stores, their offsets and loops."""

import itertools
import json
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from portable_softmax.row_kernels.ttir import VALUE, Function, Op

LIMIT = 2**31
LABEL = re.compile(r"\^\w+")
CONSTANT = re.compile(r"arith\.constant (?:dense<)?(true|false|-?\d+)>?(?= :| loc|$)")
RANGE = re.compile(r"end = (-?\d+).*start = (-?\d+)")
ASSIGNED = re.compile(r"(%[\w$.-]+) = (%[\w$.#-]+)")
ACCESSES = {
    "load": "load", "store": "store", "atomic_rmw": "atomic", "atomic_cas": "atomic", "descriptor_load": "load",
    "descriptor_store": "store", "descriptor_gather": "load", "descriptor_scatter": "store", "descriptor_reduce": "atomic",
    "experimental_descriptor_load": "load", "experimental_descriptor_store": "store",
}  # fmt: skip
WORK = "reduce", "exp", "exp2"
PROGRAM = "program"  # that a value depends on, beside parameters
SAME = (
    {"extsi", "extui", "trunci", "index_cast", "splat", "broadcast", "expand_dims", "reshape", "trans", "unsplat"}
    | {"bitcast", "convert_layout", "int_to_ptr_range"}
)  # fmt: skip
MOVED = "addptr", "make_tensor_descriptor", "make_tensor_ptr", "advance"  # pointers made of pointers


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


OPERATORS = "addi add, subi sub, muli mul, andi and_, ori or_, xori xor, shli lshift, shrsi rshift, shrui rshift"
ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    **{kind: getattr(operator, name) for kind, name in map(str.split, OPERATORS.split(","))},
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},  # predicates, without their sign
    **dict.fromkeys(("divsi", "divui"), _quotient),
    **dict.fromkeys(("remsi", "remui"), lambda a, b: a - _quotient(a, b) * b),
    **dict.fromkeys(("minsi", "minui"), min),
    **dict.fromkeys(("maxsi", "maxui"), max),
}
Known = tuple[Any, frozenset[str]]  # a value: a number, a pointer or None; and what it depends on


class Pointer(NamedTuple):
    """A parameter that points to memory, and an offset in elements; None if it is unknown."""

    root: str
    offset: int | None


class Access(NamedTuple):
    """A load, store or atomic operation, or the number of a program along an axis other than 0.

    Args:
        root: parameter that points to the memory; "" if it is unknown.
        kind: "load", "store", "atomic" or "axis".
        offset: of the first element, in elements, None if it is unknown; or the axis.
        sources: what the address depends on.
        loops: numbers of the loops around it, outermost first.
        elements: of the tensor.
        size: bytes of an element.
        masked: a mask may hide elements, or bounds are checked.
        turns: of the outermost loop around it that depends on the program.
    """

    root: str
    kind: str
    offset: int | None
    sources: frozenset[str] = frozenset()
    loops: tuple[int, ...] = ()
    elements: int = 0
    size: int = 1
    masked: bool = True
    turns: int = 1


@dataclass
class Run:
    """Evaluates the integers of one program.

    A tensor is its first element. What is loaded is unknown, of an unknown condition both branches are followed, and a loop
    whose bounds are unknown has one turn.

    Args:
        function: the kernel.
        arguments: values of its parameters by name.
        program, programs: number of the program along axis 0, None for any, and that of programs.
        turns: most turns of a loop whose turns depend on the program.
        inner_turns: most turns of other loops.
        last: follows the last element of every tensor, and the last turn of every loop alone.
    """

    function: Function
    arguments: Mapping[str, Any]
    program: int | None
    programs: int
    turns: int = 1
    inner_turns: int = 1
    last: bool = False

    def __post_init__(self) -> None:
        self.accesses: list[Access] = []
        self.decisive: set[str] = set()  # what turns of loops, and branches, depend on
        self.trips: list[int | None] = []  # per loop that was entered, all of them; None if unknown
        self.loops: list[frozenset[str]] = []  # what these depend on
        self.work: list[tuple[Op, tuple[int, ...]]] = []  # reductions and exponents, and the loops around them
        self.large: list[tuple[Op, int]] = []  # operations of 32 bits whose result is not of 32 bits
        self._open: list[int] = []
        self._returned = False
        self.known: defaultdict[str, Known] = defaultdict(lambda: (None, frozenset()))  # of every value
        for value, name in self.function.parameters.items():
            argument: Any = self.arguments.get(name)
            is_pointer = hasattr(argument, "data_ptr") or hasattr(argument, "base")
            followed = int(argument) if isinstance(argument, int) else Pointer(name, 0) if is_pointer else None
            self.known[value] = followed, frozenset((name,))
        self._region(self.function.body)

    def turns_of(self, access: Access) -> int:
        """Returns the turns of the outermost loop around an access that depends on the program; 1 if there is none."""
        return next((self.trips[loop] or 1 for loop in access.loops if PROGRAM in self.loops[loop]), 1)

    def _of(self, names: Sequence[str]) -> frozenset[str]:
        """Returns the parameters that values depend on."""
        return frozenset().union(*(self.known[name][1] for name in names))

    def _region(self, ops: Sequence[Op]) -> list[Known]:
        """Evaluates operations; returns the results of the last one."""
        at, sure, yielded = 0, True, []  # sure: no branch was unknown, so that labels and returns count
        while at < len(ops) and not self._returned:
            op = ops[at]
            at += 1
            if op.name in ("cf.br", "cf.cond_br"):
                condition, of = (1, frozenset()) if op.name == "cf.br" else self.known[op.operands[0]]
                self.decisive |= of
                sure = sure and condition is not None
                target = LABEL.findall(op.text)[0 if condition == 1 else -1]
                start = next(i for i, label in enumerate(ops) if label.name == "label" and label.text.startswith(target))
                self._set(ops[start].results, [self.known[name] for name in op.operands[op.name == "cf.cond_br" :]])
                at = start if sure else at
            elif op.name == "tt.return":
                self._returned = sure
            elif op.name in ("scf.yield", "scf.condition"):
                yielded = [self.known[name] for name in op.operands]
            elif op.name != "label":
                getattr(self, f"_{op.kind}" if op.name.startswith("scf.") else "_operation")(op)
        return yielded

    def _set(self, names: Sequence[str], values: Any, of: frozenset[str] = frozenset(), vague: bool = False) -> None:
        """Sets values; `of` is what else they depend on, and `vague` leaves of a pointer its parameter alone."""
        for name, (value, sources) in zip(names, values, strict=False):
            left = value._replace(offset=None) if isinstance(value, Pointer) else None
            self.known[name] = left if vague else value, sources | of

    def _if(self, op: Op) -> None:
        condition, of = self.known[op.operands[0]]
        self.decisive |= of
        branches = op.regions if condition is None else op.regions[:1] if condition else op.regions[1:2]
        ends = zip(*filter(None, map(self._region, branches)), strict=False)  # per result, of all branches
        for name, end in zip(op.results, ends, strict=False):
            values, sources = zip(*end, strict=True)
            self.known[name] = values[0] if len({*values}) == 1 else None, of.union(*sources)

    def _for(self, op: Op) -> None:
        variable, *bounds = op.operands[:4]
        (first, end, step), of = (self.known[bound][0] for bound in bounds), self._of(bounds)
        self.decisive |= of
        known = range(first, end, step) if None not in (first, end) and step else None
        names = self._begin(op, None if known is None else len(known), of)
        turns = ((end and end - 1) if self.last else first,) if known is None else known
        followed = turns[-1:] if self.last else turns[: self.turns if PROGRAM in of else self.inner_turns]
        for turn in followed:
            self.known[variable] = turn, of
            self._set(names, self._region(op.regions[0]), self._of(names), vague=self.last)
        cut = known is None or len(followed) != len(known)
        self._open.pop()
        self._set(op.results, [self.known[name] for name in names], of, vague=cut or self.last)

    def _while(self, op: Op) -> None:
        before, after = op.regions
        names = self._begin(op, None, frozenset())
        self.loops[-1] = self._of(names)
        kind, number, bound = self._compared(before)
        if self.last and kind == "lt" and number in names:  # grows until it is the bound
            self._region(before)
            end, of = self.known[bound]
            self._set([number], [(end and end - 1, of)])
        gaps: list[Any] = []
        for turns in itertools.count():
            (condition, of), *passed = self._region(before) or [(None, frozenset())]
            self.decisive |= of
            a, b = self.known[number][0], self.known[bound][0]
            gaps.append(None if a is None or b is None else (b - a) * (1 if kind[0] == "l" else -1) + (kind[1] == "e"))
            if condition == 0 or (turns and None not in gaps and gaps[0] > gaps[1]):
                self.trips[self._open[-1]] = turns if condition == 0 else -(-gaps[0] // (gaps[0] - gaps[1]))
            most = self.turns if PROGRAM in of else self.inner_turns
            if condition == 0 or (turns and (self.last or condition is None or turns >= most)):
                break
            self._set(after[0].results if after and after[0].name == "label" else [], passed, of)
            self._set(names, self._region(after), self._of(names))
        self._open.pop()
        self._set(op.results, passed, of, vague=condition != 0 or self.last)

    def _compared(self, before: Sequence[Op]) -> tuple[str, str, str]:
        """Returns how the condition of a while loop compares a number with a bound, such as "lt", and these; else ""."""
        for op in before:
            if op.results == before[-1].operands[:1] and op.kind == "cmpi" and op.text.split()[1].rstrip(",")[-2] in "lg":
                return op.text.split()[1].rstrip(",")[-2:], op.operands[0], op.operands[1]
        return "", "", ""

    def _begin(self, op: Op, trips: int | None, of: frozenset[str]) -> list[str]:
        """Enters a loop; returns the names of what it carries."""
        carried = ASSIGNED.findall(op.text)[op.name == "scf.for" :]  # behind its variable
        names = [name for name, _ in carried]
        self._set(names, [self.known[value] for _, value in carried], of, vague=self.last)
        self._open.append(len(self.loops))
        self.loops.append(of)
        self.trips.append(trips)
        return names

    def _operation(self, op: Op) -> None:
        of, kind = self._of(op.operands), op.kind
        if kind in ACCESSES:
            self._access(op, ACCESSES[kind])
            value = None
        elif kind in ("get_program_id", "get_num_programs"):
            axis = "xyz".index(op.text.split()[1])
            self.accesses += [Access("", "axis", axis)] if axis and kind == "get_program_id" else []
            value = ((self.program, 0, 0) if kind == "get_program_id" else (self.programs, 1, 1))[axis]
            of = frozenset((PROGRAM,))
        else:
            value = self._computed(op, kind)
            self.work += [(op, tuple(self._open))] if kind in WORK else []
        self._set(op.results, [(value, of)] * len(op.results))

    def _computed(self, op: Op, kind: str) -> Any:
        operands: list[Any] = [self.known[name][0] for name in op.operands]
        if kind == "constant":
            constant = CONSTANT.match(op.text)
            return constant and int(json.loads(constant[1]))
        if kind == "make_range":
            end, start = map(int, RANGE.search(op.text).groups())  # type: ignore[union-attr]
            return end - 1 if self.last else start
        if kind in SAME:
            return operands[0] if operands else None
        if kind == "select":
            same = operands[1] == operands[2]
            return operands[1 if operands[0] or same else 2] if operands[0] is not None or same else None
        if operands and isinstance(pointer := operands[0], Pointer):
            exact = kind == "addptr" and pointer.offset is not None and operands[1] is not None
            return Pointer(pointer.root, pointer.offset + operands[1] if exact else None) if kind in MOVED else None
        if len(operands) != 2 or not all(type(operand) is int for operand in operands):
            return None
        a, b = operands
        kind = op.text.split()[1].rstrip(",")[-2:] if kind == "cmpi" else kind
        if kind not in ARITHMETIC or (b == 0 and kind[:3] in ("div", "rem")) or (kind[:2] == "sh" and not 0 <= b < 64):
            return None
        result = int(ARITHMETIC[kind](a, b))
        if not -LIMIT <= result < LIMIT and op.text.rstrip(">").endswith("i32"):
            self.large.append((op, result))
        return result

    def _access(self, op: Op, kind: str) -> None:
        pointer, of = self.known[op.operands[0]]
        root, offset = pointer or ("", None)
        mask = op.operands[1 if kind == "load" else 2 :][:1]
        if "descriptor" in op.name:
            indices = VALUE.findall(op.text.partition("[")[2].partition("]")[0])
            numbers, of = [self.known[name][0] for name in reversed(indices)], of | self._of(indices)
            # One number for all of them.
            offset = None if None in numbers else sum(number << 32 * at for at, number in enumerate(numbers))
        elif 0 in [self.known[name][0] for name in mask]:
            return
        masked = bool(mask) or "descriptor" in op.name or "array<i32: " in op.text  # bounds that are checked
        self.accesses.append(Access(root, kind, offset, of, tuple(self._open), op.elements, op.size, masked))
