"""The form of a kernel, by its TTIR: which rows a program takes, and what it moves."""

import functools
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from portable_softmax.errors import PlanError
from portable_softmax.planning.cost import Work
from portable_softmax.planning.problem import VECTOR_BYTES
from portable_softmax.row_kernels.addresses import conflict
from portable_softmax.row_kernels.decorators import jit_function
from portable_softmax.row_kernels.row_plan import Request
from portable_softmax.row_kernels.trace import Trace, accesses_of
from portable_softmax.row_kernels.ttir import PROGRAM, Access, Function, Op, Turns

TRACED_ROWS = 5, 40, 300  # of small launches, all of which are traced: more than 5 only while three programs do not share them
TRACED_PROGRAMS = 1, 2, 3, 7  # of these launches
FIRST = 16  # programs of one for each row that are traced, beside those at powers of two
BLOCKS = 3  # of a row, where its length is no constexpr
UNKNOWN_ROWS = "launches of 1, 2, 3 and 7 programs do not make the same accesses"


class Form(NamedTuple):
    """Form in which a kernel goes over rows; `Problem.form`, a function such as log_softmax, is another word."""

    refused: str = ""  # why no grid can be computed; "" if any number of programs takes every row once, or a grid was passed
    in_blocks: bool = False  # a program loops over blocks of a row, so that a block may be shorter than a row
    parts: frozenset[str] = frozenset()  # parameters of which every program stores to a part of its own
    decisive: frozenset[str] = frozenset()  # parameters of which the values decide all of this


def _traced(
    function: Function, arguments: Mapping[str, Any], programs: Iterable[int], of_all: int, **more: int
) -> list[Access]:
    """Returns the accesses of some programs of a launch along axis 0."""
    return accesses_of(function, arguments, [(program, 0, 0) for program in programs], (of_all, 1, 1), **more)


