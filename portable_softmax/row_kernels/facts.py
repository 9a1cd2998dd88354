"""Facts in a kernel's TTIR: rows of a program, bytes that it moves, and offsets that do not fit 32 bits."""

import functools
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from portable_softmax.errors import PlanError
from portable_softmax.planning.facts import Traffic
from portable_softmax.row_kernels.decorators import jit_function
from portable_softmax.row_kernels.following import PROGRAM, Access, Run
from portable_softmax.row_kernels.row_settings import Request
from portable_softmax.row_kernels.ttir import Function, Op, parsed_of

ROWS, PROGRAMS = (5, 40, 300, 800), (1, 2, 3, 7)  # small launches that are followed
TURNS = 64  # of a loop over rows
BLOCKS = 3  # of a row, where its length is no constexpr
Observe = Callable[..., Sequence[Sequence[Access]]]  # of rows, programs, and as `followed`
KNOWN = 16  # the multiple for which Triton checks numbers and addresses
SIGNS = {"arith.muli": "*", "arith.addi": "+", "arith.subi": "-", "arith.shli": "<<"}
WIDENED = "tt.splat", "tt.broadcast", "tt.expand_dims", "arith.extsi"


class Form(NamedTuple):
    """Form in which a kernel goes over rows.

    Args:
        walks: any number of programs along axis 0 is right, as together they take every row once.
        in_blocks: a program loops over blocks of a row, so that a block may be shorter than a row.
        what: which rows a program takes, if it does not walk.
        grid: such a kernel's grid, of {rows}, {cols} and {block}; "" if it is unknown.
        parts: parameters of which every program writes its own part, and the elements of a part, and ahead of the first.
        decisive: parameters whose values all of this depends on.
        shared: a parameter that programs share, so that one may do what several do.
    """

    walks: bool
    in_blocks: bool = False
    what: str = ""
    grid: str = ""
    parts: Mapping[str, tuple[int, int]] = {}
    decisive: frozenset[str] = frozenset()
    shared: str = ""


