"""Plans for new numbers of rows, by one plan for their bucket, without a trace of their own."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from portable_softmax.errors import PortableSoftmaxError
from portable_softmax.planning.operands import numbers_of, representative
from portable_softmax.row_kernels.row_choice import Choice
from portable_softmax.row_kernels.row_plan import Request, RowPlan

ALL_ROWS = 0  # in a grid, in place of the number of rows
MAX_KEPT = 4096


class Kept(dict[Any, Any]):
    """Values by key, all of which are dropped where there would be more than MAX_KEPT."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if len(self) >= MAX_KEPT:
            self.clear()
        super().__setitem__(key, value)


def plan_by_bucket(plans: dict[Any, RowPlan | None], request: Request, choice: Choice) -> RowPlan:
    """Returns the plan of a request; after the first request of a bucket, the plan for all of the bucket, if there is one.

    `plans` keeps the plans of buckets, for equal other integers, and layouts of tensors that grow alike. A request that is
    refused is traced at every call; without a plan of its bucket, a kind of call that is launched is traced once.
    """
    rows, name_of_rows = request.rows, request.names[0]
    if not (name_of_rows and rows):
        return choice.plan(request)
    tensors = [(name, value) for name, value in request.arguments.items() if isinstance(value, torch.Tensor) and value.dim()]
    layouts = list[Any]((name, value.shape[0], 0, value.shape[1:], value.stride()) for name, value in tensors)
    for at, (name, size, _, *others) in enumerate(layouts):
        if size % rows == 0:  # a first size that grows with the rows
            layouts[at] = name, 0, size // rows, *others
    integers = [pair for pair in request.arguments.items() if isinstance(pair[1], int) and pair[0] != name_of_rows]
    key = choice, choice.measurement, representative(rows), *integers, *layouts
    if key not in plans:
        planned = choice.plan(request)  # raises its own error
        plans[key] = _plan_of_bucket(request, choice, layouts)
        return planned
    if plan := plans[key]:
        grid = tuple({ALL_ROWS: rows}.get(axis, axis) for axis in plan.grid)
        if request.grid is None or request.grid_of(plan.meta) == grid:
            return replace(plan, size=(rows, request.cols), num_programs=math.prod(grid), grid=grid)
    return choice.plan(request)


def _plan_of_bucket(request: Request, choice: Choice, layouts: Sequence[Any]) -> RowPlan | None:
    """Returns the plan for a bucket, with ALL_ROWS in its grid; None if plans of three numbers of rows differ or warn.

    These are the least, the second and the most, with tensors that grow alike: what grows in steps, such as tiles without a
    mask, or is wrong at one of them, differs. What is wrong at others alone is not found.
    """
    (least, _, most), plans = numbers_of(request.rows), list[RowPlan]()
    for rows in (least, min(least + 1, most), most):
        arguments = dict[str, Any](request.arguments) | {str(request.names[0]): rows}
        for name, constant, factor, sizes, strides in layouts:
            shape, dtype = (constant + factor * rows, *sizes), arguments[name].dtype
            arguments[name] = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
        try:
            one = choice.plan(request._replace(arguments=arguments, rows=rows))
        except PortableSoftmaxError:
            return None
        plans.append(replace(one, grid=tuple({rows: ALL_ROWS}.get(axis, axis) for axis in one.grid)))
    first = plans[0]
    is_same = all((one.grid, one.meta, one.warnings) == (first.grid, first.meta, ()) for one in plans)
    return first if is_same else None
