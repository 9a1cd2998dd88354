"""Compares the addresses of traced programs with each other, and with the sizes of tensors."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from portable_softmax.row_kernels.row_plan import Request
from portable_softmax.row_kernels.trace import Axes, accesses_of
from portable_softmax.row_kernels.ttir import COLUMNS, PROGRAM, UNKNOWN, Access, Function, parsed_of

VERBS = {"store": "stores to", "atomic": "updates", "load": "loads"}
MEET = {"store": ["store"], "atomic": ["store"], "load": ["store", "atomic"]}  # accesses that rows may not share, in this order


def corners(function: Function, arguments: Mapping[str, Any], grid: Axes, block: int = 0, rows: int = 0) -> list[Access]:
    """Traces programs at the ends of a grid, and one that may take the last of so many rows; `block` is that of Trace."""
    x, y, z = grid
    ends = sorted({0, 1, (rows - 1) % max(1, x), x - 2, x - 1} & {*range(x)})
    programs = itertools.product(ends, sorted({0, y - 1}), sorted({0, z - 1}))
    return accesses_of(function, arguments, programs, grid, block=block)


def conflict(accesses: Sequence[Access], several: Collection[str] = ()) -> str:
    """Returns a sentence about an element that is stored to for one row, and that another row accesses too; "" if none is.

    A row is a program's, or that of a turn of its loop; to parameters in `several` a program stores for all of its rows. Rows
    may share an element in atomic operations alone, and a program may load its rows ahead.
    """
    for root in dict.fromkeys(one.root for one in accesses if one.kind != "load"):
        of_root = [one for kind in MEET for one in accesses if (one.root, one.kind) == (root, kind)]
        bounds = np.unique(np.concatenate([one.runs.reshape(-1) for one in of_root]))
        earlier = {kind: np.full((2, len(bounds)), -1) for kind in MEET}  # the first and the last access to what is between
        for number, one in enumerate(of_root):
            first, end = np.searchsorted(bounds, one.runs).T
            at = np.repeat(end - np.cumsum(end - first), end - first) + np.arange((end - first).sum())
            for other in (of_root[n] for kind in MEET[one.kind] for n in np.unique(earlier[kind][:, at]) if n >= 0):
                is_other_turn = one.row[0] is other.row[0] and one.row != other.row and root not in several
                if one.program != other.program:
                    reason = f"program {other.program} {VERBS[other.kind]}"
                elif one.kind == "store" and is_other_turn:
                    reason = f"it {VERBS[other.kind]} for another row"
                else:
                    continue
                text = f"program {one.program} {VERBS[one.kind]} an element of {root} that {reason} ({one.op.line})"
                if one.kind == "store" and one.runs[0, 0] != other.runs[0, 0]:
                    text += ", as rows overlap: a mask or a larger stride is missing"
                return text
            firsts, lasts = earlier[one.kind]
            firsts[at] = np.where(firsts[at] < 0, number, firsts[at])
            lasts[at] = number
    return ""


def extent_of(tensor: Any) -> int | None:
    """Returns the elements from a tensor's first to its last one in memory; None if they are unknown."""
    if not (hasattr(tensor, "numel") and hasattr(tensor, "stride")):
        return None
    last = sum((int(size) - 1) * int(stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return last + 1 if tensor.numel() else 0


def out_of_bounds(accesses: Sequence[Access], arguments: Mapping[str, Any]) -> Iterator[tuple[Access, str]]:
    """Yields accesses outside of their tensors, of each line the furthest, and sentences about them."""
    worst: dict[tuple[str, str], Access] = {}
    for one in (one for one in accesses if one.sure):
        tensor, key = arguments.get(one.root), (one.label, one.op.line)
        extent, itemsize = extent_of(tensor), getattr(tensor, "itemsize", one.op.size)
        if extent is not None and one.op.size == itemsize and (one.runs.min() < 0 or one.runs.max() > extent):
            worst[key] = max(worst.get(key, one), one, key=lambda one: int(one.runs.max()))
    for one in worst.values():
        end = min(int(one.runs.min()), 0) or int(one.runs.max()) - 1
        yield one, f"{one.label} reaches element {end:,}, and {one.root} has {extent_of(arguments[one.root]):,} ({one.op.line})"


def overflows(accesses: Sequence[Access]) -> Iterator[str]:
    """Yields a sentence about the offset that is farthest outside of 32 bits, in which it is computed."""
    beyond = [(number, one) for one in accesses for number in one.address.sources if isinstance(number, int)]
    number, one = max(beyond, key=lambda pair: abs(pair[0]), default=(0, None))
    if one:
        text = f"the offset of {one.label} reaches {number:,} in 32 bits ({one.op.line})"
        yield f"{text}; cast the number of the row, or of the program, to tl.int64"


def check(request: Request, function: Function, grid: Axes, block: int) -> tuple[list[str], list[str]]:
    """Returns a launch's errors and warnings by the accesses of its programs, which have blocks of so many elements."""
    errors, (_, cols, size) = list[str](), request.names
    if not request.rows:
        return [], []
    accesses = corners(function, request.arguments, grid, block, request.rows)
    computed, row = size not in request.meta, f"a row of {request.cols} elements"
    if request.grid is None:
        errors += filter(None, [conflict(accesses)])
        accesses += corners(function, request.arguments, (1, 1, 1), block)  # which takes the last row in any case
    warnings = [*overflows(accesses)]
    hiding = {one.op for one in accesses if one.hides}
    of_columns = (one for one in accesses if {COLUMNS, PROGRAM} <= one.address.sources and one.op.elements % block == 0)
    unhidden = next((one for one in of_columns if one.op not in hiding), None)
    if computed and request.cols % block and unhidden:
        text = f"no mask of {unhidden.label} hides what is behind a row ({unhidden.op.line}), and the computed {size}={block}"
        errors.append(f"{text} does not divide {row}; add mask=cols < {cols}, or pass {size}=")
    for one, text in out_of_bounds(accesses, request.arguments):
        if request.num_programs and PROGRAM in one.address.sources and not one.row[0]:
            text += f"; {one.root} has no part for each of num_programs={request.num_programs}"
        elif computed and PROGRAM in one.address.sources and COLUMNS not in one.address.sources:
            text += f"; pass {size}=, which is {block} here, or tensors of a size that follows from plan(...).meta"
        (warnings if one.kind == "load" else errors).append(text)
    last = {one.root: one for one in sorted(accesses, key=lambda one: int(one.runs.max())) if one.runs.max() < UNKNOWN}
    for one in last.values():  # is the rest of its row left out, up to the tensor's end?
        left = (extent_of(request.arguments.get(one.root)) or 0) - int(one.runs.max())
        is_whole = one.hides or COLUMNS not in one.address.sources or (request.cols - left) % block
        if 0 < left < request.cols and block < request.cols and not is_whole:
            text = f"{one.label} leaves elements of {row} out, as {size}={block} is shorter ({one.op.line})"
            (errors if computed else warnings).append(text)
            break
    return errors, warnings


def warnings_of(compiled: Any, jit: Any, values: Mapping[str, Any], grid: Axes | None) -> list[str]:
    """Returns what is wrong with a compiled kernel at its sizes, or needed beside it; of an unknown grid, of one program."""
    accesses = corners(parsed_of(compiled, jit), values, grid or (1, 1, 1))
    warnings = [*overflows(accesses), *(text for _, text in out_of_bounds(accesses, values))]
    if scratch := getattr(compiled.metadata, "global_scratch_size", 0):
        warnings.append(f"a program needs {scratch} bytes of global memory for itself: triton.set_allocator(...) gives them")
    return warnings
