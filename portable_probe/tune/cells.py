"""Cells of a tuning run: shapes by class on a geometric grid of lengths, some of them held out of the choice."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import Step
from portable_softmax.planning.lines import lines_of
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.request import problem_of

if TYPE_CHECKING:
    import torch

LOAD, FEW_LOAD = 64, 4  # elements for each thread that the device holds at once; a few rows leave it idle
BETWEEN_LOADS = 16
ELEMENTS = 2**24  # where the device has no threads to count
HEADS, BATCH = 16, 4
INNER, ODD_INNER = 128, 49  # neighbouring rows

# Lengths that are tuned, and those that are held out.
GRID: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "short": ((8, 32, 128, 512), (16, 64, 256)),
    "row": ((1024, 4096, 16384), (2048, 6144)),
    "long": ((32768, 65536, 262144), (49152, 151936)),
    "few": ((16384, 65536, 262144), (32768, 131072)),
    "unaligned": (
        (3, 9, 33, 99, 201, 401, 801, 1601, 6401, 25601, 102401),
        (5, 17, 65, 151, 301, 601, 1201, 3201, 12801, 50257),
    ),
    "heads": ((32, 64, 128), (48, 96)),
    "across": ((16, 128, 1024, 8192, 65536), (48, 400, 3000, 20000)),
    "across odd": ((16, 256, 4096), (64, 1000)),
    "transposed": ((64, 512, 4096, 32768), (200, 1536, 12288)),
    "shards": ((8192, 65536), (37984,)),
}
CLASSES = tuple(GRID)
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class Cell:
    """A softmax, or its gradient, that launches are timed on.

    Args:
        kind: one of CLASSES.
        n_rows, n_cols: number of rows and their length.
        dtype: of all operands.
        backward: the gradient.
        step: of rows that are sharded over devices; None for the whole softmax.
        held_out: it has no say in what is chosen.
    """

    kind: str
    n_rows: int
    n_cols: int
    dtype: str
    backward: bool = False
    step: Step | None = None
    held_out: bool = False

    def __str__(self) -> str:
        direction = "backward" if self.backward else "forward"
        step = f" {self.step}" if self.step else ""
        return f"{self.kind}{step} {self.n_rows} x {self.n_cols} {self.dtype} {direction}"

    @property
    def bytes_moved(self) -> int:
        """Returns the bytes of all operands: each is read or written once."""
        operands = (3 if self.backward else 2) - (1 if self.step == "reduce" else 0)
        return operands * self.n_rows * self.n_cols * (4 if self.dtype == "float32" else 2)


def cells_of(device: Device, classes: tuple[str, ...] = CLASSES) -> list[Cell]:
    """Returns the cells of classes that fill the device, and that it takes as they lie."""
    threads = threads_of(device)
    found = []
    for kind in classes:
        elements = (FEW_LOAD if kind == "few" else LOAD) * threads if threads else ELEMENTS
        steps: tuple[Step | None, ...] = ("reduce", "map") if kind == "shards" else (None,)
        for held_out, lengths in enumerate(GRID[kind]):
            shapes = [(rows_of(kind, elements // n_cols), n_cols) for n_cols in lengths]
            found += [
                Cell(kind, *shape, dtype, backward, step, bool(held_out))
                for shape in shapes
                for dtype in DTYPES
                for backward in (False, True)
                for step in steps
            ]
    return [cell for cell in found if problem_on(cell, device)]


def rows_of(kind: str, n_rows: int) -> int:
    """Returns about so many rows, a multiple of those that lie side by side, or as many that they are read in vectors."""
    unit = {"heads": HEADS * BATCH, "across": INNER, "across odd": ODD_INNER, "transposed": 64}.get(kind, 1)
    return max(1, n_rows // unit) * unit


def threads_of(device: Device) -> int | None:
    """Returns the threads that the device holds at once; None if it has none, or their number is unknown."""
    hardware = device.hardware
    if not hardware.multiprocessor_count or not hardware.max_warps_per_multiprocessor or not hardware.warp_size:
        return None
    return hardware.multiprocessor_count * hardware.max_warps_per_multiprocessor * hardware.warp_size


def tensors_of(cell: Cell, where: str) -> tuple[tuple["torch.Tensor", ...], int]:
    """Allocates the operands in the kernel's order, not filled, and returns them and the axis of the softmax.

    They are (y, x) or (dx, dy, y); a step that reduces has no result among them. x or dy is the one that lies otherwise.
    """
    import torch

    like = functools.partial(torch.empty, dtype=getattr(torch, cell.dtype), device=where)
    dim = 1
    shape: tuple[int, ...] = (cell.n_rows, cell.n_cols)
    if cell.kind == "heads":
        dim, places = 3, cell.n_rows // (BATCH * HEADS)
        shape = (BATCH, HEADS, places, cell.n_cols)
        given = like(BATCH, places, HEADS, cell.n_cols).transpose(1, 2)
    elif cell.kind.startswith("across"):
        inner = ODD_INNER if cell.kind == "across odd" else INNER
        shape = (cell.n_rows // inner, cell.n_cols, inner)
        given = like(shape)
    elif cell.kind == "transposed":
        given = like(cell.n_cols, cell.n_rows).t()
    else:
        given = like(shape)
    more = (like(shape),) if cell.backward else ()
    return ((given, *more) if cell.step == "reduce" else (like(shape), given, *more)), dim


@functools.lru_cache(maxsize=4096)
def problem_on(cell: Cell, device: Device) -> Problem | None:
    """Returns the cell's problem as a device is given it; None if it takes such operands only as copies."""
    operands, dim = tensors_of(cell, "meta")
    read = operands * 2 if len(operands) == 1 else operands
    lines = lines_of(operands[0].shape, dim, [each.stride() for each in read], device.vendor.scattered_rows)
    if lines is None or cell.dtype not in device.profile.dtypes:
        return None
    return problem_of(lines, cell.dtype, cell.dtype, backward=cell.backward, step=cell.step)
