"""A launch of a row kernel and the reasons for it, and launches that are compared."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.backends.machine_code import Loop
from portable_softmax.devices.device import Device
from portable_softmax.planning.cost import Terms
from portable_softmax.planning.plan import printed
from portable_softmax.row_kernels import facts
from portable_softmax.row_kernels.decorators import constants_in, jit_function
from portable_softmax.row_kernels.row_settings import Request, Setting, settings_of
from portable_softmax.row_kernels.ttir import Function


@dataclass(frozen=True)
class RowPlan:
    """A launch of a row kernel, and the reasons for it.

    Args:
        kernel: its name.
        size: rows and elements of a row.
        device: name of the device.
        num_programs: of the grid; 0 where there are no rows, and nothing is launched.
        meta: constexprs and options, passed or computed: the launch is `kernel[grid](*arguments, **meta)`.
        grid: its programs along each axis.
        resources, occupancy: of a program, and how many fit; None in the interpreter.
        terms: expected microseconds, by cause; None in the interpreter, or if no bandwidth is known.
        reasons: sentences.
        warnings: sentences about what is wrong with the kernel at this size.
        config: Triton's Config that was selected.
        form: in which the kernel goes over rows.
    """

    kernel: str
    size: tuple[int, int]
    device: str
    num_programs: int
    meta: dict[str, Any]
    grid: tuple[int, ...] = ()
    resources: KernelResources | None = None
    occupancy: Occupancy | None = None
    terms: Terms | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    config: Any = field(default=None, repr=False)
    form: facts.Form = field(default=facts.Form(True), repr=False)

    def __str__(self) -> str:
        grid = {"grid": self.grid} if len(self.grid) > 1 else {"num_programs": self.num_programs}
        launch = ", ".join(f"{name} {value}" for name, value in {**grid, **self.meta}.items())
        launch = f"{self.kernel} of {' x '.join(map(str, self.size))} on {self.device}: {launch}"
        return printed(launch, self, (*self.reasons, *self.warnings))


class Used(NamedTuple):
    """Resources that a program of a setting uses, or is expected to, the values of its constexprs, and its machine code."""

    setting: Setting
    resources: KernelResources
    occupancy: Occupancy
    constants: dict[str, Any]
    loops: Sequence[Loop]
    function: Function


class Costed(NamedTuple):
    """A launch, in the order of choice: first those that do not spill, then the fastest, then the simpler.

    Where the memory's bandwidth is unknown the time is the number of a row's blocks, and there are no terms.
    """

    spills: bool
    us: float
    num_programs: int
    used: Used
    terms: Terms | None

    def kind(self, rows: int) -> tuple[Setting, bool]:
        """Returns what launches of other numbers of rows have in common with it."""
        return self.used.setting, self.num_programs >= rows


def interpreted_plan(request: Request, device: Device) -> RowPlan:
    """Returns the launch in Triton's interpreter: by its grid, as `kernel[grid]`, else by one program for each row."""
    config, name = settings_of(request, None)[0].config, jit_function(request.kernel).__name__
    constants = request.meta | config.all_kwargs()
    if request.grid is None:
        grid: tuple[int, ...] = (request.num_programs or request.rows,)
    else:
        grid = request.grid_of(constants_in(request.kernel, config, request.arguments | constants))
    programs = math.prod(grid) if request.rows else 0
    return RowPlan(name, (request.rows, request.cols), device.name, programs, constants, grid, config=config)
