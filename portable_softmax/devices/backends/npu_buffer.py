"""Bounds of a kernel's Unified Buffer on Ascend, from Triton's IR: the compiler's own plan is part of CANN.

Each tensor is a buffer from where it is made to its last use, with rows of whole blocks of 32 bytes. What follows from program
ids and ranges alone is an address or a mask of a transfer, and takes none.

At least: results overwrite operands of their size, broadcasts are part of instructions, and nothing is there twice. At most:
a result has memory of its own, broadcasts are made, reductions take half of their input, and what is loaded or stored in a
loop is there twice, all the time. Where the compiler keeps the blocks of a loop that was unrolled, each of them takes a float32
tile more.

Sources: AscendNPU-IR's PlanMemory (buffers share memory if their lifetimes do not overlap; multi-buffers; in-place results) and
ExtraBufferOpInterface (reductions).
"""

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

LOCATION = re.compile(r"\s*\bloc\([^()]*(?:\([^()]*\)[^()]*)*\)")
VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
TENSOR = re.compile(r"tensor<((?:\d+x)+)(?:!tt\.ptr<)?(\w+?)(\d+)\b")
TYPE = re.compile(r"tensor<[^>]*>+|[\w!]+(?:<[^>]*>)?")
LOOP = re.compile(r"(?:(%[\w$.-]+)(?::\d+)? = )?scf\.for (%[\w$.-]+) = ")
CARRIED = re.compile(r"(%[\w$.-]+) = (%[\w$.-]+(?:#\d+)?)")
NAMED = re.compile(r"(%[\w$.-]+)(?::(\d+))? = ")
NO_BUFFER = ("tt.splat", "arith.constant", "tt.make_range", "tt.addptr", "tt.get_", "ub.poison")
SAME_BUFFER = ("tt.expand_dims", "tt.reshape", "tt.unsplat", "tt.bitcast", "arith.bitcast")  # another view of it
BLOCK = 32  # granule of the buffer, bytes
TWICE = 2  # buffers of what a loop loads or stores
FLOAT32 = 4  # bytes
OF_REDUCTION = 0.5  # of its input


class Bounds(NamedTuple):
    """Bytes of a program's buffers."""

    least: int  # in use at once
    most: int
    unrolled: int  # float32 tiles of blocks that were loaded from one tensor several times, outside of loops
    cube: bool  # the cube core works too, for tl.dot


@dataclass
class _Buffer:
    """A tensor, or all values that a loop carries from one turn to the next."""

    bytes: int  # of one copy
    made_by: str  # the operation
    born: int  # points of the program, as `dies`
    inside: tuple["_Loop", ...]  # loops around the place where it is made, outermost first
    dies: int = -1
    reused: bool = False  # its last use may overwrite it
    is_data: bool = False  # it holds numbers, not addresses
    operands: list["_Buffer"] = field(default_factory=list)


@dataclass
class _Loop:
    """A loop, and what it carries."""

    carried: list["_Buffer | None"]
    end: int = -1


def bounds(ttir: str, twice: bool = True) -> Bounds:
    """Returns the bounds of a kernel in Triton's IR; `twice` is False where nothing is double buffered."""
    program = _Program()
    for line in ttir.splitlines():
        program.read(LOCATION.sub("", line).strip())
    program.finish()
    return Bounds(program.least(), program.most(TWICE if twice else 1), program.unrolled(), program.cube)