def form_of(function: Function, request: Request, block: int) -> Form:
    """Returns the form of a kernel on rows of several blocks of so many elements, unless that is impossible."""
    (rows, cols, _), arguments, form = request.names, request.arguments, Form()
    if request.grid is None and rows:  # else which programs there are is not asked
        form, count = _of_launches(function, arguments, rows), arguments[rows]
        programs = {*range(min(count, FIRST)), *(1 << power for power in range((count - 1).bit_length()))}
        why = form.refused or conflict(_traced(function, arguments, sorted(programs), count))
        form = form._replace(refused=why)
    n_cols = arguments[cols]
    if cols in function.parameters.values():
        n_cols = max(n_cols, BLOCKS * block)
    trace = Trace(function, {**arguments, cols: n_cols}, (0, 0, 0), (1, 1, 1))
    strides = [one.address.sources for one in trace.accesses if one.root in form.parts]
    decisive = frozenset(name for name in trace.decisive.union(*strides) if isinstance(arguments.get(name), int))
    return form._replace(in_blocks=_in_blocks(trace.accesses, -(-n_cols // block), block), decisive=decisive)


def _of_launches(function: Function, arguments: Mapping[str, Any], name_of_rows: str) -> Form:
    """Returns the form of a kernel, by small launches.

    Its grid can be computed if launches of 1, 2, 3 and 7 programs make the same accesses in all, every element that is stored
    to is accessed for one row alone, unless all do so by atomic operations, and nothing that is stored, nor whether it is, is
    carried from an earlier row. Beside that, every program may store to a part of its own of a parameter.
    """
    form, axes = Form(UNKNOWN_ROWS), {op.text.split()[1] for op in function.every if op.kind == "get_program_id"}
    if axes - {"x"}:
        return Form(f"it reads tl.program_id({'xyz'.index(min(axes - {'x'}))})")
    for rows in TRACED_ROWS:
        launches = [
            _traced(function, {**arguments, name_of_rows: rows}, range(n), n, turns=max(TRACED_ROWS)) for n in TRACED_PROGRAMS
        ]
        odd = {root for (root, *_), *_ in _differing([[(one.place,) for one in launch] for launch in launches])}
        stores = [[one for one in launch if one.kind != "load"] for launch in launches]
        common = {one.root for one in launches[0]} - odd
        if odd and not common:
            return Form(UNKNOWN_ROWS)
        if not common:
            continue
        made = [[(one.place, one.stored, one.op.line) for one in of_launch if one.root not in odd] for of_launch in stores]
        why = conflict(launches[-1]) or conflict(launches[0], odd)
        for (root, *_), _, line in _differing(made)[:1]:
            why = why or f"what it stores to {root} depends on other rows of its program ({line})"
        if why:
            return Form(why)
        form = Form(parts=frozenset(one.root for one in itertools.chain(*stores) if one.root in odd and one.kind == "store"))
        one, two, three = (Counter(one.root for one in launches[n] if one.program == n) for n in range(3))  # of last programs
        if any(one[root] > two[root] and three[root] for root in common):
            break  # three programs share these rows: those that take rows in chunks, such as of 16, share none of 5
    return form


def _differing(launches: Sequence[Sequence[Any]]) -> list[Any]:
    """Returns what is not in all launches equally often."""
    first, *others = (Counter(launch).items() for launch in launches)
    return [key for other in others for key, _ in first ^ other]


def _in_blocks(accesses: Sequence[Access], blocks: int, block: int) -> bool:
    """True if all that is as long as a block is accessed in loops over the blocks of a row."""
    places = {(loop, one.place) for one in accesses for loop, _ in one.loops if loop.trips == blocks > 1}
    counts = Counter((loop, root) for loop, (root, *_) in places)
    moving = {loop for (loop, _), count in counts.items() if count > 1}
    long = [one for one in accesses if one.op.elements >= block]
    return bool(moving) and all(moving.intersection(loop for loop, _ in one.loops) for one in long)


def check_form(form: Form, request: Request) -> None:
    """Raises PlanError if a grid cannot be computed, or num_programs is missing for a tensor with a part for each program."""
    if request.grid is not None:
        return
    name, rows = jit_function(request.kernel).__name__, request.names[0]
    if form.refused:
        raise PlanError(
            f"{name}: {form.refused}, so its grid cannot be computed; pass grid= as in kernel[grid], such as grid=lambda meta: "
            f"(meta[{rows!r}],) if a program takes one row, or make any number of programs correct, as by "
            f"for row in range(tl.program_id(0), {rows}, tl.num_programs(0))"
        )
    tensors = [part for part in sorted(form.parts) if hasattr(request.arguments[part], "numel")]
    if tensors and request.num_programs is None:
        text = f"each program stores to a part of {tensors[0]} of its own; pass num_programs="
        raise PlanError(f"{name}: {text}, which plan(...) computes if {tensors[0]} is a type such as '*fp32'")


def programs_of_rows(form: Form, request: Request, function: Function, most: int) -> int:
    """Returns the programs of a computed grid, `most` of those that have rows, unless their number was passed.

    PlanError if they take more or fewer turns over rows than one program does.
    """
    if not request.rows:
        return request.num_programs or most

    @functools.cache
    def turns(program: int, programs: int) -> int:
        """Counts the turns over rows in which a program accesses memory; one if there is no loop over rows."""
        accesses = [one for one in _traced(function, request.arguments, [program], programs) if one.root not in form.parts]
        return max((one.row[1] + 1 for one in accesses if one.row[0] or PROGRAM in one.address.sources), default=0)

    programs = request.num_programs or min(most, max(1, turns(0, 1)))

    def total(first: int, last: int) -> int:
        """Adds the turns of programs, which grow or fall from program to program."""
        if turns(first, programs) == turns(last, programs):
            return turns(first, programs) * (last - first + 1)
        middle = (first + last + 1) // 2
        return total(first, middle - 1) + total(middle, last)

    first, last = turns(0, programs), turns(programs - 1, programs)
    is_right = min(first, last) * programs <= turns(0, 1) <= max(first, last) * programs - max(0, first - last)
    if abs(first - last) > 1:  # else turns may alternate
        is_right = total(0, programs - 1) == turns(0, 1)
    if not is_right:
        check_form(Form(f"it goes over {request.rows:,} rows otherwise than over {TRACED_ROWS[0]}"), request)
    return programs


def traffic_of(
    function: Function, values: Mapping[str, Any], over_rows: bool, rows: int | None, cols: int, block: int, multiple: int
) -> Work:
    """Counts what a row of so many elements, in such blocks, and a program beside its rows move and compute.

    Values of arguments may bound loops, and of a tensor no row moves more than its share, if there are so many rows; None if
    their number must not matter. Programs loop `over_rows`, or have one turn; rows start at multiples of so many elements.
    """
    programs, blocks = max(1, rows or 1), -(-cols // block)
    trace = Trace(function, values, (0, 0, 0), ({True: 1}.get(over_rows, programs), 1, 1))
    share = {name: value.numel() / programs for name, value in values.items() if hasattr(value, "numel") and rows is not None}
    counts, moved = defaultdict[str, float](float), defaultdict[Any, float](float)  # elements of a row by root and kind
    counts["adjacent"] = 1

    def trips_of(loops: Turns) -> list[int]:
        """Returns the turns of loops, but for the one over rows."""
        of_rows = next((loop for loop, _ in loops if over_rows and PROGRAM in loop.sources), None)
        return [loop.trips or blocks for loop, _ in loops if loop is not of_rows]

    def filled(op: Op, loops: Turns) -> float:
        """Returns the elements of an operation in all turns that no mask hides."""
        elements = math.prod(trips_of(loops)) * op.elements
        return elements * cols / (block * blocks) if op.elements == block else elements

    for one in {one.op: one for one in reversed(trace.accesses)}.values():  # the first of an operation
        elements, moving, size, part = filled(one.op, one.loops), 0.0, one.op.size, (one.root, one.kind == "load")
        adjacent = VECTOR_BYTES / size
        if PROGRAM in one.address.sources:
            moving, adjacent = elements, min(multiple, adjacent)  # others are in a cache
        if one.op.elements == block:
            counts["adjacent"] = max(counts["adjacent"], adjacent)
        if over_rows and not one.row[0]:
            counts["program"] += size * moving
            counts["program_operands"] += elements / cols
            continue
        now = min(moving, share.get(one.root, math.inf) - moved[part])
        moved[part] += now
        counts["row"] += size * now
        counts["row_operands"] += elements / cols
        counts["element"] += size * elements  # bytes, until all are known
        if one.kind == "load":
            counts["loads"] += elements / cols
            counts["loaded"] += size * elements
            counts["again"] += size * (moving - now)
    for op, loops in trace.work.items():
        trips = trips_of(loops)
        if op.kind != "reduce":
            counts["exponents"] += filled(op, loops) / cols
        elif blocks > 1 and blocks in trips:
            counts["block_reductions"] += math.prod(trips) / blocks
        else:
            counts["reductions"] += math.prod(trips)
    return Work(**counts | {"element": counts["element"] / (counts["row_operands"] * cols or 1) or Work().element})  # type: ignore[arg-type]
