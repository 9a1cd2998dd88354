"""Reads Triton's IR (TTIR): its operations as a tree, and the scalar arithmetic that tells which rows a program accesses."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

LOCATION = re.compile(r"\s*\bloc\([^()]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)[^()]*)*\)")
VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
RESULTS = re.compile(r"(%[\w$.-]+)(?::(\d+))?(?:, )?")
NAME = re.compile(r'"?([a-z_]+\.[\w.]+)"?')
LABEL = re.compile(r"\^\w+")
ASSIGNED = re.compile(r"(%[\w$.-]+) = (%[\w$.#-]+)")
CONSTANT = re.compile(r"arith\.constant (?:dense<)?(true|false|-?\d+)>?(?= :| loc|$)")
SIZES = re.compile(r"tensor<((?:\d+x)+)")
AXES = "xyz"
LIMIT = 2**31
PROGRAM, MEMORY = "program", "memory"  # that a value depends on, beside parameters
Interval = tuple[int, int]


class Op(NamedTuple):
    """An operation.

    Args:
        name: such as "arith.addi"; "label" for the head of a block.
        results, operands: values.
        text: of its first line, without results and locations.
        regions: operations of each.
    """

    name: str
    results: list[str]
    operands: list[str]
    text: str
    regions: "list[list[Op]]"

    @property
    def elements(self) -> int:
        """Returns the elements of its type's tensor, 1 of a scalar."""
        sizes = SIZES.search(self.text.rpartition(" : ")[2])
        return _product(map(int, sizes[1].rstrip("x").split("x"))) if sizes else 1


