"""Numbers that a launch is computed with, of the rows in a profile that take a problem."""

from dataclasses import dataclass
from typing import Any

import msgspec

from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import NumberRow
from portable_softmax.planning.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Numbers that no fact of the hardware tells; device_profiles/README.md explains each. None where a profile gives none."""

    unaligned_cols: int | None = None
    paired_cols: int | None = None
    words_forward: float = 0
    words_backward: float = 0
    short_warps: int | None = None
    elements_per_thread: int = 0
    bytes_per_block: int = 0
    row_share: float = 0
    beside_share: float = 0
    matrix_bytes: int | None = None
    elements_per_split: int = 0
    split_warps: int | None = None
    split_registers: int | None = None
    fewest_programs: int = 0
    numbers_per_thread: int = 0
    held_across: int | None = None
    spilled_bytes: int = 0
    tile_elements: int | None = None
    stream_elements: int | None = None
    registers: list[int] | None = None


def numbers_of(problem: Problem, device: Device) -> tuple[Numbers, list[NumberRow]]:
    """Returns a problem's numbers, each from the first row that takes the problem and gives it; and these rows."""
    load = load_of(problem, device)
    found: dict[str, Any] = {}
    rows: list[NumberRow] = []
    for row in device.profile.launch.numbers:
        given = {key: value for key, value in row.given.items() if key not in found}
        if given and takes(row, problem, load):
            found |= given
            rows.append(row)
    return Numbers(**found), rows


def takes(row: NumberRow, problem: Problem, load: float | None) -> bool:
    """Tells whether all of a row's conditions hold; one on a load that is unknown does not."""
    said = {
        "direction": problem.direction,
        "element_bytes": problem.element_bytes,
        "access": problem.access,
        "layout": problem.layout,
        "scores": bool(problem.scores),
    }
    if any(getattr(row, key) not in (msgspec.UNSET, value) for key, value in said.items()):
        return False
    if not (row.from_cols or 0) <= problem.n_cols <= (row.to_cols or problem.n_cols):
        return False
    if load is None:
        return not row.from_load and not row.to_load
    return (row.from_load or 0) <= load <= (row.to_load or load)


def load_of(problem: Problem, device: Device) -> float | None:
    """Returns elements of all rows for each thread that the device holds at once; infinite where rows may be any number.

    None where the device has no such threads, or their number is unknown.
    """
    hardware = device.hardware
    if not hardware.multiprocessor_count or not hardware.max_warps_per_multiprocessor or not hardware.warp_size:
        return None
    threads = hardware.multiprocessor_count * hardware.max_warps_per_multiprocessor * hardware.warp_size
    return float("inf") if problem.batch_invariant else problem.n_rows * problem.n_cols / threads
