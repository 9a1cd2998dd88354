"""Traces a program in Triton's IR: its integers, and the addresses of its loads, stores and atomic operations."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from portable_softmax.row_kernels.ttir import ACCESSES, MOVED, SAME, VALUE, Function, Op
from portable_softmax.row_kernels.values import COLUMNS, PROGRAM, Access, Loop, Value, ahead, digest, number, runs_of, wide_of

MAX_TURNS, LAST = 300, -1  # turns of a loop that are traced, and its last one
AXIS = re.compile(r"axis = (\d+)")
LABEL = re.compile(r"\^\w+")
WORK = "reduce", "exp", "exp2"


@dataclass
class Trace:
    """Traces one program.

    What is loaded is unknown, of an unknown condition both branches are traced, and a loop whose bounds are unknown has one
    turn. Numbers that a loop changes by the same amount in every turn are known in turns that follow others.
    """

    function: Function
    arguments: Mapping[str, Any]  # values of its parameters by name
    program: tuple[int, int, int] | None  # its number along each axis; None for any
    grid: tuple[int, int, int]  # programs along each axis
    turns: int = 2  # that are traced of loops whose turns depend on the program; of others, two
    also: int | None = None  # another turn that is traced, or LAST
    block: int = 0  # elements of a block, whose ranges are the columns

    def __post_init__(self) -> None:
        self.accesses: list[Access] = []
        self.axes: set[int] = set()  # other than 0, along which the number of the program is read
        self.decisive: set[str] = set()  # what turns of loops, and branches, depend on
        self.work: list[tuple[Op, tuple[Loop, ...]]] = []  # reductions and exponents of first turns, and the loops around them
        self._open: list[Loop] = []
        self._unknown: list[Any] = []  # identities of unknown conditions and bounds of loops around
        self._returned = False
        self._control = {"scf.if": self._if, "scf.for": self._for, "scf.while": self._while}
        self._values: defaultdict[str, Value] = defaultdict(Value)
        for value, name in self.function.parameters.items():
            argument: Any = self.arguments.get(name)
            known = Value(None, "", frozenset((name,)), name)
            if isinstance(argument, int):
                known = known._replace(number=int(argument), key=None)
            elif hasattr(argument, "data_ptr") or hasattr(argument, "base"):
                known = known._replace(number=0, root=name, key=None)
            self._values[value] = known
        self._region(self.function.body)

    @contextlib.contextmanager
    def _inside(self, *loops: Loop) -> Iterator[None]:
        """Enters a block: unknown conditions in it, and its loop, end with it."""
        outside = len(self._unknown)
        self._open += loops
        yield
        del self._unknown[outside:], self._open[len(self._open) - len(loops) :]

    def _of(self, names: Sequence[str]) -> frozenset[str]:
        """Returns what values depend on."""
        return frozenset().union(*(self._values[name].sources for name in names))

    def _set(self, names: Sequence[str], values: Sequence[Value], of: frozenset[str] = frozenset()) -> None:
        """Sets values; `of` is what else they depend on."""
        for name, value in zip(names, values, strict=False):
            self._values[name] = value._replace(sources=value.sources | of)

    def _branch(self, condition: Value) -> bool:
        """Notes a condition that decides what follows; returns True if it is known."""
        self.decisive |= condition.sources
        if condition.number is None:
            self._unknown.append(condition.identity)
        return condition.number is not None

    def _region(self, ops: Sequence[Op]) -> list[Value]:
        """Traces operations; returns the results of the last one."""
        at, is_known, yielded = 0, True, list[Value]()
        with self._inside():
            while at < len(ops) and not self._returned:
                op = ops[at]
                at += 1
                if op.name in ("cf.br", "cf.cond_br"):
                    condition, values = Value(1), op.operands
                    if op.name == "cf.cond_br":
                        condition, values = self._values[op.operands[0]], op.operands[1:]
                    is_known = self._branch(condition) and is_known
                    yes, *_, no = LABEL.findall(op.text) * 2
                    target = {1: yes}.get(condition.number, no)
                    start = next(i for i, label in enumerate(ops) if label.name == "label" and label.text.startswith(target))
                    self._set(ops[start].results, [self._values[name] for name in values])
                    if is_known:
                        at = start
                elif op.name == "tt.return":
                    self._returned = is_known  # else another branch goes on
                elif op.name in ("scf.yield", "scf.condition"):
                    yielded = [self._values[name] for name in op.operands]
                elif op.name in self._control:
                    self._control[op.name](op)
                elif op.name != "label":
                    self._operation(op)
        return yielded

    def _if(self, op: Op) -> None:
        condition = self._values[op.operands[0]]
        with self._inside():
            branches = op.regions
            if self._branch(condition):
                branches = op.regions[:1] if condition.number else op.regions[1:2]
            results = [*zip(*filter(None, map(self._region, branches)), strict=False)]
        for name, several in zip(op.results, results, strict=False):
            keys, of = {value.identity for value in several}, frozenset().union(*(value.sources for value in several))
            merged = several[0] if len(keys) == 1 else Value(key=hash((self._identity(op), *keys)))
            self._set([name], [merged], of | condition.sources)

    def _for(self, op: Op) -> None:
        variable, *bounds = op.operands[:4]
        first, end, step = (self._values[bound].number for bound in bounds)
        of = self._of(bounds)
        loop, names = Loop(op, of), self._carried(op, of)
        index = Value(None, "", of, hash(tuple(self._values[bound].identity for bound in bounds)))
        if first is not None and end is not None and step:
            turns = range(first, end, step)
            loop.trips, index = len(turns), Value(first, "", of)
        with self._inside(loop):
            self._branch(index)
            for turn in self._turns(loop, names):
                if loop.trips is not None:
                    index = Value(turns[turn], "", of)
                self._values[variable] = index
                self._set(names, self._region(op.regions[0]), self._of(names))
        self._set(op.results, [self._values[name] for name in names], of)

    def _while(self, op: Op) -> None:
        before, after = op.regions
        names, gaps = self._carried(op, frozenset()), list[Any]()
        loop = Loop(op, self._of(names), is_while=True)
        with self._inside(loop):
            for turn in self._turns(loop, names):
                condition, *passed = self._region(before) or [Value()]
                loop.sources |= condition.sources
                if condition.number == 0:
                    loop.trips = turn
                if condition.number == 0 or (turn and condition.number is None):
                    break
                self._branch(condition)
                gaps.append(self._gap(before))
                if turn == 1 and None not in gaps and gaps[0] > gaps[1]:
                    loop.trips = -(-gaps[0] // (gaps[0] - gaps[1]))
                self._set(after[0].results if after and after[0].name == "label" else [], passed, condition.sources)
                self._set(names, self._region(after), self._of(names))
            else:
                condition, *passed = self._region(before) or [Value()]
        self._set(op.results, passed, condition.sources)

    def _gap(self, before: Sequence[Op]) -> Any:
        """Returns how far a number is from its bound, by which the condition of a while loop compares it; None if unknown."""
        for op in before:
            if op.results == before[-1].operands[:1] and op.kind == "cmpi" and op.predicate[0] in "lg":
                a, b = (self._values[name].number for name in op.operands)
                if a is not None and b is not None:
                    gap = b - a
                    if op.predicate[0] == "g":
                        gap = a - b
                    return gap + int(op.predicate[1] == "e")
        return None

    def _carried(self, op: Op, of: frozenset[str]) -> list[str]:
        """Sets what a loop carries to its first values; returns the names."""
        self._set([name for name, _ in op.carried], [self._values[value] for _, value in op.carried], of)
        return [name for name, _ in op.carried]

    def _turns(self, loop: Loop, names: Sequence[str]) -> Iterator[int]:
        """Yields the turns of a loop that are traced, with all that it carries set to its values then, and at its end."""
        states, done = list[list[Value]](), 0
        while (turn := self._following(loop, done)) is not None:
            self._skip(names, states, turn - done)
            states.append([self._values[name] for name in names])
            loop.turn, done = turn, turn + 1
            yield turn
        self._skip(names, states, loop.trips and loop.trips - done)

    def _following(self, loop: Loop, done: int) -> int | None:
        """Returns the next turn of a loop that is traced, after so many; None if there is none."""
        most, also = 2, self.also
        if PROGRAM in loop.sources:
            most = self.turns
        if loop.trips is None:
            also = None
            if not loop.is_while:
                most = 1
        else:
            most = min(most, loop.trips)
            if also == LAST:
                also = loop.trips - 1
        if done < most:
            return done
        return also if also is not None and done <= also < (loop.trips or 0) else None

    def _skip(self, names: Sequence[str], states: Sequence[Sequence[Value]], turns: int | None) -> None:
        """Sets what a loop carries to its values after more turns that are not traced, None if their number is unknown."""
        for at, name in enumerate(names if turns != 0 else ()):
            self._values[name] = ahead([*(state[at] for state in states[-2:]), self._values[name]], turns)

    def _identity(self, op: Op) -> Any:
        return op.kind, op.words, *(self._values[name].identity for name in op.operands)

    def _operation(self, op: Op) -> None:
        operands, kind = [self._values[name] for name in op.operands], op.kind
        if operands and (kind in SAME or (kind == "expand_dims" and not isinstance(operands[0].number, np.ndarray))):
            self._set(op.results, operands)
            return
        if kind == "select" and isinstance(operands[0].number, int):
            self._set(op.results, operands[1:] if operands[0].number else operands[2:], operands[0].sources)
            return
        value = Value(None, "", self._of(op.operands), None, max((one.wide for one in operands), key=abs, default=0))
        if kind in ACCESSES:
            self._access(op, ACCESSES[kind])
        elif kind in WORK and not any(loop.turn for loop in self._open):
            self.work.append((op, tuple(self._open)))
        elif kind in ("get_program_id", "get_num_programs"):
            value = self._program(kind, "xyz".index(op.text.split()[1]))
        elif kind == "make_range":
            value = Value(op.literal, "", frozenset({COLUMNS} if op.elements == self.block else ()))
        elif kind == "constant":
            value = Value(op.literal)
        elif kind == "expand_dims":
            value = operands[0]._replace(number=np.expand_dims(operands[0].number, int(AXIS.findall(op.text)[0])))
        elif kind in MOVED:
            value = value._replace(root=operands[0].root)
            if kind == "addptr" and operands[0].number is not None and operands[1].number is not None:
                value = value._replace(number=operands[0].number + operands[1].number)
        elif not any(one.root or one.number is None for one in operands):
            value = self._computed(op, value, [one.number for one in operands])
        if value.number is None:
            value = value._replace(key=hash(self._identity(op)))
        self._set(op.results, [value] * len(op.results))

    def _program(self, kind: str, axis: int) -> Value:
        """Returns the number of the program along an axis, or of all."""
        number: int | None = self.grid[axis]
        if kind == "get_program_id":
            self.axes |= {axis} - {0}
            number = self.program and self.program[axis]
        return Value(number, "", frozenset((PROGRAM,)))

    def _computed(self, op: Op, value: Value, operands: Sequence[Any]) -> Value:
        """Returns the result of an operation on numbers, of which the rest is known."""
        if op.kind == "select":
            return value._replace(number=np.where(operands[0] != 0, *operands[1:]))
        result = number(op.predicate if op.kind == "cmpi" else op.kind, operands)
        wide = wide_of(result) if op.has_32_bits else 0
        return value._replace(number=result, wide=max(value.wide, wide, key=abs))

    def _access(self, op: Op, kind: str) -> None:
        address, mask = self._values[op.operands[0]], Value(1)
        if op.mask:
            mask = self._values[op.mask[0]]
        place, runs = address.identity, None
        hides = mask.number is None or "array<i32: " in op.text  # bounds are checked
        if "descriptor" in op.name:
            names = VALUE.findall(op.text.partition("[")[2].partition("]")[0])
            place, hides = (place, *(self._values[name].identity for name in names)), True
            wide = max((self._values[name].wide for name in names), key=abs, default=0)
            address = address._replace(sources=address.sources | self._of(names), wide=wide)
        elif mask.number is not None and not np.any(mask.number):
            return
        elif address.number is not None:
            offsets = np.reshape(address.number, -1)[:1]
            if mask.number is not None:
                offsets, seen = np.broadcast_arrays(address.number, mask.number)
                hides = hides or not np.all(seen)
                offsets = offsets[seen != 0]
            runs = runs_of(offsets)
            place = digest(runs)
        sure, stored = mask.number is not None and not self._unknown, None
        if kind != "load" and len(op.operands) > 1:  # and whether it is stored
            stored = self._values[op.operands[1]].identity, mask.key, *self._unknown
        loops, place = tuple(self._open), (address.root, kind, place)
        turns = tuple(loop.turn for loop in loops)
        self.accesses.append(Access(address.root, kind, place, runs, address, loops, turns, hides, sure, stored, op))
