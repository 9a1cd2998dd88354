"""SPIR-V as a sequence of instructions, to leave out and to change some. Source: the SPIR-V specification, 2.3."""

import struct
from collections.abc import Callable, Iterator

HEADER = 5  # words
OP_EXTENSION, OP_EXECUTION_MODE, OP_CAPABILITY = 10, 16, 17
OP_ATOMIC_EXCHANGE, OP_ATOMIC_AND = 229, 240  # with the same operands
# What the runtime for CPUs refuses: declarations (the most threads of a program, vectors of any width) that no code needs.
CAPABILITIES = {5892, 5617, 5619}  # KernelAttributesINTEL, VectorComputeINTEL, VectorAnyINTEL
EXTENSIONS = {"SPV_INTEL_kernel_attributes", "SPV_INTEL_vector_compute"}
MODES = {5893}  # MaxWorkgroupSizeINTEL

Instruction = tuple[int, ...]  # words: 0 holds the length and the opcode


def instructions(module: bytes) -> Iterator[Instruction]:
    """Yields those of a module, in order."""
    words = struct.unpack(f"<{len(module) // 4}I", module)
    at = HEADER
    while at < len(words):
        length = words[at] >> 16
        yield words[at : at + length]
        at += length


def opcode(instruction: Instruction) -> int:
    return instruction[0] & 0xFFFF


def edited(module: bytes, edit: Callable[[Instruction], Instruction | None]) -> bytes:
    """Returns the module with each instruction as `edit` has it; None leaves it out."""
    changed = [word for each in instructions(module) if (kept := edit(each)) for word in kept]
    return module[: 4 * HEADER] + struct.pack(f"<{len(changed)}I", *changed)


def for_a_cpu(instruction: Instruction) -> Instruction | None:
    """Leaves out what the runtime refuses."""
    operation, operands = opcode(instruction), instruction[1:]
    refused = (
        (operation == OP_CAPABILITY and operands[0] in CAPABILITIES)
        or (operation == OP_EXTENSION and _text(operands) in EXTENSIONS)
        or (operation == OP_EXECUTION_MODE and operands[1] in MODES)
    )
    return None if refused else instruction


def never_published(instruction: Instruction) -> Instruction:
    """Makes words whatever lay there, mixed with what should be published, or leaves them 0."""
    if opcode(instruction) != OP_ATOMIC_EXCHANGE:
        return instruction
    return (instruction[0] & ~0xFFFF | OP_ATOMIC_AND, *instruction[1:])


def _text(words: Instruction) -> str:
    return struct.pack(f"<{len(words)}I", *words).partition(b"\0")[0].decode()
