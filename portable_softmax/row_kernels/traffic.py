"""Counts in TTIR what a row, and a program beside its rows, moves and computes."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from portable_softmax.planning.facts import Traffic
from portable_softmax.row_kernels.following import PROGRAM, Run
from portable_softmax.row_kernels.ttir import Function

KNOWN = 16  # the multiple for which Triton checks numbers and addresses
PROGRAMS = 8  # of the launch that is followed


def known_multiple(cols: int, constant: bool) -> int:
    """Returns the elements of which the start of a row is a multiple, as the compiler knows.

    Args:
        cols: elements of a row.
        constant: they are a constexpr. Of a number that is none Triton knows only whether it is a multiple of 16.
    """
    multiple = math.gcd(cols, KNOWN)
    return multiple if constant or multiple == KNOWN else 1


def traffic_of(function: Function, values: Mapping[str, Any], walks: bool, rows: int, cols: int, block: int) -> Traffic:
    """Counts what a row and a program move and compute.

    Args:
        function: the compiled kernel's TTIR.
        values: arguments by name. Numbers may bound its loops; of a tensor no row moves more than its share.
        walks: it loops over rows.
        rows, cols: their number, and that of elements of one.
        block: elements of a block.
    """
    run = Run(function, values, None, PROGRAMS)
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
        of_row, elements, part = (
            in_rows or not walks,
            math.prod(trips) * filled(access.elements),
            (access.root, access.kind == "load"),
        )
        left = share.get(access.root, math.inf) - moved[part] if of_row else math.inf
        now = min(elements, left) if PROGRAM in access.sources else 0
        moved[part] += now
        unit = "row" if of_row else "program"
        counts[unit] += access.size * now
        counts[f"{unit}_operands"] += elements / cols
        counts["again"] += (
            access.size * (elements - now) if of_row and PROGRAM in access.sources and access.kind == "load" else 0
        )
        counts["element"] += access.size * elements if of_row else 0  # bytes, until all are known
    for op, loops in run.work:
        _, trips = around(loops)
        if op.kind == "reduce":
            of_blocks = blocks > 1 and blocks in trips
            counts["block_reductions" if of_blocks else "reductions"] += math.prod(trips) / (blocks if of_blocks else 1)
        else:
            counts["exponents"] += math.prod(trips) * filled(op.elements)
    return Traffic(**counts | {"element": counts["element"] / (counts["row_operands"] * cols or 1) or Traffic().element})