class _Program:
    """Reads an IR; a line is a point of the program."""

    def __init__(self) -> None:
        self.point, self.cube = 0, False
        self.names: dict[str, _Buffer | None] = {}
        self.open: list[_Loop | None] = []  # regions; None for one that is no loop
        self.buffers: list[_Buffer] = []
        self.uses: list[tuple[_Buffer, int, tuple[_Loop, ...], str]] = []
        self.pending: tuple[list[str], list[_Buffer]] = [], []  # of a reduction: its types follow its body
        self.stored: list[_Buffer] = []
        self.reductions: dict[int, int] = {}
        self.roots: dict[str, str] = {}  # the parameter that a value of pointers comes from
        self.loaded: Counter[tuple[str, str]] = Counter()  # loads outside of loops, by parameter and sizes

    @property
    def loops(self) -> tuple[_Loop, ...]:
        return tuple(loop for loop in self.open if loop)

    def read(self, line: str) -> None:
        """Reads one line, without locations."""
        self.point += 1
        if line.startswith("}"):
            self._close(line)
        if loop := LOOP.match(line):
            self._enter(line, loop[1])
        elif line.endswith("{"):
            self.open.append(None)
            if '"tt.reduce"' in line or '"tt.scan"' in line:
                self.pending = self._results(line), self._operands(line.partition('"(')[2])
        elif line and not line.startswith(("}", "^", "#", "module")):
            self._operation(line)

    def _close(self, line: str) -> None:
        if (closed := self.open.pop()) is not None:
            closed.end = self.point
        if line.startswith("}) :"):
            results, operands = self.pending
            self._make(results, "reduce", operands, line.rpartition(" -> ")[2])
            self.reductions[self.point] = sum(operand.bytes for operand in operands)

    def _enter(self, line: str, results: str | None) -> None:
        carried: list[_Buffer | None] = []
        kinds = TYPE.findall(line.partition(" -> (")[2].rpartition(")")[0])
        for (name, first), kind in zip(CARRIED.findall(line.partition("iter_args")[2]), kinds, strict=False):
            tensor = TENSOR.match(kind)
            self._use([self.names.get(first)], "carried")
            self.names[name] = self._buffer("carried", [], tensor.groups()) if tensor else None
            carried.append(self.names[name])
        for number, buffer in enumerate(carried):
            self.names[f"{results}#{number}"] = buffer
        if len(carried) == 1 and results:
            self.names[results] = carried[0]
        self.open.append(_Loop(carried))

    def _results(self, line: str) -> list[str]:
        named = NAMED.match(line)
        if not named:
            return []
        return [named[1]] if not named[2] else [f"{named[1]}#{number}" for number in range(int(named[2]))]

    def _operands(self, text: str) -> list[_Buffer]:
        return [buffer for name in VALUE.findall(text) if (buffer := self.names.get(name))]

    def _operation(self, line: str) -> None:
        results = self._results(line)
        body = line.partition(" = ")[2] if results else line
        name, operands = body.split(" ", 1)[0].split("(", 1)[0], self._operands(body)
        if name == "scf.yield":
            self._yield(body)
        elif name.startswith("tt.store") or "atomic" in name:
            value = [self.names.get(operand) for operand in VALUE.findall(body)[1:2]]
            self._use(value, "store")
            self.stored += [buffer for buffer in value if buffer]
        elif results:
            self.cube |= name.startswith("tt.dot")
            first = next(iter(VALUE.findall(body)), "")
            root = self.roots[results[0]] = self.roots.get(first, first)
            types = body.rpartition(" -> ")[2] if " -> " in body else body.rpartition(" : ")[2].rpartition(" to ")[2]
            if name.startswith("tt.load") and not self.loops and (sizes := TENSOR.findall(types)):
                self.loaded[root, sizes[-1][0]] += 1
            self._make(results, name, [] if name.startswith(("tt.load", "tt.descriptor_load")) else operands, types)

    def _make(self, results: list[str], name: str, operands: list[_Buffer], types: str) -> None:
        """Makes the results of an operation; the types of its tensors are at the end of the line."""
        tensors = TENSOR.findall(types)
        if name in SAME_BUFFER and operands and tensors:
            self.names[results[0]] = operands[0]
            return
        self._use([*operands], name, self._bytes(tensors[-1]) if tensors else 0)
        kinds = tensors[-len(results) :] if name == "reduce" or len(results) > 1 else tensors[-1:]
        if name.startswith("arith.cmp"):
            kinds = [(sizes, "i", "1") for sizes, *_ in kinds]
        for result, kind in itertools.zip_longest(results, kinds):
            made = kind and self._buffer(name, operands, kind)
            self.names[result] = made or None

    def _buffer(self, name: str, operands: list[_Buffer], kind: Sequence[str]) -> _Buffer:
        made = _Buffer(self._bytes(kind), name, self.point, self.loops, operands=operands)
        made.is_data = kind[1] in ("f", "bf") or name.startswith(("tt.load", "reduce"))
        self.buffers.append(made)
        return made

    def _bytes(self, kind: Sequence[str]) -> int:
        *outer, row = map(int, kind[0].split("x")[:-1])
        row_bytes = math.ceil(row * int(kind[2]) / 8 / BLOCK) * BLOCK
        return math.prod(outer) * row_bytes

    def _yield(self, body: str) -> None:
        loop = self.open[-1]
        for number, name in enumerate(VALUE.findall(body.partition(" : ")[0])):
            value = self.names.get(name)
            self._use([value], "yield")
            if loop and value and number < len(loop.carried) and (carried := loop.carried[number]):
                carried.operands.append(value)

    def _use(self, buffers: list[_Buffer | None], name: str, result: int = 0) -> None:
        for buffer in buffers:
            if buffer:
                overwrites = name.startswith(("arith.", "math.", "tt.extern", "tt.clampf")) and result == buffer.bytes
                self.uses.append((buffer, self.point, self.loops, name if not overwrites else ""))

    def finish(self) -> None:
        """Computes which tensors are data, and their lifetimes."""
        users: defaultdict[int, set[str]] = defaultdict(set)
        for buffer, point, loops, name in self.uses:
            outer = next((loop for loop in loops if loop not in buffer.inside), None)
            last = outer.end if outer else point
            if last >= buffer.dies:
                buffer.dies, buffer.reused = last, not name and not outer
            users[id(buffer)].add(name)
        for buffer in self.stored:
            buffer.is_data = True
        for buffer in reversed(self.buffers):
            if buffer.is_data:
                for operand in buffer.operands:
                    operand.is_data = True
        for buffer in self.buffers:
            buffer.dies = max(buffer.dies, buffer.born)
            only_of_dot = users[id(buffer)] and all(name.startswith("tt.dot") for name in users[id(buffer)])
            has_none = buffer.made_by.startswith(NO_BUFFER) and "store" not in users[id(buffer)]
            buffer.is_data = buffer.is_data and not only_of_dot and not has_none

    def least(self) -> int:
        """Returns the least bytes of any allocation."""
        carried = {id(value) for buffer in self.buffers if buffer.made_by == "carried" for value in buffer.operands}
        free = ("tt.broadcast", "tt.dot")
        return self._peak(
            (buffer.born, buffer.dies - buffer.reused, buffer.bytes)
            for buffer in self.buffers
            if buffer.is_data and not buffer.made_by.startswith(free) and id(buffer) not in carried
        )

    def most(self, copies: int) -> int:
        """Returns the bytes of an allocation that reuses only buffers that are certainly dead."""
        stored = {id(buffer) for buffer in self.stored}
        twice = [
            buffer
            for buffer in self.buffers
            if buffer.is_data and buffer.inside and (buffer.made_by.startswith("tt.load") or id(buffer) in stored)
        ]
        others = [buffer for buffer in self.buffers if buffer.is_data and id(buffer) not in set(map(id, twice))]
        spans = [(buffer.born, buffer.dies, buffer.bytes) for buffer in others]
        spans += [(point, point, int(OF_REDUCTION * size)) for point, size in self.reductions.items()]
        return copies * sum(buffer.bytes for buffer in twice) + self._peak(iter(spans))

    def unrolled(self) -> int:
        """Returns the bytes of float32 tiles of blocks that a loop without turns of its own has loaded."""
        several = [(sizes, count) for (_, sizes), count in self.loaded.items() if count > 1]
        return sum(FLOAT32 * count * math.prod(map(int, sizes.split("x")[:-1])) for sizes, count in several)

    @staticmethod
    def _peak(spans: Iterator[tuple[int, int, int]]) -> int:
        """Returns the largest sum of what is alive at one point; a span has its first and last point, and bytes."""
        changes: defaultdict[int, int] = defaultdict(int)
        for first, last, size in spans:
            if last >= first:
                changes[first] += size
                changes[last + 1] -= size
        return max(itertools.accumulate((changes[point] for point in sorted(changes)), initial=0))
