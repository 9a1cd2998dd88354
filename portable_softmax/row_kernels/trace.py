"""Traces programs in Triton's IR: their integers, and the addresses of their loads, stores and atomic operations."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from portable_softmax.row_kernels.ttir import ACCESSES, MASKS, MOVED, SAME, Function, Op
from portable_softmax.row_kernels.values import (
    ARITHMETIC,
    COLUMNS,
    PROGRAM,
    UNKNOWN,
    Access,
    Loop,
    Value,
    ahead,
    computed,
    runs_of,
    sources_of,
    trips_of,
    unknown,
    wide_of,
)

LABEL = re.compile(r"\^\w+")
WORK = "reduce", "exp", "exp2"
FAR = 2**31 - 1  # a turn that loops do not have
ONE = Value(np.int64(1))


class Trace:
    """Traces one program of a grid.

    What is loaded is unknown, of an unknown condition both branches are traced, and a loop of unknown bounds has one turn. Of
    other loops the first turns and the last one that accesses memory are traced: what a loop changes by the same amount in
    every turn is known in turns that follow others.

    Args:
        arguments: values of the function's parameters by name.
        program, grid: its number along each axis, and how many there are.
        turns: first turns that are traced of loops with turns that depend on the program; of others, two.
        block: elements of a block: ranges of so many are the columns.
    """

    def __init__(
        self,
        function: Function,
        arguments: Mapping[str, Any],
        program: tuple[int, int, int],
        grid: tuple[int, int, int],
        turns: int = 2,
        block: int = 0,
    ) -> None:
        self.program, self._grid, self._turns, self._block = program, grid, turns, block
        self.accesses: list[Access] = []
        self.work: dict[Op, tuple[tuple[Loop, int], ...]] = {}  # reductions and exponents, and the loops around the first
        self.decisive: frozenset[str] = frozenset()  # what turns of loops, and branches, depend on
        self._loops: tuple[tuple[Loop, int], ...] = ()  # around, outermost first, and their turns
        self._unknown: tuple[Any, ...] = ()  # identities of unknown conditions around
        self._values = defaultdict[str, Value](Value)
        for value, name in function.parameters.items():
            argument: Any = arguments.get(name)
            known = Value(None, "", frozenset((name,)), name)
            if isinstance(argument, int) and -UNKNOWN < argument < UNKNOWN:
                known = known._replace(number=np.int64(argument))
            elif hasattr(argument, "data_ptr") or hasattr(argument, "base"):
                known = known._replace(number=np.int64(0), root=name)
            self._values[value] = known
        with np.errstate(all="ignore"):
            self._region(function.body)

    def _set(self, names: Sequence[str], values: Sequence[Value], sources: frozenset[str] = frozenset()) -> None:
        """Sets values; `sources` is what else they depend on."""
        for name, value in zip(names, values, strict=False):
            self._values[name] = value._replace(sources=value.sources | sources)

    def _decide(self, condition: Value) -> None:
        """Notes what decides what follows, up to the end of a block."""
        self.decisive |= condition.sources
        if condition.number is None:
            self._unknown += (condition.identity,)

    def _region(self, ops: Sequence[Op]) -> list[Value]:
        """Traces operations; returns the operands of the last one."""
        at, around, operands = 0, self._unknown, list[Value]()
        while at < len(ops):
            op, at = ops[at], at + 1
            operands = [self._values[name] for name in op.operands]
            if op.name in ("cf.br", "cf.cond_br"):
                values, condition = operands, ONE
                if op.name == "cf.cond_br":
                    condition, *values = operands
                self._decide(condition)
                yes, *_, no = LABEL.findall(op.text) * 2
                target = {1: yes}.get(condition.number, no)
                start = next(i for i, label in enumerate(ops) if label.name == "label" and label.text.startswith(target))
                self._set(ops[start].results, values)
                if self._unknown == around:  # else all blocks are traced
                    at = start
            elif op.name == "tt.return" and self._unknown == around:
                break
            elif op.name == "scf.if":
                self._if(op, operands[0])
            elif op.name in ("scf.for", "scf.while"):
                self._loop(op)
            elif op.name != "label":
                self._operation(op, operands)
        self._unknown = around
        return operands

    def _if(self, op: Op, condition: Value) -> None:
        around, branches = self._unknown, op.regions
        self._decide(condition)
        if condition.number is not None:
            branches = op.regions[0 if condition.number else 1 :][:1]
        results = zip(*map(self._region, branches), strict=False)
        self._unknown = around
        for name, several in zip(op.results, results, strict=False):
            value = several[0]
            if len({one.identity for one in several}) > 1:
                value = unknown(op.words, (condition, *several))
            self._set([name], [value], sources_of((condition, *several)))

    def _loop(self, op: Op) -> None:
        """Traces the first turns of a loop, and the last one that accesses memory."""
        names, loops, around = [name for name, _ in op.carried], self._loops, self._unknown
        bounds = [self._values[bound] for bound in op.bounds]  # none of a while loop
        loop = Loop(op, sources_of(bounds), trips_of(bounds))
        self._set(names, [self._values[first] for _, first in op.carried], loop.sources)
        states = [[self._values[name] for name in names]]

        def begin(turn: int | None) -> Value:
            """Sets what a loop carries into a turn, None behind an unknown number of them; returns the turn's condition."""
            self._loops = (*loops, (loop, turn or 0))
            carried = [ahead(values, turn and turn + 1 - len(states)) for values in zip(*states[-3:], strict=True)]
            self._set(names, carried)
            if bounds:
                condition = self._index(loop, bounds, turn)
            else:
                condition, *carried = self._region(op.regions[0])
                loop.sources |= condition.sources
                for label in op.regions[1][:1]:
                    self._set(label.results, carried, condition.sources)
            self._set(op.results, carried, condition.sources)
            return condition

        def accesses(turn: int) -> bool:
            """Traces a turn; returns True if it accesses memory."""
            begin(turn)
            made = len(self.accesses)
            self._set(names, self._region(op.regions[-1]), loop.sources)
            return len(self.accesses) > made

        condition, done = begin(0), 0
        self._decide(condition)
        turns = self._turns if PROGRAM in loop.sources else 2
        while condition.number != 0 and done < turns:
            accesses(done)
            states.append([self._values[name] for name in names])
            done += 1
            if condition.number is None:
                break
            condition = begin(done)
        if condition.number == 0:
            loop.trips = done
        elif condition.number and not bounds:
            loop.trips = bisect_left(range(FAR), True, lo=done, key=lambda turn: begin(turn).number != 1)
        left = range(done, loop.trips or 0)
        if begin(loop.trips).number != 0:
            loop.trips = None  # the end of a while loop is unknown
        elif left and not accesses(left[-1]):
            bisect_left(left, True, hi=len(left) - 1, key=lambda turn: not accesses(turn))
        begin(loop.trips)
        self._loops, self._unknown = loops, around
        self.decisive |= loop.sources

    def _index(self, loop: Loop, bounds: Sequence[Value], turn: int | None) -> Value:
        """Sets the variable of a for loop in a turn; returns the turn's condition."""
        index = condition = unknown("", bounds)
        if turn is not None and loop.trips is not None:
            index = index._replace(number=bounds[0].number + turn * bounds[2].number)
            condition = condition._replace(number=np.int64(turn < loop.trips))
        self._values[loop.op.operands[0]] = index
        return condition

    def _operation(self, op: Op, operands: Sequence[Value]) -> None:
        """Traces an operation without regions."""
        if op.kind in ACCESSES:
            self._access(op, ACCESSES[op.kind], operands)
        elif op.kind in WORK:
            self.work.setdefault(op, self._loops)
        self._set(op.results, [self._result(op, operands)] * len(op.results))

    def _result(self, op: Op, operands: Sequence[Value]) -> Value:
        """Returns the result of an operation."""
        kind, root = op.kind, ""
        if kind in ("get_program_id", "get_num_programs"):
            axes = {"get_program_id": self.program}.get(kind, self._grid)
            return Value(np.int64(axes["xyz".index(op.text.split()[1])]), sources=frozenset((PROGRAM,)))
        if kind == "make_range" and op.elements == self._block:
            return Value(op.literal, sources=frozenset((COLUMNS,)))
        if kind == "select" and np.shape(operands[0].number) == () and operands[0].number is not None:
            chosen = operands[1 if operands[0].number else 2]
            return chosen._replace(sources=chosen.sources | operands[0].sources)
        if kind in SAME or kind in MOVED:
            root = operands[0].root
        result = computed(op, operands)
        if result is None:
            return unknown(op.words, operands, root)
        wide = [one.wide for one in operands]
        if kind in ARITHMETIC and op.text.rstrip(">").endswith("i32"):
            wide.append(wide_of(result))
        return Value(result, root, sources_of(operands), None, max(wide, key=abs, default=0))

    def _access(self, op: Op, kind: str, operands: Sequence[Value]) -> None:
        """Traces a load, store or atomic operation; one that a mask hides entirely is none."""
        address, values, hides = operands[0], operands[1:2], "array<i32: " in op.text  # bounds are checked
        (mask,) = operands[MASKS.get(op.kind, 2) :][:1] or [ONE]
        if "descriptor" in op.name:
            place, values = (operands, operands[:0]) if kind == "load" else (operands[:-1], operands[-1:])
            address, mask, hides = unknown("", place, address.root), ONE, True
        if mask.number is not None and not np.any(mask.number):
            return
        if address.number is None:
            first = UNKNOWN + hash((address.root, kind, address.identity)) % UNKNOWN
            runs = np.array([[first, first + 1]])
        elif mask.number is None:
            runs = runs_of(address.number.reshape(-1)[:1])
        else:
            offsets, seen = np.broadcast_arrays(address.number, mask.number)
            hides = hides or not np.all(seen)
            runs = runs_of(offsets[seen != 0])
        hides, sure = hides or mask.number is None, mask.number is not None and not self._unknown and address.number is not None
        stored = (*(value.identity for value in values if kind != "load"), mask.key, *self._unknown)
        self.accesses.append(Access(op, kind, address.root, address, runs, self._loops, hides, sure, stored))


def traces(
    function: Function, arguments: Mapping[str, Any], programs: Sequence[int], of_all: int, turns: int = 2
) -> list[Trace]:
    """Traces some programs of a launch along axis 0."""
    return [Trace(function, arguments, (program, 0, 0), (of_all, 1, 1), turns) for program in programs]