class Function(NamedTuple):
    """A kernel: the names of its run-time parameters by their values, and its operations."""

    parameters: dict[str, str]
    body: list[Op]


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
    """

    kind: str
    root: str
    offset: Interval | None
    elements: int
    sources: frozenset[str]
    loops: tuple[int, ...]


def parsed(ttir: str, names: Sequence[str]) -> Function:
    """Returns the kernel of a module; functions that it calls without inlining remain calls.

    Args:
        ttir: the module.
        names: of the kernel's run-time parameters. Where values are more, as of descriptors, their own names count.
    """
    top: list[Op] = []
    regions, functions = [top], []
    for raw in ttir.splitlines():
        line = LOCATION.sub("", raw).strip()
        if not line or line.startswith(("#", "module")):
            continue
        if line.startswith("}"):
            if len(regions) > 1:
                regions.pop()
            if line.endswith("{"):  # } else {, and } do {
                owner = regions[-1][-1]
                owner.regions.append([])
                regions.append(owner.regions[-1])
            continue
        op = _op(line)
        regions[-1].append(op)
        if op.name == "tt.func":
            functions.append(op)
        if line.endswith(("{", "({")):
            op.regions.append([])
            regions.append(op.regions[-1])
    kernel = next((each for each in functions if " public " in each.text), functions[0])
    values = kernel.operands
    known = names if len(names) == len(values) else [value.removeprefix("%") for value in values]
    return Function(dict(zip(values, known, strict=True)), kernel.regions[0])


def walked(ops: Sequence[Op]) -> Iterator[Op]:
    """Yields all operations, each before those of its regions."""
    for op in ops:
        yield op
        for region in op.regions:
            yield from walked(region)


def _op(line: str) -> Op:
    if line.startswith("^"):
        return Op("label", VALUE.findall(line), [], line, [])
    left, _, body = line.partition(" = ") if line.startswith("%") else ("", "", line)
    results = []
    for name, count in RESULTS.findall(left):
        results += [f"{name}#{each}" for each in range(int(count))] if count else [name]
    found = NAME.search(body)
    return Op(found[1] if found else "", results, VALUE.findall(body), body, [])


class Run:
    """Follows the integers of one program, or of all programs at once.

    A tensor is its first element, or with `ranges` the interval of all its elements. What is loaded is unknown, and a loop
    whose bounds are unknown has one turn. With `ranges` each loop has one turn, in which its variable is an interval.

    Args:
        function: the kernel.
        arguments: values of its parameters by name: integers, and pointers.
        program, programs: number of the program along axis 0, an interval or an integer, and that of programs.
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
        self.values: dict[str, Any] = {}
        self.sources: dict[str, frozenset[str]] = {}
        self.accesses: list[Access] = []
        self.axes: set[int] = set()
        self.decisive: set[str] = set()  # what turns of loops, and branches, depend on
        self.trips: list[int | None] = []  # of each loop that was met, all of them; None if unknown
        self.large: list[tuple[Op, Interval]] = []  # operations of 32 bits whose result is not of 32 bits
        self._open: list[int] = []
        self._yielded: list[tuple[Any, frozenset[str]]] = []
        self._returned = False
        for value, name in function.parameters.items():
            self._set(value, arguments.get(name), frozenset((name,)))
        self._region(function.body)

    def _region(self, ops: Sequence[Op]) -> None:
        at, sure = 0, True  # sure: no branch was unknown, so that labels and returns count
        while at < len(ops) and not self._returned:
            op = ops[at]
            at += 1
            if op.name in ("cf.br", "cf.cond_br"):
                condition = (1, 1) if op.name == "cf.br" else self._condition(op)
                sure = sure and condition in ((0, 0), (1, 1))
                target = LABEL.findall(op.text)[0 if condition == (1, 1) else -1]
                start = next(i for i, each in enumerate(ops) if each.name == "label" and each.text.startswith(target))
                for name, value in zip(ops[start].results, op.operands[op.name == "cf.cond_br" :], strict=False):
                    self._set(name, self.values.get(value), self._of([value]))
                at = start if sure else at
            elif op.name == "tt.return":
                self._returned = sure
            elif op.name in ("scf.yield", "scf.condition"):
                self._yielded = [(self.values.get(name), self._of([name])) for name in op.operands]
            elif op.name != "label":
                getattr(self, f"_{op.name.partition('.')[2]}" if op.name.startswith("scf.") else "_operation")(op)

    def _of(self, names: Sequence[str]) -> frozenset[str]:
        found = [self.sources[name] for name in names if name in self.sources]
        return frozenset().union(*found) if len(found) != 1 else found[0]

    def _set(self, name: str, value: Any, sources: frozenset[str]) -> None:
        self.values[name], self.sources[name] = value, sources

    def _condition(self, op: Op) -> Interval:
        self.decisive |= self._of(op.operands[:1])
        known = self.values.get(op.operands[0])
        return known if type(known) is tuple else (0, 1)

    def _if(self, op: Op) -> None:
        condition = self._condition(op)
        branches = op.regions if condition == (0, 1) else op.regions[:1] if condition == (1, 1) else op.regions[1:2]
        ends = []
        for branch in branches:
            self._yielded = []
            self._region(branch)
            ends.append(self._yielded)
        for at, name in enumerate(op.results):
            found = [end[at] for end in ends if at < len(end)]
            values = [value for value, _ in found]
            of = frozenset().union(self._of(op.operands[:1]), *(sources for _, sources in found))
            self._set(name, _hull(values) if values else None, of)

    def _for(self, op: Op) -> None:
        variable, first, last, step = op.operands[:4]
        bounds: list[Any] = [self.values.get(name) for name in (first, last, step)]
        sources, known = self._of([first, last, step]), all(type(each) is tuple for each in bounds)
        self.decisive |= sources
        carried = ASSIGNED.findall(op.text.partition("iter_args")[2].partition(") ->")[0])
        for name, value in carried:
            self._set(name, None if self.ranges else self.values.get(value), self._of([value]) | sources)
        exact = known and all(low == high for low, high in bounds)
        turns: Sequence[Any] = [None]
        if exact and bounds[2][0]:
            turns = range(*(low for low, _ in bounds))
        self.trips.append(len(turns) if exact else None)
        if self.ranges:
            low, high = (bounds[0][0], bounds[1][1] - 1) if known else (0, 0)
            turns = [(low, max(low, high)) if known else None]
        elif exact:
            turns = [(each, each) for each in turns[: self._most(sources)]]
        self._open.append(len(self.trips) - 1)
        for turn in turns:
            self._set(variable, turn, sources)
            self._turn(op.regions[0], [name for name, _ in carried])
        self._open.pop()
        for (name, _), result in zip(carried, op.results, strict=False):
            self._set(result, None if self.ranges else self.values.get(name), self._of([name]) | sources)

    def _most(self, sources: frozenset[str]) -> int:
        return self.turns if PROGRAM in sources else self.inner_turns

    def _turn(self, body: Sequence[Op], carried: Sequence[str]) -> None:
        self._yielded = []
        self._region(body)
        for name, (value, of) in zip(carried, self._yielded, strict=False):
            self._set(name, None if self.ranges else value, self._of([name]) | of)

    def _while(self, op: Op) -> None:
        before, after = op.regions
        names = [name for name, _ in ASSIGNED.findall(op.text)]
        for name, value in ASSIGNED.findall(op.text):
            self._set(name, self.values.get(value), self._of([value]))
        for each in before if self.ranges else ():
            self._below(each, names)
        self.trips.append(None)
        loop, turns = len(self.trips) - 1, 0
        self._open.append(loop)
        while True:
            self._region(before)
            (condition, of), *passed = self._yielded or [(None, frozenset())]
            self.decisive |= of
            if condition == (0, 0):
                self.trips[loop] = turns
                break
            heads = after[0].results if after and after[0].name == "label" else []
            for name, (value, sources) in zip(heads, passed, strict=False):
                self._set(name, value, sources | of)
            self._turn(after, names)
            turns += 1
            if self.ranges or condition != (1, 1) or turns >= self._most(of):
                break
        self._open.pop()
        for name, (value, sources) in zip(op.results, passed, strict=False):
            self._set(name, None if self.ranges else value, sources | of)

    def _below(self, op: Op, names: Sequence[str]) -> None:
        """Widens what a loop carries to all that its condition allows, if that compares it with a bound."""
        if op.name == "arith.cmpi" and op.text.split()[1] in ("slt,", "sle,") and op.operands[0] in names:
            first, bound = (self.values.get(name) for name in op.operands)
            if type(first) is tuple and type(bound) is tuple:
                self.values[op.operands[0]] = first[0], max(first[1], bound[1] - ("slt" in op.text))

    def _operation(self, op: Op) -> None:
        of, kind = self._of(op.operands), op.name.partition(".")[2]
        if kind in ACCESSES:
            self._access(op, ACCESSES[kind], of)
            value, of = None, of | {MEMORY}
        elif kind in ("get_program_id", "get_num_programs"):
            axis = AXES.index(op.text.split()[1])
            if kind == "get_program_id":
                self.axes.add(axis)
            value = (0, 0) if axis else self.program if kind == "get_program_id" else (self.programs, self.programs)
            of = frozenset((PROGRAM,))
        else:
            value = self._computed(op, kind)
        for name in op.results:
            self._set(name, value, of)

    def _computed(self, op: Op, kind: str) -> Any:
        if kind == "constant":
            found = CONSTANT.match(op.text)
            number = {"true": 1, "false": 0}.get(found[1]) if found else None
            return None if not found else (int(found[1]),) * 2 if number is None else (number, number)
        if kind == "make_range":
            start, end = (int(re.search(rf"{name} = (-?\d+)", op.text)[1]) for name in ("start", "end"))  # type: ignore[index]
            return (start, end - 1) if self.ranges else (start, start)
        operands: list[Any] = [self.values.get(name) for name in op.operands]
        if kind in SAME:
            return operands[0] if operands else None
        if kind == "addptr" and isinstance(pointer := operands[0], Pointer):
            offset = pointer.offset and type(operands[1]) is tuple and _add(pointer.offset, operands[1])
            return Pointer(pointer.root, offset or None)
        if kind in ("make_tensor_descriptor", "make_tensor_ptr", "advance") and isinstance(operands[0], Pointer):
            return Pointer(operands[0].root, None)
        if kind == "select":
            if operands[0] in ((0, 0), (1, 1)):
                return operands[1 if operands[0] == (1, 1) else 2]
            return _hull(operands[1:])
        if kind == "cmpi" and all(type(each) is tuple for each in operands):
            return _compared(op.text.split()[1].rstrip(","), operands[0], operands[1])
        if kind not in ARITHMETIC or not all(type(each) is tuple for each in operands):
            return None
        result = ARITHMETIC[kind](*operands)
        if result and not -LIMIT <= result[0] <= result[1] < LIMIT and op.text.rstrip(">").endswith("i32"):
            self.large.append((op, result))
        return result

    def _access(self, op: Op, kind: str, of: frozenset[str]) -> None:
        pointer = self.values.get(op.operands[0])
        pointers = self._of(op.operands[:1])
        root, offset = pointer if isinstance(pointer, Pointer) else ("", None)
        if op.name.startswith("tt.descriptor"):
            indices = VALUE.findall(op.text.partition("[")[2].partition("]")[0])
            values: list[Any] = [self.values.get(each) for each in indices]
            offset = _place(values) if all(type(each) is tuple for each in values) else None
            pointers, mask = pointers | self._of(indices), None
        else:
            at = {"load": 1, "store": 2, "atomic": 2}[kind]
            mask = self.values.get(op.operands[at]) if len(op.operands) > at else None
        if mask != (0, 0):
            self.accesses.append(Access(kind, root, offset, op.elements, pointers, tuple(self._open)))


