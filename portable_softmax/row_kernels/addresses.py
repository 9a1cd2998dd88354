"""Compares the addresses of followed programs with each other, and with the sizes of tensors."""

import itertools
import operator
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from portable_softmax.row_kernels.following import COLUMNS, LAST, PROGRAM, Run
from portable_softmax.row_kernels.row_settings import Request
from portable_softmax.row_kernels.ttir import Function, Op, parsed_of
from portable_softmax.row_kernels.values import Access

SIGNS = {"arith.muli": "*", "arith.addi": "+", "arith.subi": "-", "arith.shli": "<<"}
WIDENED = "tt.splat", "tt.broadcast", "tt.expand_dims", "arith.extsi"


def corners(
    function: Function, arguments: Mapping[str, Any], grid: tuple[int, int, int], block: int = 0, rows: int = 0
) -> list[Run]:
    """Follows programs at the ends of a grid, and one that may take the last of so many rows.

    Of loops the first turns and the last one are followed; `block` is that of Run.
    """
    x, y, z = grid
    ends = sorted({0, 1, (rows - 1) % max(1, x), x - 2, x - 1} & {*range(x)})
    programs = itertools.product(ends, sorted({0, y - 1}), sorted({0, z - 1}))
    return [Run(function, arguments, program, grid, also=LAST, block=block) for program in programs]


def conflict(launch: Iterable[tuple[int, Sequence[Access]]], several: Collection[str] = ()) -> str:
    """Returns a sentence about an element that is stored to for one row, and that another row accesses too; "" if none is.

    A row is a program's, or that of a turn of its loop; to parameters in `several` a program stores for all of its rows. Rows
    may share an element in atomic operations alone.
    """
    every = [(program, access) for program, accesses in launch for access in accesses]
    for root in dict.fromkeys(access.root for _, access in every if access.kind in ("store", "atomic")):
        stores, loads, atomics = (
            sorted(
                (first, end, program, access.loops[:1], access.turn * (root not in several), access.line)
                for program, access in every
                if (access.root, access.kind) == (root, kind)
                for first, end in access.intervals()
            )
            for kind in ("store", "load", "atomic")
        )
        furthest: tuple[Any, ...] = (-1, -1, -1, (), 0, "")
        for store in stores:
            first, _, program, loops, turn, line = store
            _, reached, by, of_loops, of_turn, _ = furthest
            if first < reached and (program != by or (loops == of_loops and turn != of_turn)):
                why = ", as rows overlap: a mask or a larger stride is missing" * (first != furthest[0])
                rows = f"programs {by} and {program} store" if program != by else "several rows are stored"
                return f"{rows} to the same element of {root} ({line}){why}"
            furthest = max(furthest, store, key=operator.itemgetter(1))
        for verb, others, changes, changed in (
            ("loads", loads, stores, "stores to"), ("loads", loads, atomics, "updates in"),
            ("updates", atomics, stores, "stores to"),
        ):  # fmt: skip
            if met := next(_met(others, changes), None):
                one, change = met
                return f"program {one[2]} {verb} what program {change[2]} {changed} {root} ({one[-1]})"
    return ""


def _met(accesses: Sequence[tuple[Any, ...]], changes: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, Any]]:
    """Yields sorted accesses with another program's changes of an element of theirs; a program may load its rows ahead."""
    longest = max((end - first for first, end, *_ in changes), default=0)
    for one in accesses:
        near = range(bisect_left(changes, (one[0] - longest,)), bisect_left(changes, (one[1],)))
        yield from ((one, changes[at]) for at in near if changes[at][1] > one[0] and changes[at][2] != one[2])


def extent_of(tensor: Any) -> int | None:
    """Returns the elements from a tensor's first to its last one in memory; None if they are unknown."""
    if not (hasattr(tensor, "numel") and hasattr(tensor, "stride")):
        return None
    sizes = list(zip(tensor.shape, tensor.stride(), strict=True))
    return 1 + sum((size - 1) * stride for size, stride in sizes) if tensor.numel() else 0


def is_inside(one: Access, arguments: Mapping[str, Any]) -> bool | None:
    """True if all elements of an access are those of its tensor; None if that is unknown."""
    extent = extent_of(arguments.get(one.root))
    if one.runs is None or extent is None or getattr(arguments[one.root], "itemsize", one.size) != one.size:
        return None
    return bool(one.runs.min() >= 0 and one.runs.max() <= extent)


def outside(runs: Sequence[Run], arguments: Mapping[str, Any]) -> Iterator[tuple[Access, str]]:
    """Yields accesses of followed programs outside of their tensors, of each line the furthest, and sentences about them."""
    worst: dict[tuple[str, str, str], Access] = {}
    for one in [one for run in runs for one in run.accesses if one.sure and is_inside(one, arguments) is False]:
        key = one.root, one.kind, one.line
        worst[key] = max(worst.get(key, one), one, key=lambda one: int(one.runs.max()))
    for (root, _, line), one in worst.items():
        end = int(one.runs.min()) if one.runs.min() < 0 else int(one.runs.max()) - 1
        yield one, f"{one.words} reaches element {end:,}, and {root} has {extent_of(arguments[root]):,} ({line})"


