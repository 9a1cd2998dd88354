"""Resources of a program that nobody has compiled, as an estimate; the planner ranks launches by it, and then compiles."""

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem

REGISTER_BYTES = 4
# Registers of a thread: lines through compiled launches of Triton 3.6, sm_90.
ANY = 16
SHARED, SHARED_BESIDE = 4, 70  # more, where programs share rows: at the least, as what is told too many is never compiled
EDGES = 10  # of unaligned rows
READ_TWICE = 16
ADDRESS, ADDRESS_BESIDE = 0.5, 1.4  # of each element that is read alone


def estimated(problem: Problem, tiling: Tiling, device: Device) -> KernelResources:
    """Estimates what a program uses: registers for each element, and some more; it spills what a thread may not have."""
    hardware, beside = device.hardware, problem.across
    threads = (tiling.num_warps or 1) * (hardware.warp_size or 1)
    each = 1.0
    if problem.vector == 1:
        each += ADDRESS_BESIDE if beside else ADDRESS
    elements = tiling.elements * (2 if problem.backward else 1) / threads
    wanted = ANY + round(each * elements) + EDGES * problem.unaligned + READ_TWICE * (not tiling.held)
    if tiling.is_shared:
        wanted += SHARED_BESIDE if beside else SHARED
    most = tiling.max_registers or hardware.max_registers_per_thread or wanted
    most = min(most, (hardware.registers_per_multiprocessor or wanted * threads) // threads)
    spilled = REGISTER_BYTES * max(0, wanted - most)
    return KernelResources(tiling.num_warps, min(wanted, most), spilled_bytes_per_thread=spilled)
