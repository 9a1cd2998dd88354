"""Reads what a kernel of anybody's does with rows: in its source how it goes over them, in its TTIR what it moves."""

import ast
import inspect
import math
import re
import textwrap
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from portable_softmax.planning.row_cost import Traffic
from portable_softmax.row_kernels.decorators import constexprs_of

LOCATION = re.compile(r"\bloc\([^()]*(?:\([^()]*\)[^()]*)*\)")
LOOP = re.compile(r"scf\.for (%\w+) = (%\w+) to (%\w+) step (%\w+)")
CARRIED = re.compile(r"(%\w+) = (%\w+)")
CONSTANT = re.compile(r"(%\w+) = arith\.constant (-?\d+) : i\d+")
ACCESS = re.compile(r"tt\.(?:descriptor_)?(load|store|atomic_rmw|atomic_cas)\b[^%]*(%\w+).* : \(?(.*?)(?:,| ->|$)")
VALUE = re.compile(r"%\w+")
KNOWN = 16  # the multiple that Triton asks numbers and addresses for
OF_PROGRAM = "tt.get_program_id", "tt.get_num_programs"


class Form(NamedTuple):
    """Form in which a kernel goes over rows.

    Args:
        walks: its programs loop over rows, so that any number of them is right; else each takes one row.
        in_blocks: it loops over the blocks of a row, so that a block may be shorter than a row.
        stages: the constexpr that a loop has as `num_stages`; None where nothing is pipelined.
    """

    walks: bool
    in_blocks: bool
    stages: str | None


def form_of(jit: Any, rows: str, block: str) -> Form:
    """Reads how a @triton.jit function goes over rows. What it does not see, as in a function that is called, is no loop."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(jit.fn)))
    loops = [each.iter for each in ast.walk(tree) if isinstance(each, ast.For)]
    keywords = [each for loop in loops for each in getattr(loop, "keywords", ())]
    stages = set().union(*(_names(each.value) for each in keywords if each.arg == "num_stages"))
    counts = any(isinstance(each, ast.Attribute) and each.attr == "num_programs" for each in ast.walk(tree))
    return Form(
        walks=counts and any(rows in _names(loop) for loop in loops),
        in_blocks=any(block in _names(loop) for loop in loops),
        stages=min(stages & constexprs_of(jit), default=None),
    )


def known_multiple(cols: int, constant: bool) -> int:
    """Returns how many elements the compiler knows each row of so many to begin at a multiple of.

    Args:
        cols: elements of a row.
        constant: they are a constexpr. Of a number that is none Triton knows only whether it is a multiple of 16.
    """
    found = math.gcd(cols, KNOWN)
    return found if constant or found == KNOWN else 1


def _names(tree: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}


def traffic_of(ttir: str, values: Mapping[str, Any], walks: bool, rows: int, cols: int, block: int) -> Traffic:
    """Counts what each row and each program takes.

    Args:
        ttir: the compiled kernel in Triton's IR.
        values: arguments by name. Numbers may bound its loops; of a tensor no row moves more than its share.
        walks: it loops over rows.
        rows, cols: their number, and that of elements of one.
        block: elements of a block.
    """
    reader = _Reader(values, walks, max(1, rows), cols, block)
    for line in ttir.splitlines():
        reader.read(LOCATION.sub("", line).strip())
    found = reader.found
    return Traffic(**found | {"element": found["element"] / (found["row_operands"] * cols or 1) or Traffic().element})


class _Reader:
    """Goes through TTIR line by line, and keeps of each value whether rows differ in it, and of a pointer whose it is."""

    def __init__(self, values: Mapping[str, Any], walks: bool, rows: int, cols: int, block: int) -> None:
        self.walks = walks
        self.share = {f"%{name}": each.numel() / rows for name, each in values.items() if hasattr(each, "numel")}
        self.numbers = {f"%{name}": value for name, value in values.items() if type(value) is int}
        self.cols, self.block, self.blocks = cols, block, -(-cols // block)
        self.filled = cols / (block * self.blocks)  # part of a block's elements that no mask hides
        self.differ: set[str] = set()
        self.roots: dict[str, str] = {}
        self.open: list[float | None] = []  # turns of the loops that are open; None for rows, of which each turn is one
        self.moved: defaultdict[tuple[str, bool], float] = defaultdict(float)  # elements of a row, loaded or stored
        self.found = dict.fromkeys(Traffic._fields, 0.0)

    def read(self, line: str) -> None:
        """Takes one line, without the locations of sources."""
        if line.startswith("}"):
            self.open.pop()
        if "tt.func" in line:
            self.roots |= {name: name for name in VALUE.findall(line)}
        if loop := LOOP.search(line):
            self._enter(line, *loop.groups())
            return
        if line.endswith("{"):
            self.open.append(1)
        self._operation(line)

    def _enter(self, line: str, variable: str, first: str, last: str, step: str) -> None:
        over_rows = self.walks and not self.differ.isdisjoint((first, last, step)) and None not in self.open
        numbers = [self.numbers[each] for each in (first, last, step) if each in self.numbers]
        turns = len(range(*numbers)) if len(numbers) == 3 and numbers[2] else self.blocks
        self.open.append(None if over_rows else turns)
        for name, value in (*CARRIED.findall(line.partition("iter_args")[2]), (variable, first)):
            self._define([name], over_rows or value in self.differ, self.roots.get(value))

    def _define(self, names: list[str], differs: bool, root: str | None) -> None:
        """Keeps what is known of values; other regions may have had values of these names."""
        for name in names:
            (self.differ.add if differs else self.differ.discard)(name)
            self.roots.pop(name, None)
            self.roots |= {name: root} if root else {}

    def _operation(self, line: str) -> None:
        result, _, body = line.partition(" = ") if line.startswith("%") else ("", "", line)
        operands = VALUE.findall(body)
        if number := CONSTANT.fullmatch(line):
            self.numbers[number[1]] = int(number[2])
        differs = any(each in body for each in OF_PROGRAM) or not self.differ.isdisjoint(operands)
        root = next((self.roots[each] for each in operands if each in self.roots), None)
        access = ACCESS.search(line)
        self._define(VALUE.findall(result), differs, None if access else root)
        turns = math.prod(1 if each is None else each for each in self.open)
        if access:
            self._access(turns, *access.groups())
        elif 'tt.reduce"' in body:
            of_blocks = self.blocks > 1 and self.blocks in self.open
            self.found["block_reductions" if of_blocks else "reductions"] += turns / (self.blocks if of_blocks else 1)
        elif re.search(r"math\.exp2?\b", body):
            self.found["exponents"] += turns * self._elements(body)

    def _access(self, turns: float, kind: str, pointer: str, of: str) -> None:
        of_row, elements = not self.walks or None in self.open, turns * self._elements(of)
        part = self.roots.get(pointer, pointer), kind == "load"
        left = self.share.get(part[0], math.inf) - self.moved[part] if of_row else math.inf
        moved = min(elements, left) if pointer in self.differ else 0
        self.moved[part] += moved
        size, whose = max(1, int(re.findall(r"(?:bf|f|i)(\d+)", of)[-1]) // 8), "row" if of_row else "program"
        self.found[whose] += size * moved
        self.found[f"{whose}_operands"] += elements / self.cols
        self.found["element"] += size * elements if of_row else 0  # bytes, until all are known

    def _elements(self, of: str) -> float:
        elements = math.prod(map(int, re.findall(r"(\d+)x", of.rpartition(" : ")[2])))
        return elements * self.filled if elements == self.block else elements