def form_of(function: Function, arguments: Mapping[str, Any], rows: str | None, cols: str, block: int) -> Form:
    """Returns the form of a kernel whose rows have several blocks of so many elements, unless that is impossible.

    `rows` and `cols` name the parameters that are the numbers of rows, if one is, and of elements of a row.
    """
    form = of_launches(functools.partial(followed, function, arguments, rows), arguments[cols])
    run = Run(function, arguments, 0, 1, 2, 2)
    strides = frozenset().union(*(access.sources for access in run.accesses if access.root in form.parts))
    decisive = frozenset(name for name in run.decisive | strides if isinstance(arguments.get(name), int))
    n_cols = max(arguments[cols], BLOCKS * block) if cols in function.parameters.values() else arguments[cols]
    in_blocks = _in_blocks(function, {**arguments, cols: n_cols}, -(-n_cols // block), block)
    return form._replace(in_blocks=in_blocks, decisive=decisive)


def followed(
    function: Function, arguments: Mapping[str, Any], name: str | None, rows: int, programs: int, first: int = 0,
    most: int = PROGRAMS[-1],
) -> Sequence[Sequence[Access]]:  # fmt: skip
    """Follows some programs of a launch, of a single one the first turns alone; `name` is that of the number of rows."""
    sized, turns = {**arguments, **({name: rows} if name else {})}, (1, 1) if most == 1 else (TURNS, 2)
    runs = [Run(function, sized, program, programs, *turns) for program in range(first, min(programs, first + most))]
    return [[one._replace(turns=run.turns_of(one)) for one in run.accesses] for run in runs]


def accesses_of(compiled: Any, jit: Any, arguments: Mapping[str, Any]) -> list[Access]:
    """Returns the accesses of a compiled kernel's first program, in the first turns of loops."""
    return Run(parsed_of(compiled, jit), arguments, 0, 1).accesses


def of_launches(observe: Observe, cols: int) -> Form:
    """Follows small launches, and returns the form that they show."""
    for rows in ROWS:
        launched = [observe(rows, programs) for programs in PROGRAMS]
        if axes := sorted({access.offset or 0 for access in launched[0][0] if access.kind == "axis"}):
            what = f"it reads tl.program_id({axes[0]}), so its grid has {axes[-1] + 1} axes"
            return Form(False, what=what, grid=f"({{rows}}{', ...' * axes[-1]})")
        counted = [Counter(access[:3] for one in of for access in one) for of in launched]
        odd = {root for count in counted for (root, *_), _ in count.items() ^ counted[0].items()}
        stored = {root for count in counted for root, kind, _ in count if kind != "load"}
        alone, shared, third = (Counter(access.root for access in of[-1]) for of in launched[:3])
        parts = {root: _part(root, launched) for root in odd}
        if unknown := [root for root, part in parts.items() if part is None and root in stored]:
            if alone.keys() - odd:
                return Form(False, what=f"which part of {' and '.join(sorted(unknown))} a program writes is unknown")
            break
        for root in sorted(alone.keys() - odd, key=lambda root: (root not in stored, root)):
            if alone[root] > shared[root] and third[root]:  # three programs share it
                return Form(True, parts={part: of for part, of in parts.items() if of and of[0]}, shared=root)
    what, grid = _rows_of(observe(ROWS[-2], 2), observe(ROWS[-2], 3), cols)
    return Form(False, what=what, grid=grid)


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


def _rows_of(programs: Sequence[Sequence[Access]], of_more: Sequence[Sequence[Access]], cols: int) -> tuple[str, str]:
    """Returns a sentence about the rows that programs take, of two and of more, where their number matters, and their grid."""
    if programs[0] == programs[1] and all(access.offset is not None for access in programs[0]):
        return ("all its programs do the same", "(1,)") if programs[0] else ("its programs access no row of such a launch", "")
    places = {access.root: [_starts(accesses, access.root) for accesses in programs] for access in programs[0]}
    moving = {root: one for root, one in places.items() if root and all(one) and one[0] != one[1] and -1 not in one[0] + one[1]}
    if programs[0] != of_more[0] or not any(access.kind != "load" and access.root in moving for access in programs[0]):
        return "which rows a program takes is not a loop from tl.program_id(0) by tl.num_programs(0)", ""
    starts = max(moving.values(), key=lambda starts: (starts[1][0] - starts[0][0], len(starts[0])))
    first, second = (sorted({at // max(1, cols) for at in start}) for start in starts)
    rows, step = second[0] - first[0], first[1] - first[0] if len(first) > 1 else 0
    if step > max(1, rows):
        return f"its loop over rows steps by {step}, whatever tl.num_programs(0) is", f"({step},)"
    if rows == 0:
        return "a program takes a part of a row", "({rows} * triton.cdiv({cols}, {block}),)"
    several = f"a {'chunk' if step else 'tile'} of {rows} rows", f"(triton.cdiv({{rows}}, {rows}),)"
    what, grid = several if step or rows > 1 else ("one row", "({rows},)")
    return f"a program takes {what}", grid


def _in_blocks(function: Function, values: Mapping[str, Any], blocks: int, block: int) -> bool:
    """True if all that is as long as a block is accessed in loops over the blocks of a row."""
    run = Run(function, values, 0, 1, inner_turns=max(2, blocks))
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
        meta = {role: f"meta[{parameter!r}]" for role, parameter in zip(("rows", "cols", "block"), request.names, strict=True)}
        such_as = f", such as grid=lambda meta: {form.grid.format(**meta)}" if form.grid else ""
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


def check_rows(form: Form, request: Request, observe: Observe, programs: int) -> None:
    """Raises PlanError if a computed grid of so many programs leaves rows out, by the turns of their loops over rows."""

    def turns(rows: int, count: int, program: int = 0) -> int:
        return sum(one.turns for one in observe(rows, count, program, 1)[0] if one.root == form.shared)

    rows, of_one = request.rows, turns(ROWS[0], max(ROWS[0], request.rows)) or 1
    several = max(1, -(-turns(rows, 1) // of_one))  # programs, which take one turn each
    unlike = [count for count in {3, programs, several} - {1} if -(-turns(rows, count) // of_one) != -(-several // count)]
    last, idle = (len(observe(rows, several + more, several - 1 + more, 1)[0]) for more in (0, 1))
    if unlike or last <= idle or several < 3 < ROWS[1] < rows:
        check_form(Form(False, what=f"it goes over {rows:,} rows otherwise than over {ROWS[0]}"), request)


def behind(request: Request, block: int, accesses: Callable[[], Sequence[Access]]) -> PlanError | None:
    """Returns the error of a computed block that reaches behind a row without a mask; None if there is none."""
    name, (_, cols, size) = jit_function(request.kernel).__name__, request.names
    for one in accesses() if request.cols % block and size not in request.meta else ():
        if one.elements >= block and not one.masked:
            words = f"{name}: a {one.kind} of {one.root} has no mask, and the computed {size}={block} does not divide a row"
            return PlanError(f"{words} of {request.cols} elements; add mask=cols < {cols}, or pass {size}=")
    return None


def traffic_of(function: Function, values: Mapping[str, Any], walks: bool, rows: int, cols: int, block: int) -> Traffic:
    """Counts what a row of so many elements, in such blocks, and a program beside its rows move and compute.

    Values of arguments may bound loops, and of a tensor no row moves more than its share. The kernel walks over rows or not.
    """
    run = Run(function, values, None, PROGRAMS[-1])
    share = {name: value.numel() / max(1, rows) for name, value in values.items() if hasattr(value, "numel")}
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


def warnings_of(compiled: Any, jit: Any, values: Mapping[str, Any], programs: int | None) -> list[str]:
    """Returns what is wrong with a compiled kernel at its sizes, or needed beside it; arguments as of `overflows`."""
    scratch = getattr(compiled.metadata, "global_scratch_size", 0)
    needed = f"a program needs {scratch} bytes of global memory for itself: triton.set_allocator(...) gives them"
    return [*overflows(parsed_of(compiled, jit), values, programs), *[needed] * bool(scratch)]


def overflows(function: Function, arguments: Mapping[str, Any], programs: int | None) -> Iterator[str]:
    """Yields sentences about offsets of a launch that do not fit their 32 bits; `programs` along axis 0, None if unknown."""
    count = programs or 1
    ends = [Run(function, arguments, (count - 1) * last, count, last=last) for last in (False, True)]
    ops = function.every if any(end.large for end in ends) else []
    made = {name: op for op in ops for name in op.results} | function.parameters  # whose names Triton 3.5 keeps in its IR
    addresses, seen = set[str](), set()  # values that offsets of pointers are computed from
    for op in reversed(ops):
        if op.name in ("tt.addptr", "tt.descriptor_load", "tt.descriptor_store") or addresses.intersection(op.results):
            addresses.update(op.operands[op.name == "tt.addptr" :])
    for run, (op, reached) in [(end, large) for end in ends for large in end.large]:
        words = f"{_word(op.operands[0], made)} {SIGNS.get(op.name, op.name)} {_word(op.operands[1], made)}"
        if addresses.intersection(op.results) and words not in seen:
            seen.add(words)
            wide = next((name for name in op.operands if run.known[name][0]), op.operands[0])
            yield f"{words} reaches {reached:,} in 32 bits; cast {_word(wide, made)} to tl.int64"


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
