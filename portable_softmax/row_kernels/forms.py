"""The form of a kernel, by its TTIR: which rows a program takes, and what it moves."""

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from portable_softmax.errors import PlanError
from portable_softmax.planning.cost import Traffic
from portable_softmax.row_kernels import addresses
from portable_softmax.row_kernels.decorators import jit_function
from portable_softmax.row_kernels.row_settings import Request
from portable_softmax.row_kernels.trace import Trace, traces
from portable_softmax.row_kernels.ttir import Function, Op
from portable_softmax.row_kernels.values import PROGRAM, Loop

ROWS, PROGRAMS = (5, 40, 300), (1, 2, 3, 7)  # small launches that are traced
MAX_SUM = 4096  # programs that are traced in turn
FIRST = 16  # programs of one for each row that are traced, beside those at powers of two
BLOCKS = 3  # of a row, where its length is no constexpr
UNKNOWN_ROWS = "which rows a program takes is not a loop from tl.program_id(0) by tl.num_programs(0)"


class Form(NamedTuple):
    """Form in which a kernel goes over rows."""

    walks: bool  # any number of programs along axis 0 is right: together they take every row once; not checked with a grid
    in_blocks: bool = False  # a program loops over blocks of a row, so that a block may be shorter than a row
    what: str = ""  # which rows a program takes, if it does not walk
    parts: frozenset[str] = frozenset()  # parameters of which every program stores to a part of its own
    decisive: frozenset[str] = frozenset()  # parameters of which the values decide all of this


