"""Which rows the programs of a kernel take, and if any number of them is right: by the accesses of small launches."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from portable_softmax.errors import PlanError
from portable_softmax.row_kernels.decorators import jit_function
from portable_softmax.row_kernels.following import Access, Pointer, Run
from portable_softmax.row_kernels.row_settings import Request
from portable_softmax.row_kernels.ttir import Function

ROWS, PROGRAMS = (5, 40, 300), (1, 2, 8)  # small launches that are followed
TURNS = 64  # of a loop over rows, of all programs together
BLOCKS = 3  # of a row, where its length is no constexpr
Observe = Callable[[int, int], "tuple[list[Sequence[Access]], set[int]]"]  # rows, programs -> accesses per program, axes read


class Form(NamedTuple):
    """Form in which a kernel goes over rows.

    Args:
        walks: any number of programs along axis 0 is right, as together they take every row once.
        in_blocks: a program loops over blocks of a row, so that a block may be shorter than a row.
        what: which rows a program takes, if it does not walk.
        parts: parameters of which every program writes its own part, and the elements from one part to the next.
        decisive: parameters whose values all of this depends on.
    """

    walks: bool
    in_blocks: bool = False
    what: str = ""
    parts: Mapping[str, int] = {}
    decisive: frozenset[str] = frozenset()


def value_of(name: str, value: Any) -> Any:
    """Returns an argument as TTIR is followed with it."""
    if isinstance(value, int):
        return (int(value), int(value))
    return Pointer(name, (0, 0)) if hasattr(value, "data_ptr") or hasattr(value, "base") else None


def form_of(function: Function, arguments: Mapping[str, Any], rows: str | None, cols: str, block: int) -> Form:
    """Returns the form of a kernel.

    Args:
        function: its TTIR, in which a row has several blocks, unless that is impossible.
        arguments: values of its parameters, by name.
        rows, cols: names of the parameters that are the numbers of rows and of their elements; None if no parameter is.
        block: elements of a block.
    """
    values = {name: value_of(name, value) for name, value in arguments.items()}
    runs: list[Run] = []

    def observe(n_rows: int, programs: int) -> tuple[list[Sequence[Access]], set[int]]:
        sized = values | ({rows: (n_rows, n_rows)} if rows else {})
        runs[:] = [Run(function, sized, (program, program), programs, TURNS // programs) for program in range(programs)]
        return [run.accesses for run in runs], runs[0].axes

    form = of_launches(observe, arguments[cols])
    strides = frozenset().union(*(access.sources for access in runs[0].accesses if access.root in form.parts))
    decisive = frozenset(name for name in runs[0].decisive | strides if isinstance(arguments.get(name), int))
    n_cols = max(arguments[cols], BLOCKS * block) if cols in function.parameters.values() else arguments[cols]
    in_blocks = _in_blocks(function, values | {cols: (n_cols, n_cols)}, n_cols, block)
    return form._replace(in_blocks=in_blocks, decisive=decisive)


def of_launches(observe: Observe, cols: int) -> Form:
    """Follows small launches, and returns the form that they show."""
    for rows in ROWS:
        observed = {programs: observe(rows, programs) for programs in PROGRAMS}
        if axes := sorted(observed[1][1] - {0}):
            return Form(False, what=f"it reads tl.program_id({axes[0]}), so its grid has {axes[-1] + 1} axes")
        launched = {programs: accesses for programs, (accesses, _) in observed.items()}
        everything = [access for of in launched.values() for one in of for access in one]
        counted = {programs: Counter(_place(access) for one in of for access in one) for programs, of in launched.items()}
        odd = {root for count in counted.values() for (root, *_), _ in count.items() ^ counted[1].items()}
        even = {access.root for access in everything} - odd
        stored = {access.root for access in everything if access.kind != "load"}
        parts = {root: _part(root, launched) for root in stored & odd if not _added(root, launched)}
        if not all(parts.values()):
            break
        if any(len(_of(launched[1][0], root)) > len(_of(launched[2][0], root)) for root in even):
            return Form(True, parts={root: part for root, part in parts.items() if part})
    return Form(False, what=_rows_of(observe(ROWS[-1], 2)[0], cols))


def _place(access: Access) -> tuple[Any, ...]:
    return access.root, access.kind, access.offset


def _of(accesses: Sequence[Access], root: str) -> list[Access]:
    return [access for access in accesses if access.root == root]


def _starts(accesses: Sequence[Access], root: str) -> list[int]:
    """Returns where stores to a parameter begin."""
    return sorted({access.offset[0] for access in _of(accesses, root) if access.kind != "load" and access.offset})


def _part(root: str, launched: Mapping[int, Sequence[Sequence[Access]]]) -> int | None:
    """Returns the elements from one program's part of a parameter to the next's; None if programs write no parts."""
    steps = set()
    for programs in launched.values():
        places = [_starts(accesses, root) for accesses in programs]
        if not all(places) or len({*map(len, places)}) > 1:
            return None
        steps |= {b - a for one, two in itertools.pairwise(places) for a, b in zip(one, two, strict=True)}
    return steps.pop() if len(steps) == 1 and min(steps) > 0 else None


def _added(root: str, launched: Mapping[int, Sequence[Sequence[Access]]]) -> bool:
    """True if all programs add to the same places by atomic operations."""
    stores = [[access for access in _of(one, root) if access.kind != "load"] for of in launched.values() for one in of]
    same = len({tuple(map(_place, accesses)) for accesses in stores}) == 1
    return same and all(access.kind == "atomic" for one in stores for access in one)


def _rows_of(programs: Sequence[Sequence[Access]], cols: int) -> str:
    """Returns a sentence about the rows that two programs take, where not any number of them is right."""
    if not any(programs):
        return "its programs access no row of such a launch"
    if programs[0] and [_place(access) for access in programs[0]] == [_place(access) for access in programs[1]]:
        return "all its programs do the same"
    roots = {access.root for accesses in programs for access in accesses}
    for root in sorted(roots, key=lambda root: -len(_starts(programs[0], root))):
        starts = [_starts(accesses, root) for accesses in programs]
        first, second = (sorted({at // max(1, cols) for at in start}) for start in starts)
        if not first or not second or starts[0] == starts[1]:
            continue
        if len(first) == 1 and second == first:
            return "a program takes a part of a row"
        if len(first) == 1:
            return "a program takes one row" if second[0] == first[0] + 1 else f"a program takes a tile of {second[0]} rows"
        if (step := first[1] - first[0]) == 1:
            return f"a program takes a chunk of {second[0] - first[0]} rows"
        return f"its loop over rows steps by {step}, whatever tl.num_programs(0) is"
    return "which rows a program takes is not a loop from tl.program_id(0) by tl.num_programs(0)"


def _in_blocks(function: Function, values: Mapping[str, Any], n_cols: int, block: int) -> bool:
    """True if all that is as long as a block is accessed in loops over the blocks of a row."""
    blocks = -(-n_cols // block)
    run = Run(function, values, (0, 0), 1, turns=1, inner_turns=max(2, blocks))
    over = {loop for loop, turns in enumerate(run.trips) if turns == blocks} if blocks > 1 else set()
    places = {(access.root, loop, access.offset) for access in run.accesses for loop in over.intersection(access.loops)}
    counted = Counter((root, loop) for root, loop, _ in places)
    moving = {loop for (_, loop), count in counted.items() if count > 1}
    wide = [access for access in run.accesses if access.elements >= block]
    return bool(moving) and all(moving.intersection(access.loops) for access in wide)


def checked(form: Form, request: Request) -> Form:
    """Returns the form; PlanError if the grid cannot be computed and there is none."""
    if request.grid is not None or form.walks:
        return form
    name, n_rows = jit_function(request.kernel).__name__, request.names[0]
    raise PlanError(
        f"{name}: {form.what}, so its grid cannot be computed; pass it as kernel[grid] takes it, such as "
        f"grid=lambda meta: (meta['{n_rows}'],), or let any number of programs be right: "
        f"for row in range(tl.program_id(0), {n_rows}, tl.num_programs(0))"
    )


def check_room(form: Form, request: Request) -> None:
    """Refuses a number of programs of which some would write behind a tensor; PlanError."""
    most, wanted = most_programs(form, request), request.num_programs or 1
    if most is not None and most < wanted:
        part = next(name for name in form.parts if _programs_of_part(form, request, name) == most)
        name = jit_function(request.kernel).__name__
        raise PlanError(
            f"{name}: each program writes a part of {part}, {form.parts[part]} elements apart, and it has room for {most}, "
            f"not {wanted}; plan(...).num_programs is how many there are"
        )


def most_programs(form: Form, request: Request) -> int | None:
    """Returns the number of programs whose parts have room; None if nothing limits it."""
    numbers = [_programs_of_part(form, request, name) for name in form.parts]
    return min((number for number in numbers if number is not None), default=None)


def _programs_of_part(form: Form, request: Request, name: str) -> int | None:
    value: Any = request.arguments.get(name)
    return int(value.numel()) // form.parts[name] if hasattr(value, "numel") and request.grid is None else None
