"""Follows the integers of a program through Triton's IR: which loads and stores it makes, at which offsets, in which loops."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from portable_softmax.row_kernels.intervals import LIMIT, Interval, compared, computed
from portable_softmax.row_kernels.ttir import ACCESSES, ASSIGNED, VALUE, Function, Op

LABEL = re.compile(r"\^\w+")
CONSTANT = re.compile(r"arith\.constant (?:dense<)?(true|false|-?\d+)>?(?= :| loc|$)")
START, END = re.compile(r"start = (-?\d+)"), re.compile(r"end = (-?\d+)")
WORK = "reduce", "exp", "exp2"
PROGRAM, MEMORY = "program", "memory"  # that a value depends on, beside parameters
TRUE, FALSE, EITHER = (1, 1), (0, 0), (0, 1)
SAME = (
    {"extsi", "extui", "trunci", "index_cast", "splat", "broadcast", "expand_dims", "reshape", "trans", "unsplat"}
    | {"bitcast", "convert_layout", "int_to_ptr_range"}
)  # fmt: skip
Known = tuple[Any, frozenset[str]]  # a value: an interval, a pointer or None; and what it depends on


class Pointer(NamedTuple):
    """A parameter that points to memory, and an offset in elements; None if it is unknown."""

    root: str
    offset: Interval | None


class Access(NamedTuple):
    """A load, store or atomic operation.

    Args:
        kind: "load", "store" or "atomic".
        root: parameter that points to the memory; "" if it is unknown.
        offset: of the first element, in elements; None if it is unknown.
        elements: of the tensor.
        sources: what the address depends on.
        loops: numbers of the loops around it, outermost first.
        size: bytes of an element.
    """

    kind: str
    root: str
    offset: Interval | None
    elements: int
    sources: frozenset[str]
    loops: tuple[int, ...]
    size: int = 1


class Run:
    """Follows the integers of one program, or of all programs at once.

    A tensor is its first element, or with `ranges` the interval of all its elements. What is loaded is unknown, and a loop
    whose bounds are unknown has one turn. With `ranges` loops have one turn, in which its variable is an interval.

    Args:
        function: the kernel.
        arguments: values of its parameters by name: intervals, and pointers.
        program, programs: number of the program along axis 0, an interval, and that of programs.
        turns: most turns of a loop whose turns depend on the program.
        inner_turns: most turns of other loops.
        ranges: see above.
    """

    def __init__(
        self,
        function: Function,
        arguments: Mapping[str, Any],
        program: Interval,
        programs: int,
        turns: int = 1,
        inner_turns: int = 2,
        ranges: bool = False,
    ) -> None:
        self.program, self.programs, self.turns, self.inner_turns = program, programs, turns, inner_turns
        self.ranges = ranges
        self.accesses: list[Access] = []
        self.axes: set[int] = set()
        self.decisive: set[str] = set()  # what turns of loops, and branches, depend on
        self.trips: list[int | None] = []  # per loop that was entered, all of them; None if unknown
        self.loops: list[frozenset[str]] = []  # what these depend on
        self.work: list[tuple[Op, tuple[int, ...]]] = []  # reductions and exponents, and the loops around them
        self.large: list[tuple[Op, Interval]] = []  # operations of 32 bits whose result is not of 32 bits
        self._open: list[int] = []
        self._yielded: list[Known] = []
        self._returned = False
        self._known: dict[str, Known] = {
            value: (arguments.get(name), frozenset((name,))) for value, name in function.parameters.items()
        }
        self._region(function.body)

    def value(self, name: str) -> Any:
        """Returns what is known of a value: an interval or a pointer; None if nothing."""
        return self._known[name][0] if name in self._known else None

    def _of(self, names: Sequence[str]) -> frozenset[str]:
        """Returns what values depend on."""
        sources = [self._known[name][1] for name in names if name in self._known]
        return frozenset().union(*sources) if len(sources) != 1 else sources[0]

    def _number(self, name: str, unknown: Interval | None) -> Any:
        number = self.value(name)
        return number if type(number) is tuple else unknown

    def _region(self, ops: Sequence[Op]) -> list[Known]:
        """Follows operations; returns what the last one yields."""
        at, sure = 0, True  # sure: no branch was unknown, so that labels and returns count
        self._yielded = []
        while at < len(ops) and not self._returned:
            op = ops[at]
            at += 1
            if op.name in ("cf.br", "cf.cond_br"):
                condition = TRUE if op.name == "cf.br" else self._condition(op)
                sure = sure and condition != EITHER
                target = LABEL.findall(op.text)[0 if condition == TRUE else -1]
                start = next(i for i, label in enumerate(ops) if label.name == "label" and label.text.startswith(target))
                for name, value in zip(ops[start].results, op.operands[op.name == "cf.cond_br" :], strict=False):
                    self._known[name] = self.value(value), self._of([value])
                at = start if sure else at
            elif op.name == "tt.return":
                self._returned = sure
            elif op.name in ("scf.yield", "scf.condition"):
                self._yielded = [(self.value(name), self._of([name])) for name in op.operands]
            elif op.name != "label":
                getattr(self, f"_{op.kind}" if op.name.startswith("scf.") else "_operation")(op)
        return self._yielded

    def _condition(self, op: Op) -> Interval:
        self.decisive |= self._of(op.operands[:1])
        return tuple(self._number(op.operands[0], EITHER))

    def _if(self, op: Op) -> None:
        condition, of = self._condition(op), self._of(op.operands[:1])
        branches = op.regions if condition == EITHER else op.regions[:1] if condition == TRUE else op.regions[1:2]
        ends = [self._region(branch) for branch in branches]
        for at, name in enumerate(op.results):
            met = [end[at] for end in ends if at < len(end)]
            value = _hull([value for value, _ in met]) if met else None
            self._known[name] = value, of.union(*(sources for _, sources in met))

    def _for(self, op: Op) -> None:
        variable, *bounds = op.operands[:4]
        numbers, sources = [self._number(name, None) for name in bounds], self._of(bounds)
        known = None not in numbers
        exact = known and all(low == high for low, high in numbers)
        self.decisive |= sources
        carried = ASSIGNED.findall(op.text.partition("iter_args")[2].partition(") ->")[0])
        self._carry(carried, sources)
        turns: Sequence[Any] = range(*(low for low, _ in numbers)) if exact and numbers[2][0] else [None]
        self._begin(len(turns) if exact else None, sources)
        if self.ranges:
            turns = [(numbers[0][0], max(numbers[0][0], numbers[1][1] - 1)) if known else None]
        elif exact:
            turns = [(number, number) for number in turns[: self._most(sources)]]
        names = [name for name, _ in carried]
        for turn in turns:
            self._known[variable] = turn, sources
            self._turn(op.regions[0], names)
        self._end(op, [self._known[name] for name in names], sources)

    def _while(self, op: Op) -> None:
        before, after = op.regions
        carried = ASSIGNED.findall(op.text)
        names = [name for name, _ in carried]
        for name, value in carried:
            self._known[name] = self.value(value), self._of([value])
        for condition in before if self.ranges else ():
            self._widen(condition, names)
        loop, turns = self._begin(None, self._of(names)), 0
        while True:
            (condition, of), *passed = self._region(before) or [(None, frozenset())]
            self.decisive |= of
            if condition == FALSE:
                self.trips[loop] = turns
                break
            heads = after[0].results if after and after[0].name == "label" else []
            for name, (value, sources) in zip(heads, passed, strict=False):
                self._known[name] = value, sources | of
            self._turn(after, names)
            turns += 1
            if self.ranges or condition != TRUE or turns >= self._most(of):
                break
        self._end(op, passed, of)

    def _most(self, sources: frozenset[str]) -> int:
        return self.turns if PROGRAM in sources else self.inner_turns

    def _carry(self, carried: Sequence[tuple[str, str]], sources: frozenset[str]) -> None:
        for name, value in carried:
            self._known[name] = None if self.ranges else self.value(value), self._of([value]) | sources

    def _begin(self, turns: int | None, sources: frozenset[str]) -> int:
        """Enters a loop, and returns its number."""
        self.loops.append(sources)
        self.trips.append(turns)
        self._open.append(len(self.trips) - 1)
        return self._open[-1]

    def _turn(self, body: Sequence[Op], names: Sequence[str]) -> None:
        for name, (value, of) in zip(names, self._region(body), strict=False):
            self._known[name] = None if self.ranges else value, self._of([name]) | of

    def _end(self, op: Op, passed: Sequence[Known], sources: frozenset[str]) -> None:
        self._open.pop()
        for name, (value, of) in zip(op.results, passed, strict=False):
            self._known[name] = None if self.ranges else value, of | sources

    def _widen(self, op: Op, names: Sequence[str]) -> None:
        """Widens what a loop carries to all that its condition allows, if that compares it with a bound."""
        if op.name == "arith.cmpi" and op.text.split()[1] in ("slt,", "sle,") and op.operands[0] in names:
            first, bound = (self._number(name, None) for name in op.operands)
            if first and bound:
                most = max(first[1], bound[1] - ("slt" in op.text))
                self._known[op.operands[0]] = (first[0], most), self._of(op.operands[:1])

    def _operation(self, op: Op) -> None:
        of, kind = self._of(op.operands), op.kind
        if kind in ACCESSES:
            self._access(op, ACCESSES[kind])
            value, of = None, of | {MEMORY}
        elif kind in ("get_program_id", "get_num_programs"):
            axis = "xyz".index(op.text.split()[1])
            self.axes |= {axis} if kind == "get_program_id" else set()
            value = FALSE if axis else self.program if kind == "get_program_id" else (self.programs, self.programs)
            of = frozenset((PROGRAM,))
        else:
            value = self._computed(op, kind)
            self.work += [(op, tuple(self._open))] if kind in WORK else []
        for name in op.results:
            self._known[name] = value, of

    def _computed(self, op: Op, kind: str) -> Any:
        operands: list[Any] = [self.value(name) for name in op.operands]
        if kind == "constant":
            constant = CONSTANT.match(op.text)
            return {"true": TRUE, "false": FALSE}.get(constant[1]) or (int(constant[1]),) * 2 if constant else None
        if kind == "make_range":
            start, end = (int(pattern.search(op.text)[1]) for pattern in (START, END))  # type: ignore[index]
            return (start, end - 1) if self.ranges else (start, start)
        if kind in SAME:
            return operands[0] if operands else None
        if kind == "select":
            if operands[0] in (TRUE, FALSE):
                return operands[1 if operands[0] == TRUE else 2]
            return _hull(operands[1:])
        if operands and isinstance(pointer := operands[0], Pointer):
            if kind == "addptr" and pointer.offset and type(operands[1]) is tuple:
                return Pointer(pointer.root, computed("addi", pointer.offset, operands[1]))
            return (
                Pointer(pointer.root, None)
                if kind in ("addptr", "make_tensor_descriptor", "make_tensor_ptr", "advance")
                else None
            )
        if len(operands) != 2 or not all(type(operand) is tuple for operand in operands):
            return None
        if kind == "cmpi":
            return compared(op.text.split()[1].rstrip(","), *operands)
        result = computed(kind, *operands)
        if result and not -LIMIT <= result[0] <= result[1] < LIMIT and op.text.rstrip(">").endswith("i32"):
            self.large.append((op, result))
        return result

    def _access(self, op: Op, kind: str) -> None:
        pointer, pointers = self.value(op.operands[0]), self._of(op.operands[:1])
        root, offset = pointer if isinstance(pointer, Pointer) else ("", None)
        at = {"load": 1, "store": 2, "atomic": 2}[kind]
        if "descriptor" in op.name:
            indices = VALUE.findall(op.text.partition("[")[2].partition("]")[0])
            numbers = [self._number(index, None) for index in indices]
            offset = None if None in numbers else (_place([low for low, _ in numbers]), _place([high for _, high in numbers]))
            pointers |= self._of(indices)
        elif len(op.operands) > at and self.value(op.operands[at]) == FALSE:
            return  # by its mask
        self.accesses.append(Access(kind, root, offset, op.elements, pointers, tuple(self._open), op.size))


def _place(indices: Sequence[int]) -> int:
    """Returns one number for the indices of a descriptor."""
    return sum(index << 32 * at for at, index in enumerate(reversed(indices)))


def _hull(values: Sequence[Any]) -> Any:
    if all(type(value) is tuple for value in values):
        return min(low for low, _ in values), max(high for _, high in values)
    roots = {value.root for value in values if isinstance(value, Pointer)}
    if len(roots) != 1:
        return None
    return Pointer(roots.pop(), values[0].offset if len({*values}) == 1 else None)
