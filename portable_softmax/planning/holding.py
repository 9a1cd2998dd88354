"""How a program holds its tile: in pieces, and in how many registers. See pieces.py."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from portable_softmax.devices.device import Device
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem

PIECE_ELEMENTS = 8  # of a piece, that a thread holds: one vector of a 16-bit type, two of float32
BESIDE = 16  # registers of a thread beside those of its elements, at least; twice as many where results are more exact
SIXTEEN_BITS = ("float16", "bfloat16")


def in_pieces(tilings: Iterable[Tiling], problem: Problem, device: Device) -> Iterator[Tiling]:
    """Those that are less padded, or shared, in pieces of which a thread takes 8 elements, for half the threads.

    Where 16-bit rows fill a tile, pieces still leave room for one program more, if the compiler is held to few registers.
    Source: scripts/tune.py on one H200, Triton 3.6.0, 2026-11-21, in GB/s, in one piece and in several: bfloat16 (4096,
    10240) 2849 and 3657, (4096, 14336) 3465 and 3774, (16384, 16384) 3960 and, in another run, 4079; the gradient of float32
    (4096, 8320) 3894 and 4077; shared by programs, bfloat16 (1024, 50257) 3168 and 3416. With all threads, (4096, 20000) in
    float32 3781, not 4044. A warp alone, in pieces of 8 elements a thread and of one vector: float32 (4096, 640) 2054 and
    2199; the gradient of (4096, 384) 1893, padded, and 2006; shared, (4096, 65536) 4049 and 4078.
    """
    limit = device.profile.launch.max_tile_cols.value
    for tiling in tilings:
        if not tiling.num_warps or not device.hardware.warp_size:
            continue
        num_warps = tiling.num_warps if tiling.parts > 1 else max(1, tiling.num_warps // 2)
        alone = num_warps == 1 and (tiling.parts > 1 or not problem.ragged)
        elements = problem.widest if alone else PIECE_ELEMENTS
        piece_cols = max(1, elements * device.hardware.warp_size * num_warps // tiling.tile_rows)
        pieces = -(-problem.width // (tiling.parts * piece_cols))
        found = replace(tiling, tile_cols=pieces * piece_cols, num_warps=num_warps, pieces=pieces)
        if pieces > 1 and (tiling.parts > 1 or found.tile_cols < tiling.tile_cols):
            yield found
        elif pieces > 1 and problem.y_dtype in SIXTEEN_BITS and 4 * problem.width > limit:
            yield from held_to_registers(found, problem, device)


def held_to_registers(tiling: Tiling, problem: Problem, device: Device) -> Iterator[Tiling]:
    """The tiling held to each of the policy's numbers of registers that leaves a thread some beside those of its elements."""
    steps = device.profile.launch.max_registers
    threads = (tiling.num_warps or 1) * (device.hardware.warp_size or 1)
    operands = 2 if problem.backward else 1
    held = operands * tiling.tile_rows * tiling.tile_cols * problem.registers_per_element / threads
    beside = BESIDE if problem.y_dtype in SIXTEEN_BITS else 2 * BESIDE
    for registers in steps.value if steps else ():
        if held + beside <= registers:
            yield replace(tiling, max_registers=registers)
