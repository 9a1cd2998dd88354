"""Rows that several programs share: which, and how they are cut into parts."""

from collections.abc import Iterator
from dataclasses import replace

from portable_softmax.devices.device import Device
from portable_softmax.planning.holding import SIXTEEN_BITS, held_to_registers, in_pieces
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem

MOST_PARTS = 64  # of a row
IDLE = 1 / 8  # of the warps that a device holds: up to so many leave room for twice as many
MANY = 1 / 2  # beyond so many, parts are wide
MOST_ELEMENTS = 2**20  # of a tile, in any Triton


def in_parts(problem: Problem, device: Device) -> Iterator[Tiling]:
    """Long rows, and rows too few to occupy the device: a tile for each of several programs."""
    policy = device.profile.launch
    if not policy.shared_from_cols or problem.y_dtype == "float64":
        return  # a word of the exchange holds a number of 32 bits
    few = _are_few(problem, device) and problem.n_cols >= policy.shared_from_cols.value
    if few or _is_long(problem, device):
        yield from _parts(problem, device)


def _parts(problem: Problem, device: Device) -> Iterator[Tiling]:
    """Tilings of a row in parts of the preferred size, then in wider ones."""
    most = (device.hardware.max_threads_per_program or 0) // (device.hardware.warp_size or 1)
    tile_cols, num_warps = _part(problem, device)
    for scale in (1, 2, 4):
        parts = -(-problem.width // (scale * tile_cols))
        tiling = Tiling("shared", 1, scale * tile_cols, num_warps and scale * num_warps, 1, parts)
        if parts == 1 or tiling.tile_cols > MOST_ELEMENTS or (tiling.num_warps or 0) > most:
            return
        for each in in_pieces([tiling], problem, device):
            held = list(held_to_registers(each, problem, device))
            yield from held[:1]
            fewer = [_without_a_piece(tighter, problem) for tighter in held[:1]]  # rather than registers for more pieces
            yield from (tighter for tighter in fewer if tighter.parts <= _most_parts(tighter.num_warps or 0, device))
            yield from held[1:]
            yield each
        yield tiling


def _without_a_piece(tiling: Tiling, problem: Problem) -> Tiling:
    """The tiling with less of a row in each of more parts."""
    tile_cols = tiling.tile_cols // tiling.pieces * (tiling.pieces - 1)
    return replace(tiling, tile_cols=tile_cols, pieces=tiling.pieces - 1, parts=-(-problem.width // tile_cols))


def _part(problem: Problem, device: Device) -> tuple[int, int | None]:
    """(columns, warps) of a part: the policy's; wide ones where programs are many, or a row would have too many parts.

    Where rows leave most of the device idle, twice the warps have half as much to do each.
    """
    policy, hardware = device.profile.launch, device.hardware
    tile_cols, num_warps = policy.shared_tile_cols.value, policy.shared_num_warps.value if policy.shared_num_warps else 0
    occupied = _occupied(problem, tile_cols // max(1, num_warps), device)
    num_warps *= 2 if occupied <= IDLE else 1
    wide = policy.shared_wide_cols.value // tile_cols if policy.shared_wide_cols else 1
    scale = wide if occupied > MANY else 1
    while problem.width > scale * tile_cols * _most_parts(scale * num_warps, device):
        scale = max(2 * scale, wide)
    most_warps = (hardware.max_threads_per_program or 0) // (hardware.warp_size or 1)
    return scale * tile_cols, min(scale * num_warps, most_warps) or None


def _most_parts(num_warps: int, device: Device) -> int:
    """Parts of a row, as each thread of a program looks at one."""
    return min(MOST_PARTS, num_warps * (device.hardware.warp_size or 1) or MOST_PARTS)


def _are_few(problem: Problem, device: Device) -> bool:
    return problem.n_rows <= (device.hardware.multiprocessor_count or 1) and not problem.batch_invariant


def _occupied(problem: Problem, warp_elements: int, device: Device) -> float:
    """The part of the device's warps that rows take with so many elements for each; all of them where rows may be any."""
    most = (device.hardware.multiprocessor_count or 0) * (device.hardware.max_warps_per_multiprocessor or 0)
    if problem.batch_invariant or not most:
        return 1.0
    return -(-problem.n_rows * problem.width // warp_elements) / most


def _is_long(problem: Problem, device: Device) -> bool:
    """Whether a row in one tile leaves too few registers to work on several at once.

    Operands of a gradient take twice as many, those of 16-bit types more for what is read. Source: sweeps on one H200, Triton
    3.6.0, 2026-11-21, in GB/s, in a tile and shared: float32 of 20000 columns 4120 and 4097, of 24576 3240 (alone on its
    multiprocessor) and 4098, of 32768 4195 and 4154, its gradient of 12672 4152 and 4167, of 16384 4192 and 4208; bfloat16 of
    24576 columns 4069 and 4024, of 32768 3211 and 4030, its gradient of 12672 3964 and 3833, of 16384 3836 and 3899.
    """
    limit = device.profile.launch.max_tile_cols.value
    if problem.backward:
        return problem.n_cols > limit * 7 // 16
    if problem.y_dtype in SIXTEEN_BITS:
        return problem.n_cols > limit * 3 // 4
    return problem.n_cols > limit * 5 // 8 and problem.n_cols != limit