def _place(indices: Sequence[Interval]) -> Interval:
    """Returns one number for the indices of a descriptor."""
    low = high = 0
    for first, last in indices:
        low, high = (low << 32) + first, (high << 32) + last
    return low, high


def _hull(values: Sequence[Any]) -> Any:
    if all(type(each) is tuple for each in values):
        return min(low for low, _ in values), max(high for _, high in values)
    roots = {each.root for each in values if isinstance(each, Pointer)}
    offset = values[0].offset if len({*values}) == 1 and roots else None
    return Pointer(roots.pop(), offset) if len(roots) == 1 else None


def _product(numbers: Any) -> int:
    found = 1
    for each in numbers:
        found *= each
    return found


def _corners(function: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval]:
    """Returns an operation of intervals, for one that is monotonic in each operand."""

    def of(a: Interval, b: Interval) -> Interval:
        if a[0] == a[1] and b[0] == b[1]:
            return (function(a[0], b[0]),) * 2
        found = [function(x, y) for x in a for y in b]
        return min(found), max(found)

    return of


def _quotient(a: int, b: int) -> int:
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


def _of_divisor(function: Callable[[Interval, Interval], Interval]) -> Callable[[Interval, Interval], Interval | None]:
    return lambda a, b: function(a, b) if b[0] > 0 or b[0] == b[1] != 0 else None


