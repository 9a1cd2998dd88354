"""Follows a program in Triton's IR: its integers, and the addresses of its loads and stores."""

import functools
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from portable_softmax.row_kernels.ttir import VALUE, Function, Op
from portable_softmax.row_kernels.values import (
    Access,
    Known,
    Partly,
    Pointer,
    are_numbers,
    digest,
    extended,
    number,
    runs_of,
    shaped,
)  # fmt: skip

LIMIT, MAX_TURNS, LAST = 2**31, 300, -1  # turns of a loop that are followed, and its last one
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
PROGRAM, COLUMNS = "program", "columns"  # that a value depends on, beside parameters: the second are the elements of a block
SAME = (
    {"extsi", "extui", "trunci", "index_cast", "splat", "broadcast", "unsplat"}
    | {"bitcast", "convert_layout", "int_to_ptr_range"}
)  # fmt: skip
MOVED = "addptr", "make_tensor_descriptor", "make_tensor_ptr", "advance"  # pointers made of pointers


@functools.cache
def _words(text: str) -> str:
    """Returns the text of an operation without its values."""
    return VALUE.sub("", text)


@dataclass
class Run:
    """Follows one program.

    What is loaded is unknown, of an unknown condition both branches are followed, and a loop whose bounds are unknown has one
    turn. Numbers that a loop changes by the same amount in every turn are known in turns that follow others.

    Args:
        function: the kernel.
        arguments: values of its parameters by name.
        program: its number along each axis; None for any.
        grid: programs along each axis.
        turns, inner_turns: how many turns are followed of loops whose turns depend on the program, and of others.
        also: another turn of them that is followed, or LAST.
        block: elements of a block, whose ranges are the columns.
    """

    function: Function
    arguments: Mapping[str, Any]
    program: tuple[int, int, int] | None
    grid: tuple[int, int, int]
    turns: int = 2
    inner_turns: int = 2
    also: int | None = None
    block: int = 0

    def __post_init__(self) -> None:
        self.accesses: list[Access] = []
        self.decisive: set[str] = set()  # what turns of loops, and branches, depend on
        self.trips: list[int | None] = []  # per loop that was entered, all of them; None if unknown
        self.loops: list[frozenset[str]] = []  # what these depend on
        self.work: list[tuple[Op, tuple[int, ...]]] = []  # reductions and exponents, and the loops around them
        self.large: list[tuple[Op, int]] = []  # operations of 32 bits whose result is not of 32 bits
        self._open: list[int] = []
        self._conditions: list[Any] = []  # unknown ones around, and bounds of loops
        self._turn: dict[int, int] = {}  # of loops
        self._returned, self._sure = False, True
        self.known: defaultdict[str, Known] = defaultdict(Known)  # of every value
        for value, name in self.function.parameters.items():
            argument: Any = self.arguments.get(name)
            is_pointer = hasattr(argument, "data_ptr") or hasattr(argument, "base")
            followed = int(argument) if isinstance(argument, int) else Pointer(name, 0) if is_pointer else None
            self.known[value] = Known(followed, frozenset((name,)), name)
        self._region(self.function.body)

    def of_rows(self, loops: Sequence[int]) -> int | None:
        """Returns the outermost of some loops whose turns depend on the program."""
        return next((loop for loop in loops if PROGRAM in self.loops[loop]), None)

    def _of(self, names: Sequence[str]) -> frozenset[str]:
        """Returns what values depend on."""
        return frozenset().union(*(self.known[name].sources for name in names))

    def _region(self, ops: Sequence[Op]) -> list[Known]:
        """Follows operations; returns the results of the last one."""
        at, sure, yielded, known = 0, self._sure, list[Known](), True  # known: no branch was unknown, so returns count
        while at < len(ops) and not self._returned:
            op = ops[at]
            at += 1
            if op.name in ("cf.br", "cf.cond_br"):
                condition, of, _ = Known(1) if op.name == "cf.br" else self.known[op.operands[0]]
                self.decisive |= of
                known = known and condition is not None
                self._sure = sure and known
                target = LABEL.findall(op.text)[0 if condition == 1 else -1]
                start = next(i for i, label in enumerate(ops) if label.name == "label" and label.text.startswith(target))
                self._set(ops[start].results, [self.known[name] for name in op.operands[op.name == "cf.cond_br" :]])
                at = start if known else at
            elif op.name == "tt.return":
                self._returned = known
            elif op.name in ("scf.yield", "scf.condition"):
                yielded = [self.known[name] for name in op.operands]
            elif op.name != "label":
                getattr(self, f"_{op.kind}" if op.name.startswith("scf.") else "_operation")(op)
        self._sure = sure
        return yielded

    def _set(self, names: Sequence[str], values: Sequence[Known], of: frozenset[str] = frozenset()) -> None:
        """Sets values; `of` is what else they depend on."""
        for name, known in zip(names, values, strict=False):
            self.known[name] = known._replace(sources=known.sources | of)

    def _if(self, op: Op) -> None:
        condition, of, _ = self.known[op.operands[0]]
        self.decisive |= of
        branches = op.regions if condition is None else op.regions[:1] if condition else op.regions[1:2]
        sure, self._sure = self._sure, self._sure and condition is not None
        self._conditions.append(self.known[op.operands[0]].identity if condition is None else None)
        results = zip(*filter(None, map(self._region, branches)), strict=False)  # of all branches
        self._conditions.pop()
        for name, several in zip(op.results, results, strict=False):
            keys = {known.identity for known in several}
            self.known[name] = several[0] if len(keys) == 1 else Known(None, frozenset(), hash((self._identity(op), *keys)))
            self._set([name], [self.known[name]], of.union(*(known.sources for known in several)))
        self._sure = sure

    def _for(self, op: Op) -> None:
        variable, *bounds = op.operands[:4]
        (first, end, step), of = (self.known[bound].value for bound in bounds), self._of(bounds)
        self.decisive |= of
        turns = range(first, end, step) if None not in (first, end) and step else None
        names, states = self._begin(op, None if turns is None else len(turns), of), list[list[Known]]()
        loop, sure, done = self._open[-1], self._sure, 0
        key = hash(tuple(self.known[bound].identity for bound in bounds))
        self._conditions.append(key if turns is None else None)
        self._sure = sure and turns is not None
        for turn in (0,) if turns is None else self._followed(len(turns), of):
            self._ahead(names, states, turn - done)
            states.append([self.known[name] for name in names])
            self.known[variable] = Known(first if turns is None else turns[turn], of, key)
            self._turn[loop], done = turn, turn + 1
            self._set(names, self._region(op.regions[0]), self._of(names))
        self._ahead(names, states, None if turns is None else len(turns) - done)
        self._conditions.pop()
        self._end(op, [self.known[name] for name in names], of, sure)

    def _while(self, op: Op) -> None:
        before, after = op.regions
        names, states, gaps = self._begin(op, None, frozenset()), list[list[Known]](), list[Any]()
        loop, sure, turn = self._open[-1], self._sure, 0
        self.loops[loop] = self._of(names)
        while True:
            (condition, of, _), *passed = self._region(before) or [Known()]
            self.decisive |= of
            if condition == 0 or (turn and condition is None) or turn == MAX_TURNS:
                break
            gaps.append(self._gap(before))
            if turn == 1 and None not in gaps and gaps[0] > gaps[1]:
                self.trips[loop] = -(-gaps[0] // (gaps[0] - gaps[1]))
            trips = self.trips[loop]
            following = next((at for at in self._followed(trips or turn + 1, self.loops[loop]) if at >= turn), trips)
            if turn > 1 and following != turn:
                self._ahead(names, states, following and following - turn)
                turn = following or MAX_TURNS
                continue
            states.append([self.known[name] for name in names])
            self._sure, self._turn[loop], turn = self._sure and condition is not None, turn, turn + 1
            self._set(after[0].results if after and after[0].name == "label" else [], passed, of)
            self._set(names, self._region(after), self._of(names))
        self.trips[loop] = turn if condition == 0 else self.trips[loop]
        self._end(op, passed, of, sure)

    def _gap(self, before: Sequence[Op]) -> Any:
        """Returns how far a number is from its bound, by which the condition of a while loop compares it; None if unknown."""
        for op in before:
            if op.results == before[-1].operands[:1] and op.kind == "cmpi" and op.predicate[0] in "lg":
                a, b = (self.known[name].value for name in op.operands)
                if a is not None and b is not None:
                    return (b - a) * (1 if op.predicate[0] == "l" else -1) + (op.predicate[1] == "e")
        return None

    def _followed(self, trips: int, of: frozenset[str]) -> list[int]:
        """Returns the turns of a loop that are followed."""
        most = min(trips, self.turns if PROGRAM in of else self.inner_turns)
        also = trips - 1 if self.also == LAST else self.also
        return [*range(most), *([] if also is None or not most <= also < trips else [also])]

    def _begin(self, op: Op, trips: int | None, of: frozenset[str]) -> list[str]:
        """Enters a loop; returns the names of what it carries."""
        carried = ASSIGNED.findall(op.text)[op.name == "scf.for" :]  # behind its variable
        names = [name for name, _ in carried]
        self._set(names, [self.known[value] for _, value in carried], of)
        self._open.append(len(self.loops))
        self.loops.append(of)
        self.trips.append(trips)
        return names

    def _end(self, op: Op, results: Sequence[Known], of: frozenset[str], sure: bool) -> None:
        self._open.pop()
        self._sure = sure
        self._set(op.results, results, of)

    def _ahead(self, names: Sequence[str], states: Sequence[Sequence[Known]], turns: int | None) -> None:
        """Sets what a loop carries to its value after more turns that are not followed, None if their number is unknown."""
        for at, name in enumerate(names if turns != 0 else ()):
            self.known[name] = extended([*(state[at] for state in states[-2:]), self.known[name]], turns)

    def _identity(self, op: Op) -> Any:
        return op.kind, _words(op.text), *(self.known[name].identity for name in op.operands)

    def _operation(self, op: Op) -> None:
        of, kind = self._of(op.operands), op.kind
        value: Any = None
        if kind in ACCESSES:
            self._access(op, ACCESSES[kind])
        elif kind in ("get_program_id", "get_num_programs"):
            axis = "xyz".index(op.text.split()[1])
            self.accesses += [Access("", "axis", axis)] if axis and kind == "get_program_id" else []
            numbers = self.program if kind == "get_program_id" else self.grid
            value, of = numbers and numbers[axis], frozenset((PROGRAM,))
        else:
            value = self._computed(op, kind)
            self.work += [(op, tuple(self._open))] if kind in WORK else []
            if kind == "make_range" and op.elements == self.block:
                of |= {COLUMNS}
        is_known = value is not None and getattr(value, "offset", 0) is not None and not isinstance(value, Partly)
        self._set(op.results, [Known(value, of, None if is_known else hash(self._identity(op)))] * len(op.results))

    def _computed(self, op: Op, kind: str) -> Any:
        operands: list[Any] = [self.known[name].value for name in op.operands]
        if kind == "constant":
            constant = CONSTANT.match(op.text)
            return constant and int(json.loads(constant[1]))
        if kind == "make_range":
            end, start = map(int, RANGE.search(op.text).groups())  # type: ignore[union-attr]
            return np.arange(start, end)
        if kind in SAME:
            return operands[0] if operands else None
        if kind in ("expand_dims", "reshape", "trans") and operands[0] is not None:
            return shaped(operands[0], op, kind)
        if kind == "select" and isinstance(operands[0], int | np.ndarray):
            if not isinstance(operands[0], np.ndarray):
                return operands[1 if operands[0] else 2]
            return None if not are_numbers(operands[1:]) else np.where(operands[0] != 0, *operands[1:])
        if operands and isinstance(pointer := operands[0], Pointer):
            exact = kind == "addptr" and pointer.offset is not None and operands[1] is not None
            return Pointer(pointer.root, pointer.offset + operands[1] if exact else None) if kind in MOVED else None
        result = number(op.predicate if kind == "cmpi" else kind, operands)
        if are_numbers([result]) and op.text.rstrip(">").endswith("i32"):
            self.large += [(op, int(end)) for end in {np.max(result), np.min(result)} if not -LIMIT <= end < LIMIT]
        return result

    def _access(self, op: Op, kind: str) -> None:
        pointer, of, _ = address = self.known[op.operands[0]]
        root, offset = pointer if isinstance(pointer, Pointer) else ("", None)
        mask = self.known[op.mask[0]].value if op.mask else 1
        sure, mask = self._sure and are_numbers([mask]), getattr(mask, "most", mask)
        runs, hides = None, mask is None or "array<i32: " in op.text  # bounds are checked
        if "descriptor" in op.name:
            indices = VALUE.findall(op.text.partition("[")[2].partition("]")[0])
            numbers, of, hides = [self.known[name].value for name in reversed(indices)], of | self._of(indices), True
            # One number for all of them.
            offset = None if None in numbers else sum(number << 32 * at for at, number in enumerate(numbers))
        elif mask is not None and not np.any(mask):
            return
        elif offset is not None:
            offsets, seen = np.broadcast_arrays(offset, 1 if mask is None else mask)
            hides = hides or not np.all(seen)
            offsets = offsets[seen != 0] if mask is not None else offsets.reshape(-1)[:1]
            runs, offset = runs_of(offsets), int(offsets[0])
        outer = self.of_rows(self._open)
        turns = (0, 1) if outer is None else (self._turn[outer], self.trips[outer] or 1)
        place = root, kind, (offset, address.identity) if runs is None else digest(runs)
        stored = None
        if kind != "load" and len(op.operands) > 1:  # and whether it is stored
            unknown = [self.known[name].identity for name in op.mask if not are_numbers([self.known[name].value])]
            stored = self.known[op.operands[1]].identity, *unknown, *self._conditions
        access = Access(root, kind, offset, place, runs, of, tuple(self._open), op.elements, op.size, hides)
        self.accesses.append(access._replace(sure=sure, turn=turns[0], turns=turns[1], stored=stored, line=op.line))
