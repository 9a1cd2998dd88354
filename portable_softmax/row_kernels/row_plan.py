"""A launch of a row kernel and the reasons for it."""

import math
from dataclasses import dataclass, field
from typing import Any

from portable_softmax.devices.device import Device
from portable_softmax.planning.cost import Terms
from portable_softmax.planning.plan import Plan
from portable_softmax.row_kernels.decorators import arguments_of, jit_function
from portable_softmax.row_kernels.row_settings import Request, Setting, settings_of


@dataclass(frozen=True)
class RowPlan(Plan):
    """Launch of a row kernel, `kernel[grid](*arguments, **meta)`, and the reasons for it."""

    kernel: str
    size: tuple[int, int]  # rows and elements of a row
    device: str
    setting: Setting = field(repr=False)
    meta: dict[str, Any]  # constexprs and options, passed or computed
    grid: tuple[int, ...]
    terms: Terms | None = None  # expected microseconds by cause; None if the profile has no cost
    reasons: tuple[str, ...] = ()  # the decisions in order, in sentences

    @property
    def label(self) -> str:
        """Returns what differs from other launches, as arguments."""
        return ", ".join([str(self.setting), *(f"num_programs={programs}" for programs in self.grid if len(self.grid) < 2)])

    def __str__(self) -> str:
        grid = {"grid": self.grid} if len(self.grid) > 1 else {"num_programs": self.num_programs}
        launch = ", ".join(f"{name} {value}" for name, value in {**grid, **self.meta}.items())
        text = f"{self.kernel} of {' x '.join(map(str, self.size))} on {self.device}: {launch}"
        return self.printed(text, self.terms, self.reasons)


def interpreted_plan(request: Request, device: Device) -> RowPlan:
    """Returns the launch in Triton's interpreter: by its grid, as `kernel[grid]`, else by one program for each row."""
    setting, name = settings_of(request, None)[0], jit_function(request.kernel).__name__
    meta = request.meta | setting.config.all_kwargs()
    grid: tuple[int, ...] = (request.num_programs or request.rows,)
    if request.grid is not None:
        grid = request.grid_of(arguments_of(request.kernel, setting.config, request.arguments | meta))
    programs = math.prod(grid) if request.rows else 0
    return RowPlan(name, (request.rows, request.cols), device.name, setting, meta, grid, num_programs=programs)