def unhidden(runs: Sequence[Run], cols: int, block: int) -> Access | None:
    """Returns an access to a block of columns of which no mask ever hides one, where blocks do not divide a row."""
    of_columns = [
        one for run in runs for one in run.accesses if {COLUMNS, PROGRAM} <= one.sources and one.elements % block == 0
    ]
    hiding = {(one.root, one.kind, one.line) for one in of_columns if one.hides or one.runs is None}
    return next((one for one in of_columns if cols % block and (one.root, one.kind, one.line) not in hiding), None)


def missing(runs: Sequence[Run], arguments: Mapping[str, Any], cols: int, block: int) -> Access | None:
    """Returns the last access to a block of columns, if what is left of its row is left out up to the tensor's end."""
    for root in dict.fromkeys(one.root for run in runs for one in run.accesses) if block < cols else ():
        of_root = [one for run in runs for one in run.accesses if one.root == root and one.runs is not None]
        last = max(of_root, key=lambda one: int(one.runs.max()), default=None)
        extent = extent_of(arguments.get(root))
        if last and extent and COLUMNS in last.sources and not last.hides:
            left = extent - int(last.runs.max())
            if 0 < left < cols and (cols - left) % block == 0:
                return last
    return None


def check(
    request: Request, function: Function, grid: tuple[int, int, int], block: int
) -> tuple[list[str], list[str]]:  # fmt: skip
    """Returns what is wrong with the accesses of a launch of blocks of so many elements, and what is to be warned of."""
    runs = corners(function, request.arguments, grid, block, request.rows) if request.rows else []
    errors, (_, cols, size) = list[str](), request.names
    computed, row = size not in request.meta, f"a row of {request.cols} elements"
    if request.grid is None and request.rows:
        errors += filter(None, [conflict((run.program[0], run.accesses) for run in runs if run.program)])
        runs += corners(function, request.arguments, (1, 1, 1), block)  # which takes the last row in any case
    warnings = [*overflows(function, runs)]
    if computed and (one := unhidden(runs, request.cols, block)):
        words = f"no mask of {one.words} hides what is behind a row ({one.line}), and the computed {size}={block}"
        errors.append(f"{words} does not divide {row}; add mask=cols < {cols}, or pass {size}=")
    for one, text in outside(runs, request.arguments):
        of_blocks = f"; pass {size}=, which is {block} here, or tensors of a size that follows from plan(...).meta"
        text += of_blocks * (computed and {PROGRAM} == one.sources & {PROGRAM, COLUMNS})
        (warnings if one.kind == "load" else errors).append(text)
    if one := missing(runs, request.arguments, request.cols, block):
        text = f"{one.words} leaves elements of {row} out, as {size}={block} is shorter ({one.line})"
        (errors if computed else warnings).append(text)
    return errors, warnings


def warnings_of(compiled: Any, jit: Any, values: Mapping[str, Any], grid: tuple[int, int, int] | None) -> list[str]:
    """Returns what is wrong with a compiled kernel at its sizes, or needed beside it; of an unknown grid, of one program."""
    scratch = getattr(compiled.metadata, "global_scratch_size", 0)
    needed = f"a program needs {scratch} bytes of global memory for itself: triton.set_allocator(...) gives them"
    function = parsed_of(compiled, jit)
    runs = corners(function, values, grid or (1, 1, 1))
    return [*overflows(function, runs), *(text for _, text in outside(runs, values)), *[needed] * bool(scratch)]


def overflows(function: Function, runs: Sequence[Run]) -> Iterator[str]:
    """Yields sentences about offsets of followed programs that do not fit their 32 bits."""
    ops = function.every if any(run.large for run in runs) else []
    made = {name: op for op in ops for name in op.results} | function.parameters  # whose names Triton 3.5 keeps in its IR
    of_addresses, reached = set[str](), dict[str, int]()  # values that offsets of pointers are computed from
    for op in reversed(ops):
        if op.name in ("tt.addptr", "tt.descriptor_load", "tt.descriptor_store") or of_addresses.intersection(op.results):
            of_addresses.update(op.operands[op.name == "tt.addptr" :])
    for run, (op, end) in [(one, large) for one in runs for large in one.large]:
        if of_addresses.intersection(op.results):
            words = f"{_word(op.operands[0], made)} {SIGNS.get(op.name, op.name)} {_word(op.operands[1], made)}"
            wide = next((name for name in op.operands if run.known[name].value), op.operands[0])
            words = f"{words} reaches {{}} in 32 bits; cast {_word(wide, made)} to tl.int64"
            reached[words] = max(reached.get(words, end), end, key=abs)
    yield from (words.format(f"{end:,}") for words, end in reached.items())


def _word(value: str, made: Mapping[str, Op | str]) -> str:
    """Returns a value in the words of the kernel's source, as far as Triton keeps them."""
    op = made.get(value)
    if isinstance(op, str):
        return op
    if op and op.name in WIDENED and op.operands:
        return _word(op.operands[0], made)
    if op and op.name == "tt.get_program_id":
        return f"program_id({'xyz'.index(op.text.split()[1])})"
    if op and op.name == "arith.constant":
        return op.text.split()[1].removeprefix("dense<").rstrip(">")
    if op and op.name in SIGNS:
        return f"({_word(op.operands[0], made)} {SIGNS[op.name]} {_word(op.operands[1], made)})"
    name = value.removeprefix("%").partition("#")[0]
    return name.rstrip("0123456789").rstrip("_") or f"%{name}"
