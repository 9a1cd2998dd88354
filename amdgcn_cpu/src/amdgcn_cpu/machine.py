"""A kernel's text as one function per instruction."""

from collections.abc import Callable

from amdgcn_cpu.access import compile_access
from amdgcn_cpu.faults import UnknownInstruction
from amdgcn_cpu.lanes import compile_lanes
from amdgcn_cpu.matrices import compile_matrices
from amdgcn_cpu.packed import compile_packed, is_packed
from amdgcn_cpu.parsing import Assembly, Instruction, parse
from amdgcn_cpu.scalar import compile_scalar
from amdgcn_cpu.state import Wave
from amdgcn_cpu.vector import Operation, compile_vector, compile_vector_or_pair
from amdgcn_cpu.waits import check_waits

Step = Callable[[Wave], None]

ARCHITECTURES = (  # those of a line have the same instructions, or nearly
    "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950",
    "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036",
    "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153",
    "gfx1200", "gfx1201",
)  # fmt: skip


class Kernel:
    """A kernel that can be launched: its parsed text, and a function for each instruction.

    Args:
        text: Triton's `asm["amdgcn"]`.

    Raises:
        UnknownInstruction: the text has something that is not known here.
        MissingWait: a register is used while a load that writes it may not be done; see waits.py.
    """

    def __init__(self, text: str) -> None:
        self.assembly: Assembly = parse(text)
        if self.assembly.arch not in ARCHITECTURES:
            raise UnknownInstruction(f"{self.assembly.arch} is none of {', '.join(ARCHITECTURES)}")
        self.steps: list[Step] = [self._step(instruction) for instruction in self.assembly.instructions]
        check_waits(self.assembly)

    def _step(self, instruction: Instruction) -> Step:
        arch = self.assembly.arch
        try:
            if instruction.mnemonic.startswith(("s_", "v_s_")):  # V_S_*: one number, in SGPRs (gfx12)
                return compile_scalar(instruction, self.assembly.labels)
            if step := compile_lanes(instruction) or compile_matrices(instruction, arch, self.assembly.wave_size):
                return step
            if instruction.mnemonic.startswith("v_"):
                return compile_vector_or_pair(instruction, self._operation)
            return compile_access(instruction, arch)
        except UnknownInstruction as error:
            if instruction.text in str(error):
                raise
            raise instruction.unknown(str(error)) from error
        except (KeyError, ValueError, IndexError) as error:
            raise instruction.unknown(f"unknown operand or modifier ({error})") from error

    def _operation(self, instruction: Instruction) -> Operation:
        if is_packed(instruction.mnemonic):
            return compile_packed(instruction)
        return compile_vector(instruction, self.assembly.arch, self.assembly.wave_size)
