"""Expected microseconds of a kernel of anybody's that goes over rows, by the terms and numbers of the softmax's cost."""

import math
from typing import NamedTuple

from portable_softmax.devices.device import Device
from portable_softmax.planning.cost import CostNumbers, Terms, measured, terms
from portable_softmax.planning.facts import GB_PER_S, Facts


class Traffic(NamedTuple):
    """What one row takes, and one program beside its rows.

    Args:
        row: bytes that memory moves for a row.
        row_again: bytes of a row that a cache has: of weights, or of a row that is read once more.
        program: bytes that memory moves for a program.
        program_again: bytes of a program that a cache has.
        reductions: of blocks of a row.
        exponents: elements of a row, for each exp that is taken of them.
    """

    row: float = 0
    row_again: float = 0
    program: float = 0
    program_again: float = 0
    reductions: float = 0
    exponents: float = 0


class RowLaunch(NamedTuple):
    """A launch of such a kernel.

    Args:
        n_rows, n_cols: of what it goes over.
        num_programs: of the grid.
        resident: programs that a multiprocessor holds at once.
        num_warps: of a program; None where programs have no warps.
        block: elements of a row that a program has at once.
        num_stages: of the loop that is pipelined.
        spilled_bytes: of a thread.
    """

    n_rows: int
    n_cols: int
    num_programs: int
    resident: int
    num_warps: int | None
    block: int
    num_stages: int = 1
    spilled_bytes: int = 0


def row_cost(traffic: Traffic, launch: RowLaunch, device: Device) -> Terms:
    """Returns what a launch should take; with numbers of another device where nobody has measured this one's."""
    return terms(row_facts(traffic, launch, device), numbers_of(device)[1])


def numbers_of(device: Device) -> tuple[str, CostNumbers]:
    """Returns the measured numbers of a device, or else those of a device that was measured, with its name."""
    known = measured()
    name = device.profile.name if device.profile.name in known else next(iter(known))
    return name, known[name]


def row_facts(traffic: Traffic, launch: RowLaunch, device: Device) -> Facts:
    """Returns the facts of a launch that its cost depends on."""
    hardware = device.hardware
    multiprocessors, per_us = hardware.multiprocessor_count or 1, GB_PER_S * (hardware.memory_bandwidth_gb_per_s or 1)
    threads = (launch.num_warps or 1) * (hardware.warp_size or 1)
    held = multiprocessors * launch.resident
    waves = math.ceil(launch.num_programs / held) * math.ceil(launch.n_rows / launch.num_programs)
    beside = min(launch.resident, max(1.0, launch.num_programs / multiprocessors))
    moved = launch.n_rows * traffic.row + launch.num_programs * traffic.program
    again = launch.n_rows * traffic.row_again + launch.num_programs * traffic.program_again
    again += 2 * launch.spilled_bytes * threads * launch.n_rows
    blocks = -(-launch.n_cols // launch.block)
    return Facts(
        programs=launch.num_programs / multiprocessors,
        beside=beside,
        waves=waves,
        bytes_us=moved / per_us,
        again_us=again / per_us,
        wave_us=waves * beside * multiprocessors / launch.n_rows * moved / per_us,
        shared=0,
        lookups=0,
        warps=launch.num_warps or 1,
        each=launch.block / threads,
        exponents=traffic.exponents,
        sums=traffic.reductions * threads * math.log2(threads),
        steps=blocks - 1,
        pieces=0,
    )
