"""Traces programs in Triton's IR: their integers, and the addresses of their loads, stores and atomic operations."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from portable_softmax.row_kernels.ttir import ACCESSES, MOVED, SAME, VALUE, Function, Op
from portable_softmax.row_kernels.values import COLUMNS, PROGRAM, UNKNOWN, Access, Loop, Value, number, runs_of, turned, wide_of

AXIS = re.compile(r"axis = (\d+)")
LABEL = re.compile(r"\^\w+")
WORK = "reduce", "exp", "exp2"
FAR = 2**31 - 1  # a turn that while loops do not have
ONE = Value(np.int64(1))


@dataclass
class Trace:
    """Traces one program.

    What is loaded is unknown, of an unknown condition both branches are traced, and a loop of unknown bounds has one
    turn. Of other loops the first turns and the last one that accesses memory are traced: what a loop changes by the same
    amount in every turn is known in turns that follow others.
    """

    function: Function
    arguments: Mapping[str, Any]  # values of its parameters by name
    program: tuple[int, int, int] | None  # its number along each axis; None for any
    grid: tuple[int, int, int]  # programs along each axis
    turns: int = 2  # first ones that are traced of loops with turns that depend on the program; of others, two
    block: int = 0  # elements of a block: ranges of so many are the columns

    def __post_init__(self) -> None:
        self.accesses: list[Access] = []
        self.axes: set[int] = set()  # along which the number of the program is read
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
            if isinstance(argument, int) and -UNKNOWN < argument < UNKNOWN:
                known = known._replace(number=np.int64(argument))
            elif hasattr(argument, "data_ptr") or hasattr(argument, "base"):
                known = known._replace(number=np.int64(0), root=name)
            self._values[value] = known
        with np.errstate(all="ignore"):
            self._region(self.function.body)

    @contextlib.contextmanager
    def _entered(self, *loops: Loop) -> Iterator[None]:
        """Enters a block: unknown conditions in it, and its loop, end with it."""
        n_unknown = len(self._unknown)
        self._open += loops
        yield
        del self._unknown[n_unknown:], self._open[len(self._open) - len(loops) :]

    def _sources_of(self, names: Sequence[str]) -> frozenset[str]:
        """Returns what values depend on."""
        return frozenset().union(*(self._values[name].sources for name in names))

    def _set(self, names: Sequence[str], values: Sequence[Value], sources: frozenset[str] = frozenset()) -> None:
        """Sets values; `sources` is what else they depend on."""
        for name, value in zip(names, values, strict=False):
            self._values[name] = value._replace(sources=value.sources | sources)

    def _branch(self, condition: Value) -> bool:
        """Notes a condition that decides what follows; returns True if it is known."""
        self.decisive |= condition.sources
        if condition.number is None:
            self._unknown.append(condition.identity)
        return condition.number is not None

    def _region(self, ops: Sequence[Op]) -> list[Value]:
        """Traces operations; returns the results of the last one."""
        at, is_known, yielded = 0, True, list[Value]()
        with self._entered():
            while at < len(ops) and not self._returned:
                op = ops[at]
                at += 1
                if op.name in ("cf.br", "cf.cond_br"):
                    condition, values = ONE, op.operands
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
        with self._entered():
            branches = op.regions
            if self._branch(condition):
                branches = op.regions[:1] if condition.number else op.regions[1:2]
            results = [*zip(*filter(None, map(self._region, branches)), strict=False)]
        for name, several in zip(op.results, results, strict=False):
            keys, sources = {value.identity for value in several}, frozenset().union(*(value.sources for value in several))
            merged = several[0] if len(keys) == 1 else Value(key=hash((self._identity(op), *keys)))
            self._set([name], [merged], sources | condition.sources)

    def _for(self, op: Op) -> None:
        variable, *bounds = op.operands[:4]
        first, end, step = (self._values[bound].number for bound in bounds)
        sources = self._sources_of(bounds)
        loop, names = Loop(op, sources), self._carried(op, sources)
        index = Value(None, "", sources, hash(tuple(self._values[bound].identity for bound in bounds)))
        if first is not None and end is not None and step:
            loop.trips, index = len(range(first, end, step)), Value(first, "", sources)
        with self._entered(loop):
            self._branch(index)
            for turn in self._turns(loop, names):
                if loop.trips is not None:
                    index = index._replace(number=first + turn * step)
                self._values[variable] = index
                self._set(names, self._region(op.regions[0]), self._sources_of(names))
        self._set(op.results, [self._values[name] for name in names], sources)

    def _while(self, op: Op) -> None:
        test, body = op.regions
        names = self._carried(op, frozenset())
        loop = Loop(op, self._sources_of(names))
        with self._entered(loop):
            for turn in self._turns(loop, names):
                condition, *passed = self._region(test) or [Value()]
                loop.sources |= condition.sources
                if condition.number == 0:
                    loop.trips = turn
                    continue
                if turn == FAR or (turn and condition.number is None):
                    loop.trips = None
                    break
                self._branch(condition)
                self._set(body[0].results if body and body[0].name == "label" else [], passed, condition.sources)
                self._set(names, self._region(body), self._sources_of(names))
            else:
                condition, *passed = self._region(test) or [Value()]
        self._set(op.results, passed, condition.sources)

    def _carried(self, op: Op, sources: frozenset[str]) -> list[str]:
        """Sets what a loop carries to its first values; returns the names."""
        self._set([name for name, _ in op.carried], [self._values[value] for _, value in op.carried], sources)
        return [name for name, _ in op.carried]

    def _turns(self, loop: Loop, names: Sequence[str]) -> Iterator[int]:
        """Yields the turns of a loop that are traced, with all that it carries set to its values then, and at its end."""
        states, is_while = [[self._values[name] for name in names]], loop.op.name == "scf.while"
        while (done := len(states) - 1) < self._first_turns(loop) and done != loop.trips:
            loop.turn = done
            yield done
            if done != loop.trips:
                states.append([self._values[name] for name in names])
        if loop.trips is None and is_while:
            loop.trips = FAR + 1
        low, high = done, loop.trips or 0
        turn = high - 1
        while low < high:  # searches for the last turn that accesses memory
            made = len(self.accesses)
            loop.turn = turn
            self._jump(names, states, turn - done)
            yield turn
            if len(self.accesses) > made:
                low = turn + 1
            else:
                high = turn
            turn = (low + high) // 2
        if is_while:
            loop.trips = low
        self._jump(names, states, loop.trips and loop.trips - done)

    def _first_turns(self, loop: Loop) -> int:
        if loop.trips is None and loop.op.name == "scf.for":
            return 1
        return self.turns if PROGRAM in loop.sources else 2

    def _jump(self, names: Sequence[str], states: Sequence[Sequence[Value]], turns: int | None) -> None:
        """Sets what a loop carries to its values after more turns than those of which there are states; None if unknown."""
        for at, name in enumerate(names):
            self._values[name] = turned([state[at] for state in states[-3:]], turns)

    def _identity(self, op: Op) -> Any:
        return op.kind, op.words, *(self._values[name].identity for name in op.operands)

    def _operation(self, op: Op) -> None:
        """Traces an operation without regions."""
        operands, kind = [self._values[name] for name in op.operands], op.kind
        if kind in ACCESSES:
            self._access(op, ACCESSES[kind])
        elif kind in WORK and not any(loop.turn for loop in self._open):
            self.work.append((op, tuple(self._open)))
        if operands and (kind in SAME or (kind == "expand_dims" and np.ndim(operands[0].number) == 0)):
            value = operands[0]
        elif kind == "select" and operands[0].number is not None and operands[0].number.ndim == 0:
            condition, chosen, other = operands
            if not condition.number:
                chosen = other
            value = chosen._replace(sources=chosen.sources | condition.sources)
        else:
            value = self._result(op, operands)
        self._set(op.results, [value] * len(op.results))

    def _result(self, op: Op, operands: Sequence[Value]) -> Value:
        """Returns the result of an operation that computes a value."""
        numbers, kind = [one.number for one in operands], op.kind
        result: Any = None
        is_known = all(one is not None for one in numbers)
        value = Value(None, "", self._sources_of(op.operands), None, max((one.wide for one in operands), key=abs, default=0))
        if kind in ("get_program_id", "get_num_programs"):
            axis = "xyz".index(op.text.split()[1])
            result, value = np.int64(self.grid[axis]), Value(sources=frozenset((PROGRAM,)))
            if kind == "get_program_id":
                result = self.program and np.int64(self.program[axis])
                self.axes.add(axis)
        elif kind in ("constant", "make_range"):
            result = op.literal
            if kind == "make_range" and op.elements == self.block:
                value = Value(sources=frozenset((COLUMNS,)))
        elif kind == "expand_dims":
            result = np.expand_dims(numbers[0], int(AXIS.findall(op.text)[0]))
        elif kind in MOVED:
            value = value._replace(root=operands[0].root)
            if kind == "addptr" and is_known:
                result = numbers[0] + numbers[1]
        elif is_known and not any(one.root for one in operands):
            result = number(op.predicate if kind == "cmpi" else kind, numbers)
            if result is not None and op.text.rstrip(">").endswith("i32") and kind != "select":
                value = value._replace(wide=max(value.wide, wide_of(result), key=abs))
        if result is None:
            return value._replace(key=hash(self._identity(op)))
        return value._replace(number=result)

    def _access(self, op: Op, kind: str) -> None:
        address, mask, is_descriptor = self._values[op.operands[0]], ONE, "descriptor" in op.name
        if op.mask and not is_descriptor:  # which has indices there
            mask = self._values[op.mask[0]]
        if mask.number is not None and not np.any(mask.number):
            return
        place, hides = address.identity, mask.number is None or "array<i32: " in op.text  # bounds are checked
        if is_descriptor:
            names = VALUE.findall(op.text.partition("[")[2].partition("]")[0])
            place, hides = (place, *(self._values[name].identity for name in names)), True
            wide = max((self._values[name].wide for name in names), key=abs, default=0)
            address = address._replace(number=None, sources=address.sources | self._sources_of(names), wide=wide)
        if address.number is None:
            start = UNKNOWN + hash((address.root, kind, place)) % UNKNOWN
            runs = np.array([[start, start + 1]])
        elif mask.number is None:
            runs = runs_of(address.number.reshape(-1)[:1])
        else:
            offsets, seen = np.broadcast_arrays(address.number, mask.number)
            hides = hides or not np.all(seen)
            runs = runs_of(offsets[seen != 0])
        sure = address.number is not None and mask.number is not None and not self._unknown
        stored = None
        if kind != "load" and len(op.operands) > 1:  # and whether it is stored
            stored = self._values[op.operands[-1 if is_descriptor else 1]].identity, mask.key, *self._unknown
        turns = tuple((loop, loop.turn) for loop in self._open)
        self.accesses.append(Access(op, kind, address.root, address, runs, turns, hides, sure, stored))


def traces(
    function: Function, arguments: Mapping[str, Any], programs: Sequence[int], of_all: int, turns: int = 2
) -> list[Trace]:
    """Traces some programs of a launch along axis 0."""
    return [Trace(function, arguments, (program, 0, 0), (of_all, 1, 1), turns) for program in programs]
