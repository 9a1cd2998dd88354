"""Counts in TTIR what each row, and each program beside its rows, moves and computes."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from portable_softmax.planning.row_cost import Traffic
from portable_softmax.row_kernels.ttir import ACCESSES, ASSIGNED, Function, Op

KNOWN = 16  # the multiple that Triton asks numbers and addresses for
OF_PROGRAM = "tt.get_program_id", "tt.get_num_programs"
CONSTANT = re.compile(r"arith\.constant (-?\d+) : i\d+")


def known_multiple(cols: int, constant: bool) -> int:
    """Returns how many elements the compiler knows each row of so many to begin at a multiple of.

    Args:
        cols: elements of a row.
        constant: they are a constexpr. Of a number that is none Triton knows only whether it is a multiple of 16.
    """
    found = math.gcd(cols, KNOWN)
    return found if constant or found == KNOWN else 1


def traffic_of(function: Function, values: Mapping[str, Any], walks: bool, rows: int, cols: int, block: int) -> Traffic:
    """Counts what each row and each program takes.

    Args:
        function: the compiled kernel's TTIR.
        values: arguments by name. Numbers may bound its loops; of a tensor no row moves more than its share.
        walks: it loops over rows.
        rows, cols: their number, and that of elements of one.
        block: elements of a block.
    """
    named = {value: values[name] for value, name in function.parameters.items() if name in values}
    reader = _Reader(named, walks, max(1, rows), cols, block)
    reader.roots |= {value: value for value in function.parameters}
    reader.read(function.body, [])
    found = reader.found
    return Traffic(**found | {"element": found["element"] / (found["row_operands"] * cols or 1) or Traffic().element})


class _Reader:
    """Goes through operations, and keeps of each value whether rows differ in it, and of a pointer whose it is."""

    def __init__(self, values: Mapping[str, Any], walks: bool, rows: int, cols: int, block: int) -> None:
        self.walks = walks
        self.share = {name: each.numel() / rows for name, each in values.items() if hasattr(each, "numel")}
        self.numbers = {name: value for name, value in values.items() if type(value) is int}
        self.cols, self.block, self.blocks = cols, block, -(-cols // block)
        self.filled = cols / (block * self.blocks)  # part of a block's elements that no mask hides
        self.differ: set[str] = set()
        self.roots: dict[str, str] = {}
        self.moved: defaultdict[tuple[str, bool], float] = defaultdict(float)  # elements of a row, loaded or stored
        self.found = dict.fromkeys(Traffic._fields, 0.0)

    def read(self, ops: Sequence[Op], around: list[float | None]) -> None:
        """Takes operations; `around` are the turns of the loops around them, None for rows, of which each turn is one."""
        for op in ops:
            turns: list[float | None] = []
            if op.name == "scf.for":
                turns = [self._turns(op, around)]
            elif op.name == "scf.while":
                turns = [self._turns_of_while(op, around)]
            else:
                self._operation(op, around)
            for region in op.regions:
                self.read(region, [*around, *turns])

    def _turns(self, op: Op, around: list[float | None]) -> float | None:
        variable, first, last, step = op.operands[:4]
        over_rows = self.walks and not self.differ.isdisjoint((first, last, step)) and None not in around
        numbers = [self.numbers[each] for each in (first, last, step) if each in self.numbers]
        turns = len(range(*numbers)) if len(numbers) == len((first, last, step)) and numbers[2] else self.blocks
        for name, value in (*ASSIGNED.findall(op.text.partition("iter_args")[2]), (variable, first)):
            self._define([name], over_rows or value in self.differ, self.roots.get(value))
        return None if over_rows else turns

    def _turns_of_while(self, op: Op, around: list[float | None]) -> float | None:
        carried = ASSIGNED.findall(op.text)
        over_rows = self.walks and not self.differ.isdisjoint(value for _, value in carried) and None not in around
        for name, value in carried:
            self._define([name], over_rows or value in self.differ, self.roots.get(value))
        return None if over_rows else self.blocks

    def _define(self, names: Sequence[str], differs: bool, root: str | None) -> None:
        """Keeps what is known of values; other regions may have had values of these names."""
        for name in names:
            (self.differ.add if differs else self.differ.discard)(name)
            self.roots.pop(name, None)
            self.roots |= {name: root} if root else {}

    def _operation(self, op: Op, around: list[float | None]) -> None:
        if op.name == "label":  # of a loop's body, whose values are those that it carries
            return
        if number := CONSTANT.match(op.text):
            self.numbers[op.results[0]] = int(number[1])
        differs = op.name in OF_PROGRAM or not self.differ.isdisjoint(op.operands)
        root = next((self.roots[each] for each in op.operands if each in self.roots), None)
        access = ACCESSES.get(op.kind)
        self._define(op.results, differs, None if access else root)
        turns = math.prod(1 if each is None else each for each in around)
        if access:
            self._access(op, turns, access == "load", None in around)
        elif op.name == "tt.reduce":
            of_blocks = self.blocks > 1 and self.blocks in around
            self.found["block_reductions" if of_blocks else "reductions"] += turns / (self.blocks if of_blocks else 1)
        elif op.name in ("math.exp", "math.exp2"):
            self.found["exponents"] += turns * self._elements(op)

    def _access(self, op: Op, turns: float, loads: bool, in_rows: bool) -> None:
        of_row, elements, pointer = not self.walks or in_rows, turns * self._elements(op), op.operands[0]
        part = self.roots.get(pointer, pointer), loads
        left = self.share.get(part[0], math.inf) - self.moved[part] if of_row else math.inf
        moved = min(elements, left) if not self.differ.isdisjoint(op.operands[:1]) else 0
        self.moved[part] += moved
        bits = re.findall(r"(?:bf|f|i)(\d+)", op.text.partition(" : ")[2].split(",")[0].split("->")[0])
        size, whose = max(1, int(bits[-1]) // 8) if bits else 1, "row" if of_row else "program"
        self.found[whose] += size * moved
        self.found[f"{whose}_operands"] += elements / self.cols
        self.found["element"] += size * elements if of_row else 0  # bytes, until all are known

    def _elements(self, op: Op) -> float:
        return op.elements * self.filled if op.elements == self.block else op.elements
