"""Rows that several programs share: which, and how they are cut into parts."""

from collections.abc import Iterator

from portable_softmax.device import Device
from portable_softmax.holding import SIXTEEN_BITS, held_to_registers, in_pieces
from portable_softmax.problem import Problem, Tiling, next_power_of_2

MOST_PARTS = 64  # of a row: each lane of a warp looks at one or two
WIDE_PARTS = (2, 3, 4)  # of a 16-bit row
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
        for each in (*in_pieces([tiling], problem, device), tiling):
            yield from held_to_registers(each, problem, device)
            yield each


def _part(problem: Problem, device: Device) -> tuple[int, int | None]:
    """(columns, warps) of a part: wider than preferred, by a power of two, where that would be too many parts.

    Twice the warps where rows leave room. Where they do not, and masks take registers, four warps' columns instead of two's.
    Source: a sweep on one H200, 2026-11-21, in GB/s, in 38 parts and in 19: float32 (512, 151936) 3732 and 3836, bfloat16 3147
    and 3492, (32, 151936) 1599 and 1707.
    """
    tile_cols, num_warps = _preferred(problem, device)
    scale = next_power_of_2(-(-problem.width // (MOST_PARTS * tile_cols)))
    if num_warps is None:
        return scale * tile_cols, None
    if _leaves_room(problem, tile_cols // num_warps, device):
        most = (device.hardware.max_threads_per_program or 0) // (device.hardware.warp_size or 1)
        return scale * tile_cols, min(2 * scale * num_warps, most)
    if scale == 2 and num_warps == 1 and problem.width % (scale * tile_cols):
        scale = 4
    return scale * tile_cols, scale * num_warps


def _preferred(problem: Problem, device: Device) -> tuple[int, int | None]:
    """(columns, warps) of a part: the policy's; where rows are many, what moves more bytes for each word that is exchanged.

    Source: sweeps on one H200, Triton 3.6.0, 2026-11-21, in GB/s, as the policy says and as here: float32 (4096, 65536) 4077
    and 4124, (1024, 262144) 4021 and 4097, but with masks (512, 151936) 3836 and 3714; bfloat16 (8192, 32768) 3912 and 4030,
    (4096, 65536) 3834 and 3924, but (2048, 131072) 3784 and 3679; its gradient of (4096, 20000) 3674 and 3978, but of
    (4096, 32768) 4009 and 3873.
    """
    policy = device.profile.launch
    tile_cols, num_warps = policy.shared_tile_cols.value, policy.shared_num_warps.value if policy.shared_num_warps else None
    if not num_warps or _are_few(problem, device):
        return tile_cols, num_warps
    wider, more_warps, padded = 1, 1, bool(problem.width % tile_cols)
    if problem.backward:
        wider, more_warps = (4, 4) if padded and not problem.ragged else (1, 1)
    elif problem.y_dtype in SIXTEEN_BITS:
        wider, more_warps = (8, 4) if problem.width in [8 * tile_cols * parts for parts in WIDE_PARTS] else (1, 1)
    elif not padded or problem.width <= MOST_PARTS * tile_cols:
        wider = 2
    return wider * tile_cols, more_warps * num_warps


def _are_few(problem: Problem, device: Device) -> bool:
    return problem.n_rows <= (device.hardware.multiprocessor_count or 1) and not problem.batch_invariant


def _leaves_room(problem: Problem, warp_elements: int, device: Device) -> bool:
    """Whether its rows occupy at most an eighth of the warps that the device holds; twice as many have less to do each.

    Source: a sweep on one H200, 2026-11-21: float32 (32, 32000) 1008 GB/s so, 920 otherwise; bfloat16 (16, 128256) 943 and 860.
    A single warp that was not held to few registers was as fast there (1008, 947).
    """
    warps = -(-problem.n_rows * problem.width // warp_elements)
    most = (device.hardware.multiprocessor_count or 0) * (device.hardware.max_warps_per_multiprocessor or 0)
    return not problem.batch_invariant and 8 * warps <= most


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
