"""Facts in a kernel's TTIR: rows of a program, bytes that it moves, and offsets that do not fit 32 bits."""

import functools
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from portable_softmax.errors import PlanError
from portable_softmax.planning.facts import Traffic
from portable_softmax.row_kernels import addresses
from portable_softmax.row_kernels.decorators import jit_function
from portable_softmax.row_kernels.following import LAST, MAX_TURNS, PROGRAM, Run
from portable_softmax.row_kernels.row_settings import Request
from portable_softmax.row_kernels.ttir import Function
from portable_softmax.row_kernels.values import Access

ROWS, PROGRAMS = (5, 40, MAX_TURNS), (1, 2, 3, 7)  # small launches that are followed
MAX_SUM = 4096  # programs that are followed in turn
FIRST = 16  # programs of one for each row that are followed, beside those at powers of two
BLOCKS = 3  # of a row, where its length is no constexpr
Observe = Callable[..., Sequence[Sequence[Access]]]  # of rows, programs, and as `followed`
UNKNOWN_ROWS = "which rows a program takes is not a loop from tl.program_id(0) by tl.num_programs(0)"


class Form(NamedTuple):
    """Form in which a kernel goes over rows.

    Args:
        walks: any number of programs along axis 0 is right, as together they take every row once.
        in_blocks: a program loops over blocks of a row, so that a block may be shorter than a row.
        what: which rows a program takes, if it does not walk.
        grid: such a kernel's grid; "" if it is unknown.
        parts: parameters of which every program writes its own part, and the elements of a part, and ahead of the first.
        decisive: parameters whose values all of this depends on.
    """

    walks: bool
    in_blocks: bool = False
    what: str = ""
    grid: str = ""
    parts: Mapping[str, tuple[int, int]] = {}
    decisive: frozenset[str] = frozenset()


