"""Problems with timed launches: shapes by class, of two types and both directions."""

import functools
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from portable_softmax.devices.device import Device
from portable_softmax.planning.lines import lines_of
from portable_softmax.planning.problem import Problem, problem_of

FULL = 2**24  # elements
# Lengths of rows by class, and elements of all rows. As many rows are side by side as "across" says.
SHAPES: dict[tuple[str, int], tuple[int, ...]] = {
    ("short", FULL): (16, 64, 256, 512),
    ("row", FULL): (1024, 2048, 4096, 8192, 12672, 16384),
    ("row", FULL // 8): (256, 1024, 4096, 8192),
    ("long", FULL): (32768, 50304, 131072, 262144),
    ("few", 2**20): (8192, 32768, 131072),
    ("few", 2**17): (1024, 131072),
    ("unaligned", FULL): (33, 201, 781, 1601, 6401, 50257),
    ("unaligned", 2**19): (50257,),
    ("across 128", FULL): (16, 128, 1024, 8192, 65536),
    ("across 49", FULL): (16, 256, 4096),
    ("across 3", FULL): (300,),
}


@dataclass(frozen=True)
class Cell:
    """A softmax, or its gradient: its class, the number of rows and their length, and the type of all operands."""

    kind: str
    n_rows: int
    n_cols: int
    dtype: str
    backward: bool = False

    @property
    def unit(self) -> int:
        """Returns how many rows a matrix has, if rows are side by side; else 1."""
        layout, _, rows = self.kind.partition(" ")
        return int(rows) if layout == "across" else 1

    def __str__(self) -> str:
        return f"{self.kind} {self.n_rows} x {self.n_cols} {self.dtype} {'backward' if self.backward else 'forward'}"


def cells_of(device: Device) -> list[Cell]:
    """Returns the cells that the device takes without copies."""
    cells = []
    for (kind, elements), lengths in SHAPES.items():
        for n_cols, dtype, backward in product(lengths, ("float32", "bfloat16"), (False, True)):
            cell = Cell(kind, 1, n_cols, dtype, backward)
            cells.append(replace(cell, n_rows=max(1, elements // n_cols // cell.unit) * cell.unit))
    return [cell for cell in cells if problem_on(cell, device)]


def tensors_of(cell: Cell, where: str) -> tuple[tuple[Any, ...], int]:
    """Allocates the operands in the kernel's order, (y, x) or (dx, dy, y), not filled; returns them and the softmax's axis."""
    import torch

    like = functools.partial(torch.empty, dtype=getattr(torch, cell.dtype), device=where)
    shape: tuple[int, ...] = (cell.n_rows, cell.n_cols)
    if cell.kind.startswith("across"):
        shape = (cell.n_rows // cell.unit, cell.n_cols, cell.unit)
    return tuple(like(shape) for _ in range(2 + cell.backward)), 1


@functools.lru_cache(maxsize=4096)
def problem_on(cell: Cell, device: Device) -> Problem | None:
    """Returns the cell's problem on a device; None if that takes such operands only as copies."""
    operands, dim = tensors_of(cell, "meta")
    lines = lines_of(operands[0].shape, dim, [operand.stride() for operand in operands], device.vendor.scattered_rows)
    if lines is None:
        return None
    return problem_of(lines, cell.dtype, cell.dtype, backward=cell.backward)