def _rest(a: Interval, b: Interval) -> Interval:
    if a[0] == a[1] and b[0] == b[1]:
        return (a[0] - _quotient(a[0], b[0]) * b[0],) * 2
    most = max(map(abs, b)) - 1
    return (0 if a[0] >= 0 else -most), min(most, max(a[1], 0))


def _bits(function: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval | None]:
    """Returns an operation of bits, for numbers that are known or of one bit."""

    def of(a: Interval, b: Interval) -> Interval | None:
        if (a[0] == a[1] and b[0] == b[1]) or (min(*a, *b) >= 0 and max(*a, *b) <= 1 and function is not operator.xor):
            return function(a[0], b[0]), function(a[1], b[1])
        return None

    return of


def _shifted(function: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval | None]:
    return lambda a, b: _corners(function)(a, b) if b[0] >= 0 and b[1] < 64 else None


def _compared(kind: str, a: Interval, b: Interval) -> Interval:
    compare = COMPARISONS[kind[-2:] if kind not in ("eq", "ne") else kind]
    if a[0] == a[1] and b[0] == b[1]:
        return (int(compare(a[0], b[0])),) * 2
    if kind in ("eq", "ne"):
        apart = a[1] < b[0] or b[1] < a[0]
        return (int(kind == "ne"),) * 2 if apart else (0, 1)
    found = [compare(a[0], b[1]), compare(a[1], b[0])]
    return int(all(found)), int(any(found))


_add = _corners(operator.add)
COMPARISONS = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne}
ARITHMETIC: dict[str, Callable[[Interval, Interval], Interval | None]] = {
    "addi": _add,
    "subi": _corners(operator.sub),
    "muli": _corners(operator.mul),
    "divsi": _of_divisor(_corners(_quotient)),
    "divui": _of_divisor(_corners(_quotient)),
    "floordivsi": _of_divisor(_corners(operator.floordiv)),
    "ceildivsi": _of_divisor(_corners(lambda a, b: -(-a // b))),
    "remsi": _of_divisor(_rest),
    "remui": _of_divisor(_rest),
    "minsi": _corners(min),
    "minui": _corners(min),
    "maxsi": _corners(max),
    "maxui": _corners(max),
    "andi": _bits(operator.and_),
    "ori": _bits(operator.or_),
    "xori": _bits(operator.xor),
    "shli": _shifted(operator.lshift),
    "shrsi": _shifted(operator.rshift),
    "shrui": _shifted(operator.rshift),
}
SAME = (
    {"extsi", "extui", "trunci", "index_cast", "splat", "broadcast", "expand_dims", "reshape", "trans", "unsplat"}
    | {"bitcast", "convert_layout", "int_to_ptr_range"}
)  # fmt: skip
ACCESSES = {
    "load": "load", "store": "store", "atomic_rmw": "atomic", "atomic_cas": "atomic", "descriptor_load": "load",
    "descriptor_store": "store", "descriptor_gather": "load", "descriptor_scatter": "store", "descriptor_reduce": "atomic",
    "experimental_descriptor_load": "load", "experimental_descriptor_store": "store",
}  # fmt: skip
