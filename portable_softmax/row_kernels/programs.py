"""What the programs of a row kernel do: if any number of them is right, which rows one takes, and where offsets overflow."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from portable_softmax.row_kernels.decorators import constants_of
from portable_softmax.row_kernels.ttir import LIMIT, Access, Function, Op, Pointer, Run, parsed, walked

ROWS, PROGRAMS = (5, 40, 300), (1, 2, 8)  # small launches that are followed
TURNS = 64  # of a loop over rows, of all programs together
BLOCKS = 3  # of a row, where its length is no constexpr
Observe = Callable[[int, int], "list[Sequence[Access]]"]  # rows, programs -> accesses of each program


class Form(NamedTuple):
    """Form in which a kernel goes over rows.

    Args:
        walks: any number of programs along axis 0 is right, as together they take each row once.
        in_blocks: a program loops over blocks of a row, so that a block may be shorter than a row.
        what: which rows a program takes, if it does not walk.
        parts: parameters of which each program writes a part of its own, and the elements from one part to the next.
        decisive: parameters whose values all of this depends on.
    """

    walks: bool
    in_blocks: bool = False
    what: str = ""
    parts: Mapping[str, int] = {}
    decisive: frozenset[str] = frozenset()


def form_of(function: Function, arguments: Mapping[str, Any], rows: str | None, cols: str, block: int) -> Form:
    """Returns the form of a kernel.

    Args:
        function: its TTIR, in which a row has several blocks, unless that is impossible.
        arguments: values of its parameters, by name.
        rows, cols: names of the parameters that are the numbers of rows and of their elements; None if no parameter is.
        block: elements of a block.
    """
    given = {name: _value(name, value) for name, value in arguments.items()}
    runs: list[Run] = []

    def observe(n_rows: int, programs: int) -> list[Sequence[Access]]:
        sized = given | ({rows: (n_rows, n_rows)} if rows else {})
        runs[:] = [Run(function, sized, (each, each), programs, TURNS // programs) for each in range(programs)]
        return [run.accesses for run in runs]

    walks, parts, what = of_programs(observe, arguments[cols])
    first = runs[0]
    if axes := sorted(first.axes - {0}):
        walks, what = False, f"it reads tl.program_id({axes[0]}), so its grid has {axes[-1] + 1} axes"
    strides = frozenset().union(*(each.sources for each in first.accesses if each.root in parts))
    decisive = frozenset(name for name in first.decisive | strides if isinstance(arguments.get(name), int))
    n_cols = max(arguments[cols], BLOCKS * block) if cols in function.parameters.values() else arguments[cols]
    in_blocks = _in_blocks(function, given | {cols: (n_cols, n_cols)}, n_cols, block)
    return Form(walks, in_blocks, what, parts, decisive)


def of_programs(observe: Observe, cols: int) -> tuple[bool, dict[str, int], str]:
    """Follows small launches; returns whether any number of programs is right, the parts, and which rows a program takes."""
    launched: dict[int, list[Sequence[Access]]] = {}
    for rows in ROWS:
        launched = {programs: observe(rows, programs) for programs in PROGRAMS}
        counted = {programs: Counter(_place(each) for one in of for each in one) for programs, of in launched.items()}
        even = {root for root in _roots(launched[1]) if len({_of(count, root) for count in counted.values()}) == 1}
        stored = {each.root for of in launched.values() for one in of for each in one if each.kind != "load"}
        parts = {root: _part(root, launched) for root in stored - even if not _added(root, launched)}
        if not all(parts.values()):
            break
        if any(_times(launched[1][0], root) > _times(launched[2][0], root) for root in even):
            return True, {root: part for root, part in parts.items() if part}, ""
    return False, {}, _rows_of(observe(ROWS[-1], 2), cols)


def _place(access: Access) -> tuple[Any, ...]:
    return access.root, access.kind, access.offset


def _roots(programs: Sequence[Sequence[Access]]) -> set[str]:
    return {each.root for one in programs for each in one}


def _of(counted: "Counter[tuple[Any, ...]]", root: str) -> frozenset[tuple[Any, int]]:
    return frozenset((place, count) for place, count in counted.items() if place[0] == root)


def _times(accesses: Sequence[Access], root: str) -> int:
    return sum(each.root == root for each in accesses)


def _part(root: str, launched: Mapping[int, Sequence[Sequence[Access]]]) -> int | None:
    """Returns the elements from one program's part of a parameter to the next's; None if programs write no parts."""
    steps = set()
    for programs in launched.values():
        places = [sorted(_starts(each, root)) for each in programs]
        if not all(places) or len({*map(len, places)}) > 1:
            return None
        steps |= {b - a for one, two in itertools.pairwise(places) for a, b in zip(one, two, strict=True)}
    return steps.pop() if len(steps) == 1 and min(steps) > 0 else None


def _added(root: str, launched: Mapping[int, Sequence[Sequence[Access]]]) -> bool:
    """True if each program adds to the same places by atomic operations."""
    found = [[each for each in one if each.root == root and each.kind != "load"] for of in launched.values() for one in of]
    places = {tuple(map(_place, each)) for each in found}
    return len(places) == 1 and all(each.kind == "atomic" for one in found for each in one)


def _starts(accesses: Sequence[Access], root: str) -> set[int]:
    return {each.offset[0] for each in accesses if each.root == root and each.kind != "load" and each.offset}


def _rows_of(programs: Sequence[Sequence[Access]], cols: int) -> str:
    """Says which rows two programs take, where any number of them is not right."""
    if not any(programs):
        return "its programs access no row of such a launch"
    if programs[0] and [_place(each) for each in programs[0]] == [_place(each) for each in programs[1]]:
        return "all its programs do the same"
    for root in sorted(_roots(programs), key=lambda each: -len(_starts(programs[0], each))):
        first, second = (sorted({at // max(1, cols) for at in _starts(each, root)}) for each in programs)
        if not first or not second or _starts(programs[0], root) == _starts(programs[1], root):
            continue
        if len(first) == 1 and second == first:
            return "a program takes a part of a row"
        if len(first) == 1:
            return "a program takes one row" if second[0] == first[0] + 1 else f"a program takes a tile of {second[0]} rows"
        step = first[1] - first[0]
        if step == 1:
            return f"a program takes a chunk of {second[0] - first[0]} rows"
        return f"its loop over rows steps by {step}, whatever tl.num_programs(0) is"
    return "which rows a program takes is not a loop from tl.program_id(0) by tl.num_programs(0)"


def _in_blocks(function: Function, given: Mapping[str, Any], n_cols: int, block: int) -> bool:
    """True if all that is as long as a block is accessed in loops over the blocks of a row."""
    blocks = -(-n_cols // block)
    run = Run(function, given, (0, 0), 1, turns=1, inner_turns=max(2, blocks))
    over = {loop for loop, turns in enumerate(run.trips) if turns == blocks} if blocks > 1 else set()
    places = Counter({(each.root, loop): 0 for each in run.accesses for loop in over.intersection(each.loops)})
    for root, loop in places:
        places[root, loop] = len({each.offset for each in run.accesses if each.root == root and loop in each.loops})
    moving = {loop for (_, loop), count in places.items() if count > 1}
    wide = [each for each in run.accesses if each.elements >= block]
    return bool(moving) and all(moving.intersection(each.loops) for each in wide)


def warnings_of(compiled: Any, jit: Any, values: Mapping[str, Any], programs: int | None) -> list[str]:
    """Returns what is wrong with a compiled kernel at its sizes, or needed beside it; arguments as of `overflows`."""
    constants = constants_of(compiled, jit)
    function = parsed(compiled.asm["ttir"], [name for name in jit.arg_names if name not in constants])
    found = list(overflows(function, values, programs))
    if scratch := getattr(compiled.metadata, "global_scratch_size", 0):
        found.append(f"a program needs {scratch} bytes of global memory for itself: triton.set_allocator(...) gives them")
    return found


def overflows(function: Function, arguments: Mapping[str, Any], programs: int | None) -> Iterator[str]:
    """Yields what says that offsets of a launch do not fit their 32 bits.

    Args:
        function: the kernel's TTIR.
        arguments: values of its parameters, by name.
        programs: along axis 0; None if that is unknown.
    """
    given = {name: _value(name, value) for name, value in arguments.items()}
    run = Run(function, given, (0, (programs or 1) - 1), programs or 1, ranges=True)
    addresses, made = _addresses(function), {name: op for op in walked(function.body) for name in op.results}
    made = {name: op for name, op in made.items() if name not in function.parameters}
    seen = set()
    for op, (low, high) in run.large:
        words = f"{_word(op.operands[0], made)} {SIGNS.get(op.name, op.name)} {_word(op.operands[1], made)}"
        if addresses.intersection(op.results) and words not in seen:
            seen.add(words)
            wide = next((name for name in op.operands if run.values.get(name, (0, 0)) != (0, 0)), op.operands[0])
            most = high if high >= LIMIT else low
            yield f"{words} reaches {most:,} in 32 bits; cast {_word(wide, made)} to tl.int64"


SIGNS = {"arith.muli": "*", "arith.addi": "+", "arith.subi": "-", "arith.shli": "<<"}


def _addresses(function: Function) -> set[str]:
    """Returns the values that offsets of pointers are computed from."""
    found: set[str] = set()
    ops = list(walked(function.body))
    for op in reversed(ops):
        if op.name in ("tt.addptr", "tt.descriptor_load", "tt.descriptor_store") or found.intersection(op.results):
            found |= set(op.operands[op.name == "tt.addptr" :])
    return found


def _word(value: str, made: Mapping[str, Op]) -> str:
    """Returns a value in the words of the kernel's source, as far as Triton keeps them."""
    op = made.get(value)
    while op and op.name in ("tt.splat", "tt.broadcast", "tt.expand_dims", "arith.extsi") and op.operands:
        value = op.operands[0]
        op = made.get(value)
    if op and op.name == "tt.get_program_id":
        return f"program_id({'xyz'.index(op.text.split()[1])})"
    if op and op.name == "arith.constant":
        return op.text.split()[1].removeprefix("dense<").rstrip(">")
    if op and op.name in SIGNS:
        return f"({_word(op.operands[0], made)} {SIGNS[op.name]} {_word(op.operands[1], made)})"
    name = value.removeprefix("%").partition("#")[0]
    return name.rstrip("0123456789").rstrip("_") or f"%{name}"


def _value(name: str, value: Any) -> Any:
    """Returns an argument as TTIR is followed with it."""
    if isinstance(value, int):
        return (int(value), int(value))
    return Pointer(name, (0, 0)) if hasattr(value, "data_ptr") or hasattr(value, "base") else None
