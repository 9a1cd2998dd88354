"""Estimated resources of a program that is not compiled yet, by which the planner ranks launches."""

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem

REGISTER_BYTES = 4
# Registers of a thread: lines through compiled launches, Triton 3.8, sm_90; of rows, and of rows side by side.
ANY, EACH = (16, 24), (1.0, 1.25)  # per program, and per element
READ_TWICE, ENDS, SHARED = 16, 10, 4  # more where blocks are read twice, of unaligned rows, where programs share rows


def estimated(problem: Problem, tiling: Tiling, device: Device) -> KernelResources:
    """Estimates what a program uses: registers per element, and some more; those above a thread's limit are spilled."""
    hardware, beside = device.hardware, problem.across
    threads = (tiling.num_warps or 1) * (hardware.warp_size or 1)
    elements = tiling.elements * (2 if problem.backward else 1) / threads
    wanted = ANY[beside] + round(EACH[beside] * elements)
    wanted += READ_TWICE * (not tiling.held) + ENDS * problem.unaligned + SHARED * tiling.is_shared
    most = tiling.max_registers or hardware.max_registers_per_thread or wanted
    most = min(most, (hardware.registers_per_multiprocessor or wanted * threads) // threads)
    spilled = REGISTER_BYTES * max(0, wanted - most)
    return KernelResources(tiling.num_warps, min(wanted, most), spilled_bytes_per_thread=spilled)