def form_of(
    function: Function, arguments: Mapping[str, Any], rows: str | None, cols: str, block: int, computed: bool = True
) -> Form:
    """Returns the form of a kernel on rows of several blocks of so many elements, unless that is impossible.

    `rows` and `cols` name the parameters that are the numbers of rows, if one is, and of elements of a row; `computed` is True
    if the grid is.
    """
    form = Form(True)  # with a grid that was passed, which programs there are is not asked
    if computed:
        form = _of_launches(function, arguments, rows)
        if form.walks and rows:
            count = arguments[rows]  # programs of which two differ by any period
            programs = {*range(min(count, FIRST)), *(1 << power for power in range((count - 1).bit_length()))}
            if why := addresses.conflict(traces(function, arguments, sorted(programs), count)):
                form = Form(False, what=why)
    (trace,) = traces(function, arguments, [0], 1)
    strides = [one.address.sources for one in trace.accesses if one.root in form.parts]
    decisive = {name for name in trace.decisive.union(*strides) if isinstance(arguments.get(name), int)}
    n_cols = max(arguments[cols], BLOCKS * block) if cols in function.parameters.values() else arguments[cols]
    in_blocks = _in_blocks(function, {**arguments, cols: n_cols}, -(-n_cols // block), block)
    return form._replace(in_blocks=in_blocks, decisive=frozenset(decisive))


def _of_launches(function: Function, arguments: Mapping[str, Any], rows_name: str | None) -> Form:
    """Returns the form of a kernel, by small launches.

    A kernel walks over rows if launches of 1, 2, 3 and 7 programs make the same accesses in all, every element that is stored
    to is accessed for one row alone, unless all do so by atomic operations, and nothing that is stored, nor whether it is, is
    carried from an earlier row. Beside that, every program may store to a part of its own of a parameter.
    """
    form = Form(False, what=UNKNOWN_ROWS)
    if axes := {"xyz".index(op.text.split()[1]) for op in function.every if op.kind == "get_program_id"} - {0}:
        return Form(False, what=f"it reads tl.program_id({min(axes)})")
    for rows in ROWS:
        sized = {**arguments, **({rows_name: rows} if rows_name else {})}
        launches = [traces(function, sized, range(programs), programs, max(ROWS)) for programs in PROGRAMS]
        counted = [Counter(one.place for trace in launch for one in trace.accesses) for launch in launches]
        odd = {root for count in counted for (root, *_), _ in count.items() ^ counted[0].items()}
        written = {(root, kind) for count in counted for root, kind, _ in count if kind != "load" and root in odd}
        common = {root for root, *_ in counted[0]} - odd
        if unknown := sorted({root for root, _ in written if not _is_part(root, launches)}):
            what = f"which part of {' and '.join(unknown)} a program writes is unknown"
            return Form(False, what=what if common else UNKNOWN_ROWS)
        if not common:
            continue
        why = addresses.conflict(launches[-1]) or addresses.conflict(launches[0], odd) or _carried(launches, odd)
        if why:
            return Form(False, what=why)
        form = Form(True, parts=frozenset(root for root, kind in written if kind == "store"))
        one, two, three = (Counter(access.root for access in launch[-1].accesses) for launch in launches[:3])
        if any(one[root] > two[root] and three[root] for root in common):
            break  # three programs share it
    return form


def _is_part(root: str, launches: Sequence[Sequence[Trace]]) -> bool:
    """True if all programs of all launches access as many elements of a parameter."""
    of_programs = [[one for one in trace.accesses if one.root == root] for launch in launches for trace in launch]
    if not all(several and all(one.is_known for one in several) for several in of_programs):
        return False
    return len({tuple(int((one.runs[:, 1] - one.runs[:, 0]).sum()) for one in several) for several in of_programs}) == 1


def _carried(launches: Sequence[Sequence[Trace]], odd: Collection[str]) -> str:
    """Returns a sentence about what is stored and differs with the number of programs; "" if nothing does."""
    counted = [
        Counter((one.place, one.stored, one.op.line) for trace in launch for one in trace.accesses if one.kind != "load")
        for launch in launches
    ]
    for (root, *_), _, line in (key for count in counted for key, _ in count.items() ^ counted[0].items()):
        if root not in odd:
            return f"what it stores to {root} depends on other rows of its program ({line})"
    return ""


def _in_blocks(function: Function, values: Mapping[str, Any], blocks: int, block: int) -> bool:
    """True if all that is as long as a block is accessed in loops over the blocks of a row."""
    (trace,) = traces(function, values, [0], 1)
    places = {(loop, one.place) for one in trace.accesses for loop, _ in one.loops if loop.trips == blocks > 1}
    counts = Counter((loop, root) for loop, (root, *_) in places)
    moving = {loop for (loop, _), count in counts.items() if count > 1}
    long = [one for one in trace.accesses if one.op.elements >= block]
    return bool(moving) and all(moving.intersection(loop for loop, _ in one.loops) for one in long)


def check_form(form: Form, request: Request) -> None:
    """Raises PlanError if a grid cannot be computed, or num_programs is missing for a tensor with a part for each program."""
    if request.grid is not None:
        return
    name, rows = jit_function(request.kernel).__name__, request.names[0]
    if not form.walks:
        raise PlanError(
            f"{name}: {form.what}, so its grid cannot be computed; pass grid= as in kernel[grid], such as grid=lambda meta: "
            f"(meta[{rows!r}],) if a program takes one row, or make any number of programs correct: "
            f"for row in range(tl.program_id(0), {rows}, tl.num_programs(0))"
        )
    tensors = [part for part in sorted(form.parts) if hasattr(request.arguments[part], "numel")]
    if tensors and request.num_programs is None:
        words = f"each program stores to a part of {tensors[0]} of its own; pass num_programs="
        raise PlanError(f"{name}: {words}, which plan(...) computes if {tensors[0]} is a type such as '*fp32'")


def turns_of_rows(function: Function, arguments: Mapping[str, Any], parts: Collection[str], program: int, programs: int) -> int:
    """Counts the turns of loops over rows in which a program accesses memory; a kernel without such a loop has one."""
    turns = Counter[Loop | None]()
    (trace,) = traces(function, arguments, [program], programs)
    for one in (one for one in trace.accesses if one.root not in parts):
        loop, turn = one.of_rows
        if loop or PROGRAM in one.address.sources:
            turns[loop] = max(turns[loop], turn + 1)
    if len(turns) > 1:
        del turns[None]
    return turns.total()


def check_rows(form: Form, request: Request, function: Function, programs: int) -> None:
    """Raises PlanError if programs of a computed grid take more or fewer turns over rows than one program does."""
    of_program = functools.partial(turns_of_rows, function, request.arguments, form.parts)
    turns, every = functools.cache(functools.partial(of_program, programs=programs)), of_program(0, 1)
    longer = every % programs  # programs that take a turn more, where programs take rows in turn

    def total(first: int, last: int) -> int:
        """Adds the turns of programs; from program to program they grow or fall."""
        if turns(first) == turns(last):
            return turns(first) * (last - first + 1)
        middle = longer if first < longer <= last else (first + last + 1) // 2
        return total(first, middle - 1) + total(middle, last)

    if total(0, programs - 1) != every and (programs > MAX_SUM or sum(map(turns, range(programs))) != every):
        check_form(Form(False, what=f"it goes over {request.rows:,} rows otherwise than over {ROWS[0]}"), request)


def traffic_of(function: Function, values: Mapping[str, Any], walks: bool, rows: int | None, cols: int, block: int) -> Traffic:
    """Counts what a row of so many elements, in such blocks, and a program beside its rows move and compute.

    Values of arguments may bound loops, and of a tensor no row moves more than its share, if there are so many rows; None if
    their number must not matter. The kernel walks over rows or not.
    """
    (trace,) = traces(function, values, [0], 1 if walks else max(1, rows or 1))
    sized = {name: value.numel() for name, value in values.items() if hasattr(value, "numel") and rows is not None}
    share = {name: numel / max(1, rows or 1) for name, numel in sized.items()}
    blocks, counts = -(-cols // block), dict.fromkeys(Traffic._fields, 0.0)
    moved: defaultdict[tuple[str, bool], float] = defaultdict(float)  # elements of a row, loaded or stored

    def trips_of(loops: Sequence[tuple[Loop, int]]) -> list[int]:
        """Returns the turns of loops, but for the one over rows."""
        of_rows = next((loop for loop, _ in loops if walks and PROGRAM in loop.sources), None)
        return [loop.trips or blocks for loop, _ in loops if loop is not of_rows]

    def filled(op: Op, trips: Sequence[float]) -> float:
        """Returns the elements of an operation in all turns that no mask hides."""
        part = cols / (block * blocks) if op.elements == block else 1
        return math.prod(trips) * op.elements * part

    for one in {one.op: one for one in reversed(trace.accesses)}.values():  # the first of an operation
        trips, size, part = trips_of(one.loops), one.op.size, (one.root, one.kind == "load")
        elements = filled(one.op, trips)
        moving = elements if PROGRAM in one.address.sources else 0.0  # others are in a cache
        if walks and len(trips) == len(one.loops):
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
            counts["exponents"] += filled(op, trips) / cols
        elif blocks > 1 and blocks in trips:
            counts["block_reductions"] += math.prod(trips) / blocks
        else:
            counts["reductions"] += math.prod(trips)
    return Traffic(**counts | {"element": counts["element"] / (counts["row_operands"] * cols or 1) or Traffic().element})
