"""A launch of a row kernel and the reasons for it, and candidates that are compared."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.backends.machine_code import Loop
from portable_softmax.devices.device import Device
from portable_softmax.planning.cost import Terms
from portable_softmax.planning.plan import Plan
from portable_softmax.row_kernels import forms
from portable_softmax.row_kernels.decorators import arguments_of, jit_function
from portable_softmax.row_kernels.row_settings import Request, Setting, settings_of
from portable_softmax.row_kernels.ttir import Function


@dataclass(frozen=True)
class RowPlan(Plan):
    """Launch of a row kernel, `kernel[grid](*arguments, **meta)`, and the reasons for it."""

    kernel: str
    size: tuple[int, int]  # rows and elements of a row
    device: str
    meta: dict[str, Any]  # constexprs and options, passed or computed
    grid: tuple[int, ...]
    config: Any = field(repr=False)  # Triton's Config that was selected
    terms: Terms | None = None  # expected microseconds by cause; None if the profile has no cost
    reasons: tuple[str, ...] = ()  # the decisions in order, in sentences
    form: forms.Form = field(default=forms.Form(True), repr=False)

    def __str__(self) -> str:
        grid = {"grid": self.grid} if len(self.grid) > 1 else {"num_programs": self.num_programs}
        launch = ", ".join(f"{name} {value}" for name, value in {**grid, **self.meta}.items())
        return self.printed(
            f"{self.kernel} of {' x '.join(map(str, self.size))} on {self.device}: {launch}", self.terms, self.reasons
        )


def interpreted_plan(request: Request, device: Device) -> RowPlan:
    """Returns the launch in Triton's interpreter: by its grid, as `kernel[grid]`, else by one program for each row."""
    config, name = settings_of(request, None)[0].config, jit_function(request.kernel).__name__
    constants = request.meta | config.all_kwargs()
    grid: tuple[int, ...] = (request.num_programs or request.rows,)
    if request.grid is not None:
        grid = request.grid_of(arguments_of(request.kernel, config, request.arguments | constants))
    programs = math.prod(grid) if request.rows else 0
    return RowPlan(name, (request.rows, request.cols), device.name, constants, grid, config, num_programs=programs)


class Candidate(NamedTuple):
    """What a program of a setting uses, or is expected to, and its launch for a range of numbers of rows."""

    setting: Setting
    resources: KernelResources
    occupancy: Occupancy
    constants: dict[str, Any]  # values of constexprs
    loops: Sequence[Loop]
    function: Function
    is_whole: bool = True  # a program for every row, or as many as are resident
    terms: Terms | None = None
    us: float = 0.0  # the number of a row's blocks where no bandwidth is known

    @property
    def rank(self) -> tuple[bool, float]:
        """Returns a key of compiled candidates: those that spill are last, as they take up to twice their expected time."""
        return bool(self.resources.spilled_bytes_per_thread), self.us

    @property
    def words(self) -> str:
        """Returns what differs from other candidates, as arguments."""
        return f"{self.setting}, {'a program for every row' if self.is_whole else 'resident programs'}"
