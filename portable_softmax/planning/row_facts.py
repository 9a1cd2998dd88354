"""Facts of a row kernel's launch that its cost depends on: for any kernel that works on rows."""

import math
from typing import NamedTuple

from portable_softmax.devices.device import Device
from portable_softmax.planning.cost import Facts
from portable_softmax.planning.facts import GB_PER_S, L2_LATENCY, LINE_PART, lost
from portable_softmax.planning.problem import VECTOR_BYTES

FEWEST = 4  # elements of a thread; twice as many of large programs, and at most so many that are loaded one at a time
MANY_WARPS, FEW_WARPS = 16, 8  # of large programs; of all that a multiprocessor holds, at least
PACKED_BYTES = 2  # of the elements that are packed in pairs, whatever the compiler knows of rows


class Traffic(NamedTuple):
    """Bytes, accesses and operations of one row, and of one program beside its rows.

    Args:
        row, program: bytes that memory moves; not those that a cache has, of weights or of a row that is read once more.
        again: bytes of a row that are read once more.
        element: bytes of the largest part of them.
        row_operands, program_operands: loads and stores of all elements of a row.
        reductions, block_reductions: per row, and per block of a row that the kernel loops over.
        exponents: elements of a row, counted once per exp.
    """

    row: float = 0
    program: float = 0
    again: float = 0
    element: float = 4
    row_operands: float = 0
    program_operands: float = 0
    reductions: float = 0
    block_reductions: float = 0
    exponents: float = 0


class RowLaunch(NamedTuple):
    """A launch.

    Args:
        n_rows, n_cols: number of rows, and of elements per row.
        multiple: elements of which the start of a row is a multiple, as the compiler knows.
        num_programs: of the grid.
        resident: programs that a multiprocessor holds at once.
        num_warps: of a program; None where programs have no warps.
        block: elements of a row that a program has at once.
        num_stages: of the loop that is pipelined: over the blocks of a row where the kernel has one, else over rows.
        in_blocks: it has one.
        spilled_bytes: of a thread.
    """

    n_rows: int
    n_cols: int
    multiple: int
    num_programs: int
    resident: int
    num_warps: int | None
    block: int
    num_stages: int = 1
    in_blocks: bool = False
    spilled_bytes: int = 0


def row_facts(traffic: Traffic, launch: RowLaunch, device: Device) -> Facts:
    """Returns the facts of a launch."""
    hardware, rows, programs = device.hardware, launch.n_rows, launch.num_programs
    multiprocessors, per_us = hardware.multiprocessor_count or 1, GB_PER_S * (hardware.memory_bandwidth_gb_per_s or 1)
    lanes = hardware.warp_size or 1
    threads, blocks = (launch.num_warps or 1) * lanes, -(-launch.n_cols // launch.block)
    beside = min(launch.resident, max(1.0, programs / multiprocessors))
    turns, elements = -(-rows // programs), blocks * launch.block
    at_once = max(min(VECTOR_BYTES / traffic.element, launch.multiple), traffic.element / PACKED_BYTES)
    accesses = elements * traffic.row_operands / at_once
    shuffles = (traffic.reductions + blocks * traffic.block_reductions) * math.log2(threads)
    again = rows * traffic.again * lost(traffic.row * beside * multiprocessors, device)
    ahead = launch.num_stages > 2 and launch.multiple > 1 and not launch.in_blocks
    return Facts(
        memory_us=(rows * traffic.row + programs * traffic.program + again) / per_us,
        l2_us=2 * launch.spilled_bytes * threads * rows / per_us,
        left_out=0,
        programs=programs,
        beside=beside,
        waves=-(-programs // (multiprocessors * launch.resident)),
        turns=turns,
        ahead=min(launch.num_stages - 2, turns - 1) if ahead else 0,
        loads=blocks * (1 + L2_LATENCY * traffic.again / (traffic.element * launch.n_cols)),
        elements=elements / threads * (1 + traffic.exponents / launch.n_cols),
        exchanges=0,
        issued=accesses / lanes
        + shuffles * threads / lanes
        + LINE_PART * accesses * max(1 / lanes, at_once * traffic.element / (VECTOR_BYTES * lanes / 4)),
        own_issued=launch.block * traffic.program_operands / at_once / lanes,
    )


def is_slow(traffic: Traffic, launch: RowLaunch, device: Device) -> bool:
    """True for a launch of which some other is always as fast, or nearly so, by measured launches."""
    walks, warps = launch.num_programs < launch.n_rows, launch.num_warps or FEW_WARPS
    per_thread = launch.block / (warps * (device.hardware.warp_size or 1))
    if walks and not traffic.program and (launch.in_blocks or launch.num_stages == 1):
        return True
    if launch.num_stages > 1 and (launch.in_blocks or not walks):
        return True  # there is nothing to load ahead, or other programs hide as much
    if per_thread < FEWEST or (per_thread < 2 * FEWEST and warps >= MANY_WARPS):
        return True
    alone = launch.multiple == 1 and not traffic.reductions and not traffic.block_reductions
    return (alone and per_thread > 2 * FEWEST) or warps * launch.resident < FEW_WARPS
