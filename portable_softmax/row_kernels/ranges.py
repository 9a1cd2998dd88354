"""Launches of new numbers of rows by the plans of the ends of their range, without traces of their own."""

import math
from dataclasses import replace
from typing import Any

import torch

from portable_softmax.errors import PortableSoftmaxError
from portable_softmax.planning.operands import representative
from portable_softmax.row_kernels.row_choice import Choice
from portable_softmax.row_kernels.row_plan import Candidate, RowPlan
from portable_softmax.row_kernels.row_settings import Request

ROWS = 0  # in a grid, in place of the number of rows
MAX_KEPT = 4096


class Ranges:
    """Plans of ranges of numbers of rows, for equal other numbers, and layouts of tensors that grow alike."""

    def __init__(self) -> None:
        self._seen: set[Any] = set()  # ranges of one request so far
        self._plans: dict[Any, RowPlan | None] = {}

    def plan(self, request: Request, choice: Choice) -> RowPlan:
        """Returns the plan of a request: from the second one of a range on that of all the range, if there is one."""
        numbers = [(name, value) for name, value in request.arguments.items() if isinstance(value, int)]
        others = tuple(pair for pair in numbers if pair[0] != request.names[0])
        best = choice.ranked(request)[0]  # numbers of a range may have several
        key = choice, representative(request.rows), others, layouts_of(request), best.setting, best.is_whole
        if key not in self._seen:
            if len(self._seen) >= MAX_KEPT:
                self._seen, self._plans = set(), {}
            self._seen.add(key)
            return choice.plan(request)
        if key not in self._plans:
            self._plans[key] = plan_of_range(request, choice, best)
        if (plan := self._plans[key]) is None:
            return choice.plan(request)
        grid = tuple({ROWS: request.rows}.get(axis, axis) for axis in plan.grid)
        if request.grid is not None and request.grid_of(plan.meta) != grid:
            return choice.plan(request)
        return replace(plan, size=(request.rows, request.cols), num_programs=math.prod(grid), grid=grid)


def layouts_of(request: Request) -> tuple[Any, ...]:
    """Returns the layouts of a request's tensors; a first size that is a multiple of the rows is its factor."""
    layouts = list[Any]()
    for name, value in request.arguments.items():
        if isinstance(value, torch.Tensor) and value.dim():
            constant, factor = value.shape[0], 0
            if constant % request.rows == 0:
                constant, factor = 0, constant // request.rows
            layouts.append((name, constant, factor, value.shape[1:], value.stride()))
    return tuple(layouts)


def plan_of_range(request: Request, choice: Choice, best: Candidate) -> RowPlan | None:
    """Returns a candidate's plan for a range of rows, with ROWS in its grid; None if it is not the same throughout.

    It is planned for the least, the second and the most rows, with tensors that grow alike: what grows in steps, such as tiles
    without a mask, or is wrong at one of them, is not the same.
    """
    least, plans = representative(request.rows), list[RowPlan]()
    for rows in (least, least + 1, least + max(1, (1 << least.bit_length() - 1) // 2) - 1):
        arguments = dict[str, Any](request.arguments) | {str(request.names[0]): rows}
        for name, constant, factor, sizes, strides in layouts_of(request):
            shape, dtype = (constant + factor * rows, *sizes), arguments[name].dtype
            arguments[name] = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
        try:
            one = choice.plan(request._replace(arguments=arguments, rows=rows), [best])
        except PortableSoftmaxError:
            return None
        plans.append(replace(one, grid=tuple({rows: ROWS}.get(axis, axis) for axis in one.grid)))
    first = plans[0]
    is_same = all((one.grid, one.meta, one.warnings) == (first.grid, first.meta, ()) for one in plans)
    return first if is_same else None
