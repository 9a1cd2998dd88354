"""Limits of a device for the launches of a problem, computed from facts alone."""

from portable_softmax.devices.device import Device
from portable_softmax.planning.problem import Problem, next_power_of_2

WORD_BYTES = 4
MOST_SPLITS = 64  # per row: a program reads two words of every split


class Budget:
    """Facts of a device as they concern a problem; threads and registers are those of a multiprocessor."""

    def __init__(self, problem: Problem, device: Device) -> None:
        hardware, launch = device.hardware, device.profile.launch
        self.problem, self.device = problem, device
        self.warp = hardware.warp_size or 1
        self.most_threads = hardware.max_threads_per_program or self.warp
        self.resident_threads = self.warp * (hardware.max_warps_per_multiprocessor or 1)
        self.registers = hardware.registers_per_multiprocessor or 1
        self.most_registers = hardware.max_registers_per_thread or self.registers  # of a thread
        self.multiprocessors = hardware.multiprocessor_count or 1
        self.operands = 2 if problem.backward else 1  # that are read
        can_split = bool(launch.polls) and not problem.in_place
        self.shares = can_split and not problem.batch_invariant  # a late program may be waited for or not, and bits differ
        self.splits_in_two_launches = can_split and problem.batch_invariant and problem.pairs > 0
        self.line = launch.line_elements.value if launch.line_elements else 1  # neighbouring rows that fill a cache line
        self.sector = launch.min_line_elements.value if launch.min_line_elements else 1  # and the least that memory moves

    @property
    def most_rows(self) -> int:
        """Returns a power of two of rows that is enough for all neighbours."""
        return next_power_of_2(self.problem.neighbours)