def form_of(
    function: Function, arguments: Mapping[str, Any], rows: str | None, cols: str, block: int, computed: bool = True
) -> Form:
    """Returns the form of a kernel whose rows have several blocks of so many elements, unless that is impossible.

    `rows` and `cols` name the parameters that are the numbers of rows, if one is, and of elements of a row; `computed` is True
    if the grid is.
    """
    form = of_launches(functools.partial(followed, function, arguments, rows), rows) if computed else Form(True)
    if computed and rows and form.walks and (why := addresses.conflict(_of_all_rows(function, arguments, arguments[rows]))):
        form = Form(False, what=why)
    run = Run(function, arguments, (0, 0, 0), (1, 1, 1))
    strides = frozenset().union(*(access.sources for access in run.accesses if access.root in form.parts))
    decisive = frozenset(name for name in run.decisive | strides if isinstance(arguments.get(name), int))
    n_cols = max(arguments[cols], BLOCKS * block) if cols in function.parameters.values() else arguments[cols]
    in_blocks = _in_blocks(function, {**arguments, cols: n_cols}, -(-n_cols // block), block)
    return form._replace(in_blocks=in_blocks, decisive=decisive)


def followed(
    function: Function, arguments: Mapping[str, Any], name: str | None, rows: int, programs: int
) -> Sequence[Sequence[Access]]:
    """Follows all programs of a launch over so many rows; `name` is that of their number."""
    sized, grid = {**arguments, **({name: rows} if name else {})}, (programs, 1, 1)
    return [Run(function, sized, (program, 0, 0), grid, MAX_TURNS).accesses for program in range(programs)]


def _of_all_rows(function: Function, arguments: Mapping[str, Any], rows: int) -> Iterator[tuple[int, Sequence[Access]]]:
    """Follows some programs of one for each row: the first ones, and those at powers of two, which differ by any period."""
    for program in sorted({*range(min(rows, FIRST)), *(1 << power for power in range((rows - 1).bit_length()))}):
        yield program, Run(function, arguments, (program, 0, 0), (rows, 1, 1)).accesses


def of_launches(observe: Observe, rows_name: str | None) -> Form:
    """Returns the form of a kernel, by small launches.

    A kernel walks over rows if launches of 1, 2, 3 and 7 programs make the same accesses in all, every element that is stored
    to is accessed for one row alone, unless all do so by atomic operations, and nothing that is stored, nor whether it is, is
    carried from an earlier row. Beside that, every program may write a part of its own of a parameter.
    """
    walks, parts = False, dict[str, Any]()
    for rows in ROWS:
        launched = [observe(rows, programs) for programs in PROGRAMS]
        if axes := sorted({access.offset or 0 for access in launched[0][0] if access.kind == "axis"}):
            what = f"it reads tl.program_id({axes[0]}), so its grid has {axes[-1] + 1} axes"
            return Form(False, what=what, grid=f"(meta[{rows_name!r}]{', ...' * axes[-1]})")
        counted = [Counter(access.place for one in of for access in one) for of in launched]
        odd = {root for count in counted for (root, *_), _ in count.items() ^ counted[0].items()}
        stored = {root for count in counted for root, kind, _ in count if kind != "load"}
        parts = {root: _part(root, launched) for root in odd}
        alone, second, third = (Counter(access.root for access in of[-1]) for of in launched[:3])
        if unknown := [root for root, part in parts.items() if part is None and root in stored]:
            if alone.keys() - odd:
                return Form(False, what=f"which part of {' and '.join(sorted(unknown))} a program writes is unknown")
            walks = False
            break
        if not (walks := bool(common := alone.keys() - odd)):
            continue
        if (
            why := addresses.conflict(enumerate(launched[-1]))
            or addresses.conflict(enumerate(launched[0]), odd)
            or _carried(launched, odd)
        ):
            return Form(False, what=why)
        if any(alone[root] > second[root] and third[root] for root in common):
            break  # three programs share it
    if walks:
        return Form(True, parts={part: of for part, of in parts.items() if of and of[0]})
    return Form(False, what=UNKNOWN_ROWS)


def _carried(launched: Sequence[Sequence[Sequence[Access]]], odd: Collection[str]) -> str:
    """Returns a sentence about what is stored and differs with the number of programs; "" if nothing does."""
    counted = [
        Counter((access.place, access.stored, access.line) for one in of for access in one if access.root not in odd)
        for of in launched
    ]
    unlike = [key for count in counted for key in count if key[0][1] != "load" and count[key] != counted[0][key]]
    return f"what it stores to {unlike[0][0][0]} depends on other rows of its program ({unlike[0][2]})" if unlike else ""


def _starts(accesses: Sequence[Access], root: str) -> list[int]:
    """Returns where accesses to a parameter begin; -1 for an unknown offset."""
    return sorted({-1 if access.offset is None else access.offset for access in accesses if access.root == root})


def _part(root: str, launched: Sequence[Sequence[Sequence[Access]]]) -> tuple[int, int] | None:
    """Returns a part of a parameter, as in Form, of 0 elements where all programs add to one; None without parts."""
    places = [[_starts(one, root) for one in of] for of in launched]
    if any(-1 in one or not one or len(one) != len(places[0][0]) for of in places for one in of):
        return None
    steps = {b - a for of in places for one, two in itertools.pairwise(of) for a, b in zip(one, two, strict=True)}
    longest = max((one.elements for one in launched[0][0] if (one.root, one.kind) == (root, "store")), default=-1)
    part = (places[-1][-1][-1] - places[0][0][-1]) // (PROGRAMS[-1] - PROGRAMS[0]), places[0][0][0]
    return part if len(steps) == 1 and min(steps) * 2 > longest else None  # a mask may hide half of a block


def _in_blocks(function: Function, values: Mapping[str, Any], blocks: int, block: int) -> bool:
    """True if all that is as long as a block is accessed in loops over the blocks of a row."""
    run = Run(function, values, (0, 0, 0), (1, 1, 1), inner_turns=MAX_TURNS)
    over = {loop for loop, turns in enumerate(run.trips) if turns == blocks > 1}
    places = {(access.root, loop, access.offset) for access in run.accesses for loop in over.intersection(access.loops)}
    moving = {loop for (_, loop), count in Counter(place[:2] for place in places).items() if count > 1}
    wide = [access for access in run.accesses if access.elements >= block]
    return bool(moving) and all(moving.intersection(access.loops) for access in wide)


def check_form(form: Form, request: Request) -> None:
    """Raises PlanError if a grid cannot be computed, or a tensor with a part for each program has no room for num_programs."""
    if request.grid is not None:
        return
    name, wanted = jit_function(request.kernel).__name__, request.num_programs
    if not form.walks:
        such_as = f", such as grid=lambda meta: {form.grid}" if form.grid else ""
        loop = f"for row in range(tl.program_id(0), {request.names[0]}, tl.num_programs(0))"
        raise PlanError(
            f"{name}: {form.what}, so its grid cannot be computed; pass grid= as in kernel[grid]{such_as}"
            + f", or make any number of programs correct: {loop}" * ("..." not in form.grid)
        )
    for part, (apart, first) in form.parts.items():
        if hasattr(tensor := request.arguments[part], "numel"):
            most: int = (tensor.numel() - first) // apart
            if wanted is None or most < wanted:
                words = f"each program writes a part of {part}, {apart} elements apart, with room for {most} programs"
                words += (
                    f", not {wanted}" * bool(wanted) + f"; pass num_programs=, which plan(...) computes if {part} is a type"
                )
                raise PlanError(f"{name}: {words} such as '*fp32'")


def turns_of_rows(function: Function, arguments: Mapping[str, Any], parts: Collection[str], program: int, programs: int) -> int:
    """Counts the turns of loops over rows in which a program accesses memory; a kernel without such a loop has one."""

    def accessed(also: int) -> dict[Any, tuple[int, int]]:
        run = Run(function, arguments, (program, 0, 0), (programs, 1, 1), also=also)
        moving = [(run.of_rows(one.loops), one) for one in run.accesses if one.root not in parts]
        moving = [(loop, one) for loop, one in moving if loop is not None or PROGRAM in one.sources]
        loops = dict(moving).keys() - ({None} if len(dict(moving)) > 1 else set())  # else the kernel has no such loop
        return {loop: max((one.turn, one.turns) for at, one in moving if at == loop) for loop in loops}

    count = 0
    for loop, (last, turns) in accessed(LAST).items():
        end = turns
        while end - last > 1:  # a branch or a mask leaves the last turns out
            middle = (last + end) // 2
            reached = accessed(middle)[loop][0]
            last, end = (middle, end) if reached == middle else (last, middle)
        count += last + 1
    return count


def check_rows(form: Form, request: Request, function: Function, programs: int) -> None:
    """Raises PlanError if programs of a computed grid take more or fewer turns over rows than one program does."""
    turns = functools.cache(functools.partial(turns_of_rows, function, request.arguments, form.parts))

    def taken(first: int, last: int) -> int:
        """Adds the turns of programs, whose numbers grow or fall."""
        if turns(first, programs) == turns(last, programs) or last - first < 2:
            return turns(first, programs) * (last - first) + turns(last, programs)
        middle = (first + last) // 2
        return taken(first, middle) + taken(middle, last) - turns(middle, programs)

    one = turns(0, 1)
    first = one % programs  # programs that take a turn more, where programs take rows in turn
    ranges = [(0, first - 1), (first, programs - 1)] if first else [(0, programs - 1)]
    if programs == 1 or sum(itertools.starmap(taken, ranges)) == one:
        return
    if programs > MAX_SUM or sum(turns(program, programs) for program in range(programs)) != one:
        check_form(Form(False, what=f"it goes over {request.rows:,} rows otherwise than over {ROWS[0]}"), request)


def tried(form: Form, request: Request, function: Function) -> Form:
    """Returns a form that is no walk, with a grid of one program, or one for each row, if that takes all rows and no others."""

    def stores(program: int, programs: int) -> list[tuple[Any, bool]]:
        run = Run(function, request.arguments, (program, 0, 0), (programs, 1, 1), also=LAST)
        inside = [(one, addresses.is_inside(one, request.arguments)) for one in run.accesses if one.kind != "load"]
        return [(one.place, bool(known) and one.turns == 1) for one, known in inside]

    all_rows, of_rows = (1, "all its programs do the same", "(1,)"), f"(meta[{request.names[0]!r}],)"
    grids = all_rows, (request.rows, "a program takes one row", of_rows)
    for programs, what, grid in grids if form.what == UNKNOWN_ROWS and request.rows else ():
        seen = [stores(number, programs) for number in sorted({0, 1, programs - 2, programs - 1} & {*range(programs)})]
        places = {place for one in seen for place, _ in one}
        more = [place for place, inside in stores(programs, programs + 1) if inside]
        if all(one and all(inside for _, inside in one) for one in seen) and places.issuperset(more):
            return form._replace(what=what, grid=grid)
    return form


def traffic_of(function: Function, values: Mapping[str, Any], walks: bool, rows: int | None, cols: int, block: int) -> Traffic:
    """Counts what a row of so many elements, in such blocks, and a program beside its rows move and compute.

    Values of arguments may bound loops, and of a tensor no row moves more than its share, if there are so many rows; None if
    their number must not matter. The kernel walks over rows or not.
    """
    run = Run(function, values, None, (PROGRAMS[-1], 1, 1), turns=1, inner_turns=1)
    sized = {name: value.numel() for name, value in values.items() if hasattr(value, "numel")}
    share = {} if rows is None else {name: numel / max(1, rows) for name, numel in sized.items()}
    blocks = -(-cols // block)
    counts = dict.fromkeys(Traffic._fields, 0.0)
    moved: defaultdict[tuple[str, bool], float] = defaultdict(float)  # elements of a row, loaded or stored

    def around(loops: Sequence[int]) -> tuple[bool, list[float]]:
        """Returns whether one of some loops goes over rows, and the turns of the others."""
        of_rows = next((loop for loop in loops if walks and PROGRAM in run.loops[loop]), None)
        trips = [run.trips[loop] for loop in loops if loop != of_rows]
        return of_rows is not None, [blocks if count is None else count for count in trips]

    def filled(elements: int) -> float:
        """Returns the elements that no mask hides."""
        return elements * cols / (block * blocks) if elements == block else elements

    for access in run.accesses:
        in_rows, trips = around(access.loops)
        of_row, moves, part = in_rows or not walks, PROGRAM in access.sources, (access.root, access.kind == "load")
        elements = math.prod(trips) * filled(access.elements)
        left = share.get(access.root, math.inf) - moved[part] if of_row else math.inf
        now = min(elements, left) if moves else 0
        moved[part] += now
        unit = "row" if of_row else "program"
        counts[unit] += access.size * now
        counts[f"{unit}_operands"] += elements / cols
        if of_row:
            loaded = elements if access.kind == "load" else 0
            counts["loads"] += loaded / cols
            counts["loaded"] += access.size * loaded
            counts["again"] += access.size * (loaded - now) if moves and loaded else 0
            counts["element"] += access.size * elements  # bytes, until all are known
    for op, loops in run.work:
        _, trips = around(loops)
        if op.kind == "reduce":
            of_blocks = blocks > 1 and blocks in trips
            counts["block_reductions" if of_blocks else "reductions"] += math.prod(trips) / (blocks if of_blocks else 1)
        else:
            counts["exponents"] += math.prod(trips) * filled(op.elements)
    return Traffic(**counts | {"element": counts["element"] / (counts["row_operands"] * cols or 1) or Traffic().element})
