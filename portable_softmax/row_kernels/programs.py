"""Which rows the programs of a kernel take, and if any number of them is right: by the accesses of small launches."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from portable_softmax.errors import PlanError
from portable_softmax.row_kernels.decorators import jit_function
from portable_softmax.row_kernels.following import Access, Run
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


def form_of(function: Function, arguments: Mapping[str, Any], rows: str | None, cols: str, block: int) -> Form:
    """Returns the form of a kernel.

    Args:
        function: its TTIR, in which a row has several blocks, unless that is impossible.
        arguments: values of its parameters, by name.
        rows, cols: names of the parameters that are the numbers of rows and of their elements; None if no parameter is.
        block: elements of a block.
    """
    runs: list[Run] = []

    def observe(n_rows: int, programs: int) -> tuple[list[Sequence[Access]], set[int]]:
        sized = {**arguments, **({rows: n_rows} if rows else {})}
        runs[:] = [Run(function, sized, program, programs, TURNS // programs, 2) for program in range(programs)]
        return [run.accesses for run in runs], runs[0].axes

    form = of_launches(observe, arguments[cols])
    strides = frozenset().union(*(access.sources for access in runs[0].accesses if access.root in form.parts))
    decisive = frozenset(name for name in runs[0].decisive | strides if isinstance(arguments.get(name), int))
    n_cols = max(arguments[cols], BLOCKS * block) if cols in function.parameters.values() else arguments[cols]
    return form._replace(
        in_blocks=_in_blocks(function, {**arguments, cols: n_cols}, -(-n_cols // block), block), decisive=decisive
    )


def of_launches(observe: Observe, cols: int) -> Form:
    """Follows small launches, and returns the form that they show."""
    for rows in ROWS:
        observed = {programs: observe(rows, programs) for programs in PROGRAMS}
        if axes := sorted(observed[1][1] - {0}):
            return Form(False, what=f"it reads tl.program_id({axes[0]}), so its grid has {axes[-1] + 1} axes")
        launched = [accesses for accesses, _ in observed.values()]
        counted = [Counter(access[:3] for one in of for access in one) for of in launched]
        odd = {root for count in counted for (root, *_), _ in count.items() ^ counted[0].items()}
        stored = {root for count in counted for root, kind, _ in count if kind != "load"}
        parts = {root: _part(root, launched) for root in stored & odd}
        if None in parts.values():
            break
        alone, shared = (Counter(access.root for access in of[0]) for of in launched[:2])
        if any(alone[root] > shared[root] for root in alone.keys() - odd):  # which two programs share
            return Form(True, parts={root: part for root, part in parts.items() if part})
    return Form(False, what=_rows_of(observe(ROWS[-1], 2)[0], cols))


def _starts(accesses: Sequence[Access], root: str) -> list[int]:
    """Returns where stores to a parameter begin."""
    return sorted({access.offset or 0 for access in accesses if access.root == root and access.kind != "load"})


def _part(root: str, launched: Sequence[Sequence[Sequence[Access]]]) -> int | None:
    """Returns the elements from one program's part of a parameter to the next's: 0 where all add to one; None without parts."""
    stores = [[[access for access in one if access.root == root and access.kind != "load"] for one in of] for of in launched]
    if any(access.offset is None for of in stores for one in of for access in one):
        return None
    if all(one == stores[0][0] for of in stores for one in of) and all(access.kind == "atomic" for access in stores[0][0]):
        return 0
    places = [[_starts(one, root) for one in of] for of in stores]
    if not all(map(all, places)) or len({len(one) for of in places for one in of}) > 1:
        return None
    steps = {b - a for of in places for one, two in itertools.pairwise(of) for a, b in zip(one, two, strict=True)}
    return steps.pop() if len(steps) == 1 and min(steps) > 0 else None


def _rows_of(programs: Sequence[Sequence[Access]], cols: int) -> str:
    """Returns a sentence about the rows that two programs take, where not any number of them is right."""
    if programs[0] == programs[1]:
        return "all its programs do the same" if programs[0] else "its programs access no row of such a launch"
    for root in sorted({access.root for access in programs[0]}, key=lambda root: -len(_starts(programs[0], root))):
        starts = [_starts(accesses, root) for accesses in programs]
        first, second = (sorted({at // max(1, cols) for at in start}) for start in starts)
        if not first or not second or starts[0] == starts[1]:
            continue
        if len(first) == 1:
            rows = second[0] - first[0]
            return "a program takes " + {0: "a part of a row", 1: "one row"}.get(rows, f"a tile of {rows} rows")
        if (step := first[1] - first[0]) == 1:
            return f"a program takes a chunk of {second[0] - first[0]} rows"
        return f"its loop over rows steps by {step}, whatever tl.num_programs(0) is"
    return "which rows a program takes is not a loop from tl.program_id(0) by tl.num_programs(0)"


def _in_blocks(function: Function, values: Mapping[str, Any], blocks: int, block: int) -> bool:
    """True if all that is as long as a block is accessed in loops over the blocks of a row."""
    run = Run(function, values, 0, 1, inner_turns=max(2, blocks))
    over = {loop for loop, turns in enumerate(run.trips) if turns == blocks > 1}
    places = {(access.root, loop, access.offset) for access in run.accesses for loop in over.intersection(access.loops)}
    moving = {loop for (_, loop), count in Counter(place[:2] for place in places).items() if count > 1}
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


def room_of(form: Form, request: Request) -> int | None:
    """Returns the number of programs whose parts of tensors have room; None if nothing limits it.

    Raises:
        PlanError: more were requested, which would write behind a tensor.
    """
    tensors: dict[str, Any] = {name: request.arguments.get(name) for name in form.parts if request.grid is None}
    rooms = {name: value.numel() // form.parts[name] for name, value in tensors.items() if hasattr(value, "numel")}
    wanted = request.num_programs or 1
    for name, most in rooms.items():
        if most < wanted:
            raise PlanError(
                f"{jit_function(request.kernel).__name__}: each program writes a part of {name}, {form.parts[name]} elements "
                f"apart, and it has room for {most}, not {wanted}; plan(...).num_programs is how many there are"
            )
    return min(rooms.values(), default=None)
