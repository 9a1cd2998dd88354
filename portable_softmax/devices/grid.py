"""The grids that a device launches: programs along each axis, and programs or threads of all axes together."""

import os
from collections.abc import Iterator
from math import prod

from portable_softmax.devices.device import Device

Grid = tuple[int, int, int]


def refusal(device: Device, grid: Grid, num_warps: int | None = None, num_ctas: int = 1) -> str | None:
    """Returns which limit of a launch the grid exceeds, with its source; None if it exceeds none.

    Args:
        device: the target; it need not be here.
        grid: numbers of programs.
        num_warps: warps of a program; None if they are not known, which leaves the threads out.
        num_ctas: blocks of a program, all along x.
    """
    variable = device.vendor.more_programs
    is_lifted = variable is not None and os.environ.get(variable, "0") != "0"
    for fact, number, what in _numbers(device, grid, num_warps, num_ctas):
        most, source = getattr(device.hardware, fact), device.profile.origins.get(fact)
        if most is not None and number > most and not (fact == "max_programs" and is_lifted):
            note = f" ({source.title})" if source else ""
            lifted = f", or set {variable}=1" if variable else ""
            grid_has = (
                f"a grid of {' x '.join(map(str, grid))} has {number:,} {what}, and {device.name} launches at most {most:,}"
            )
            return f"{grid_has}{note}; let programs loop over what is left{lifted}"
    return None


def _numbers(device: Device, grid: Grid, num_warps: int | None, num_ctas: int) -> Iterator[tuple[str, int, str]]:
    """Yields the fact that limits a number, the number, and its name."""
    x, y, z = grid
    blocks = "programs" if num_ctas == 1 else f"blocks, {num_ctas} for each program,"
    if device.hardware.max_programs_y_z is None:
        yield "max_programs", prod(grid), "programs"
    else:
        yield "max_programs", x * num_ctas, f"{blocks} along x"
        yield "max_programs_y_z", y, "programs along y"
        yield "max_programs_y_z", z, "programs along z"
    if num_warps and device.hardware.warp_size:
        yield "max_threads", prod(grid) * num_warps * device.hardware.warp_size, "threads"
