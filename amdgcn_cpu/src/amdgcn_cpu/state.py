"""Registers of a wave ("Kernel State" in the ISA guides): VGPRs, SGPRs, VCC, EXEC, SCC."""

import numpy as np

from amdgcn_cpu.arrays import Array, lanes_of
from amdgcn_cpu.local import LocalMemory
from amdgcn_cpu.memory import GlobalMemory

N_SGPRS, N_VGPRS = 128, 512  # ACC registers are VGPRs 256 and up
VCC, TTMP, M0, EXEC = 106, 108, 124, 126  # numbers of scalar registers, in the guides' tables of operands
POISON = 0xFFFBFFFD  # value of registers that were never written: nan as float32, float16 and bfloat16


class Wave:
    """A wave: its registers, and its place in the text.

    Args:
        size: number of lanes.
        index: number of the wave in its workgroup.
        memory, local: memory that its instructions access.
        scratch_bytes: scratch memory of a lane.
    """

    def __init__(self, size: int, index: int, memory: GlobalMemory, local: LocalMemory, scratch_bytes: int = 0) -> None:
        self.size, self.index, self.memory, self.local = size, index, memory, local
        self.bits = np.full((N_VGPRS, size), POISON, np.uint32)
        self.integers, self.floats = self.bits.view(np.int32), self.bits.view(np.float32)
        self.bits[0] = np.arange(index * size, (index + 1) * size)  # v0: the number of the work-item
        self.scalars = [POISON] * N_SGPRS
        self.scratch = np.full((size, scratch_bytes), POISON & 0xFF, np.uint8)
        self.scc = 0
        self.clamps_halves = False  # MODE.FP16_OVFL: float16 that overflow become the largest number
        self.pc = 0
        self.ended = self.blocked = False  # it is done; it waits at a barrier that others have not reached
        self.signals = self.waits = 0  # barriers at which it has arrived, and that it has passed
        self.set_exec((1 << size) - 1)

    def set_exec(self, mask: int) -> None:
        """Makes the lanes of the mask the active ones."""
        self.exec = mask
        self.active = lanes_of(mask, self.size)
        self.all_active = bool(mask == (1 << self.size) - 1)
        self.scalars[EXEC], self.scalars[EXEC + 1] = mask & 0xFFFFFFFF, mask >> 32

    def mask(self, register: int) -> int:
        """Returns the mask of all lanes in one SGPR, or two for a wave of 64."""
        if self.size == 32:
            return self.scalars[register]
        return self.scalars[register] | self.scalars[register + 1] << 32

    def lanes(self, register: int) -> Array:
        """Returns the mask as booleans."""
        return lanes_of(self.mask(register), self.size)

    def set_mask(self, register: int, mask: int) -> None:
        """Writes a mask of all lanes to one SGPR, or two for a wave of 64."""
        if register == EXEC:
            self.set_exec(mask)
            return
        self.scalars[register] = mask & 0xFFFFFFFF
        if self.size == 64:
            self.scalars[register + 1] = mask >> 32
