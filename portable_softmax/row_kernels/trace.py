"""Traces programs in Triton's IR: their integers, and the addresses of their loads, stores and atomic operations."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from portable_softmax.row_kernels.ttir import ACCESSES, COLUMNS, PROGRAM, UNKNOWN, Access, Function, Loop, Op, Turns, Value

LABEL = re.compile(r"\^\w+")
MASKS = {"load": 1, "atomic_cas": 3}  # places of masks among operands, 2 for others
WORK = "reduce", "exp", "exp2"
NOUNS = {"load": "a load of", "store": "a store to", "atomic": "an atomic operation on"}
FAR = 2**31 - 1  # a turn that loops do not have
ONE = Value(np.int64(1))
Axes = tuple[int, int, int]


@dataclass
class Trace:
    """Traces one program of a grid.

    What is loaded is unknown, of an unknown condition both branches are traced, and a loop of unknown bounds has one turn. Of
    other loops the first turns and the last one that accesses memory are traced: what a loop changes by the same amount in
    every turn is known in turns that follow others.
    """

    function: Function
    arguments: Mapping[str, Any]  # values of its parameters by name
    program: Axes  # its number along each axis
    grid: Axes  # programs along each axis
    turns: int = 2  # first ones that are traced of loops with turns that depend on the program; of others, two
    block: int = 0  # elements of a block: ranges of so many are the columns

    def __post_init__(self) -> None:
        self.accesses: list[Access] = []
        self.work: dict[Op, Turns] = {}  # reductions and exponents, and the loops around the first of an operation
        self.decisive: frozenset[Any] = frozenset()  # what turns of loops, and branches, depend on
        self._loops: Turns = ()  # around
        self._unknown: tuple[Any, ...] = ()  # identities of unknown conditions around
        self._values = defaultdict[str, Value](Value)
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

    def _set(self, names: Sequence[str], values: Sequence[Value], sources: frozenset[Any] = frozenset()) -> None:
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
        if condition.number == 0:
            branches = op.regions[1:]
        elif condition.number is not None:
            branches = op.regions[:1]
        results = zip(*map(self._region, branches), strict=False)
        self._unknown = around
        for name, several in zip(op.results, results, strict=False):
            value = several[0]
            if len({one.identity for one in several}) > 1:
                value = Value.unknown(op.label, (condition, *several))
            self._values[name] = value.depends(condition, *several)

    def _loop(self, op: Op) -> None:
        """Traces the first turns of a loop, and the last one that accesses memory."""
        names, loops, around = [name for name, _ in op.carried], self._loops, self._unknown
        bounds, loop = [self._values[bound] for bound in op.bounds], Loop(op)  # none of a while loop
        if bounds and all(bound.number is not None for bound in bounds) and bounds[2].number:
            loop.trips = len(range(*(int(bound.number) for bound in bounds)))
        loop.sources = Value().depends(*bounds).sources
        self._set(names, [self._values[first] for _, first in op.carried], loop.sources)
        states = [[self._values[name] for name in names]]

        def begin(turn: int | None) -> Value:
            """Sets what a loop carries into a turn, None behind an unknown number of them; returns the turn's condition."""
            self._loops = (*loops, (loop, turn or 0))
            carried = [Value.ahead(values, turn and turn + 1 - len(states)) for values in zip(*states[-3:], strict=True)]
            self._set(names, carried)
            if bounds:
                condition = variable = Value.unknown("", bounds)
                if turn is not None and loop.trips is not None:
                    condition = condition._replace(number=np.int64(turn < loop.trips))
                    variable = variable._replace(number=bounds[0].number + turn * bounds[2].number)
                self._values[op.operands[0]] = variable
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

        condition = begin(0)
        self._decide(condition)
        turns = self.turns if PROGRAM in loop.sources else 2
        while condition.number != 0 and len(states) <= (turns if condition.number else 1):
            accesses(len(states) - 1)
            states.append([self._values[name] for name in names])
            condition = begin(len(states) - 1)
        done = len(states) - 1
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

    def _operation(self, op: Op, operands: Sequence[Value]) -> None:
        """Traces an operation without regions."""
        value, kind = Value(), op.kind
        if kind in ACCESSES:
            self._access(op, ACCESSES[kind], operands)
        elif kind in WORK:
            self.work.setdefault(op, self._loops)
        if kind in ("get_program_id", "get_num_programs"):
            axes = {"get_program_id": self.program, "get_num_programs": self.grid}[kind]
            value = Value(np.int64(axes["xyz".index(op.text.split()[1])]), sources=frozenset((PROGRAM,)))
        elif kind == "make_range" and op.elements == self.block:
            value = Value(op.literal, sources=frozenset((COLUMNS,)))
        elif kind == "select" and operands[0].number is not None and operands[0].number.ndim == 0:
            value = operands[2 - int(operands[0].number)].depends(operands[0])
        else:
            value = Value.of(op, operands)
        self._set(op.results, [value] * len(op.results))

    def _access(self, op: Op, kind: str, operands: Sequence[Value]) -> None:
        """Traces a load, store or atomic operation; one that a mask hides entirely is none."""
        address, others, root = operands[0], operands[1:], operands[0].root
        (mask,) = operands[MASKS.get(op.kind, 2) :][:1] or [ONE]
        hides = "array<i32: " in op.text  # bounds are checked
        if "descriptor" in op.name:
            address = Value.unknown("", {"load": operands}.get(kind, operands[:-1]), root)
            mask, others, hides = ONE, operands[-1:], True
        if mask.number is not None and not np.any(mask.number):
            return
        sure = not self._unknown
        if address.number is None:
            first = UNKNOWN + hash((root, kind, address.identity)) % UNKNOWN
            runs, hides, sure = np.array([[first, first + 1]]), True, False
        elif mask.number is None:
            runs, hides, sure = runs_of(address.number.reshape(-1)[:1]), True, False
        else:
            offsets, seen = np.broadcast_arrays(address.number, mask.number)
            runs, hides = runs_of(offsets[seen != 0]), hides or not np.all(seen)
        place, label = (root, kind, runs.tobytes()), f"{NOUNS[kind]} {root}"
        row = next(((loop, turn) for loop, turn in self._loops if PROGRAM in loop.sources), (None, 0))
        stored = *(value.identity for value in others[:1]), mask.key, *self._unknown
        program, loops = self.program[0], self._loops
        self.accesses.append(Access(op, kind, label, root, address, runs, place, program, loops, row, hides, sure, stored))


def accesses_of(
    function: Function, arguments: Mapping[str, Any], programs: Iterable[Axes], grid: Axes, **more: int
) -> list[Access]:
    """Returns the accesses of some programs of a grid; `more` are other arguments of Trace."""
    return [one for program in programs for one in Trace(function, arguments, program, grid, **more).accesses]


def runs_of(offsets: Any) -> Any:
    """Returns the intervals of the offsets of elements."""
    flat = offsets.reshape(-1)
    if (flat[1:] <= flat[:-1]).any():
        flat = np.unique(flat)
    cuts = np.flatnonzero(flat[1:] - flat[:-1] != 1)
    return np.stack([flat[np.r_[0, cuts + 1]], flat[np.r_[cuts, -1]] + 1], axis=1)
