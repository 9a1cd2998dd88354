"""Registers, stack frame, local stores and instructions of a kernel, read from its cubin (ELF64) without any tool.

NVIDIA documents neither numbers of attributes, which `cuobjdump --dump-elf` prints, nor the encoding that `nvdisasm` prints.
"""

import struct
from collections.abc import Mapping
from typing import Any

from portable_softmax.devices.backends.machine_code import Instruction, Loop, loop_of, sections

# (symbol index, value) pairs in .nv.info
FRAME_SIZE = 0x11  # EIATTR_FRAME_SIZE: bytes of local memory per thread
STACK_SIZE = 0x12  # EIATTR_MIN_STACK_SIZE: the same, with the frames of functions that it calls
REGISTER_COUNT = 0x2F  # EIATTR_REGCOUNT
SIZED_VALUE = 0x04  # EIFMT_SVAL: a 16-bit size, then the value

# Instructions from compute capability 7.0 on: 16 bytes, the operation in the lowest 12 bits.
LOCAL_STORE = 0x387  # STL
WIDTHS = (1, 1, 2, 2, 4, 8, 16)  # bytes, by bits 73 to 75
LOADS, COPY, BRANCHES, EXIT = (0x381, 0x981), 0xFAE, (0x547, 0x947), 0x94D  # LDG, LDGSTS, BRA.U and BRA, EXIT
FIRST_ARCH, MIN_INSTRUCTIONS = 70, 4  # of this encoding; of a loop
ALWAYS, NO_BARRIER = 7, 7  # predicate PT of bits 12 to 15; of bits 110 to 112
WAITS = [tuple(barrier for barrier in range(6) if mask >> barrier & 1) for mask in range(64)]  # by bits 116 to 121
ARCH_OF_BYTES = 90  # from here on a branch's distance is in bytes, before in words


def largest_attributes(cubin: bytes) -> dict[int, int]:
    """Returns the attributes in .nv.info by number, of the kernel or a function that it calls; ValueError for another file."""
    info, attributes, at = sections(cubin, "cubin")[".nv.info"], dict[int, int](), 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == SIZED_VALUE:
            if size == 8:
                attributes[attribute] = max(attributes.get(attribute, 0), struct.unpack_from("<II", info, at)[1])
            at += size
    return attributes


def local_stores(cubin: bytes) -> int:
    """Counts the bytes that the code stores to local memory, a store in a loop once."""
    instructions = (instruction for code in _codes(cubin) for instruction in struct.iter_unpack("<QQ", code))
    return sum(WIDTHS[high >> 9 & 7] for low, high in instructions if low & 0xFFF == LOCAL_STORE)


def _codes(cubin: bytes) -> list[bytes]:
    return [content for name, content in sections(cubin, "cubin").items() if name.startswith(".text.")]


def loops(asm: Mapping[str, Any], arch: int) -> list[Loop]:
    """Returns the code of the only kernel outside loops, then that of every loop; ValueError for any other encoding.

    A loop ends in a branch backwards. One from behind the end of the program returns from a rare case.
    """
    contents = _codes(asm["cubin"])
    if len(contents) != 1 or len(contents[0]) % 16 or arch < FIRST_ARCH:
        raise ValueError(f"{len(contents)} kernels for sm_{arch}, and one with instructions of 16 bytes was expected")
    read = [_instruction(at, low, high, arch) for at, (low, high) in enumerate(struct.iter_unpack("<QQ", contents[0]))]
    end = next((at for at, one in enumerate(read) if one.ends), -1)
    targets = [(one.target, at) for at, one in enumerate(read) if one.target is not None]
    if end < 0 or not all(0 <= target < len(read) for target, _ in targets):
        raise ValueError("no instruction ends the program, or a branch leaves it")
    last = {target: at for target, at in targets if target <= at + 1 - MIN_INSTRUCTIONS and not target <= end < at}
    code: dict[tuple[int, int], list[Instruction]] = {span: [] for span in ((0, len(read) - 1), *last.items())}
    for at, one in enumerate(read):
        around = [span for span in code if span[0] <= at <= span[1]]
        code[min(around, key=lambda span: span[1] - span[0])].append(one)
    depths = [sum(first <= start and end <= last for first, last in code) - 1 for start, end in code]
    return [loop_of(depth, instructions) for depth, instructions in zip(depths, code.values(), strict=True)]


def _instruction(at: int, low: int, high: int, arch: int) -> Instruction:
    operation, barrier, target = low & 0xFFF, high >> 46 & 7, None
    if operation in BRANCHES:
        distance = ((low >> 34 | (high & 0x3FFFF) << 30) ^ 1 << 47) - (1 << 47)
        if arch >= ARCH_OF_BYTES:
            distance = distance * 256 + (low >> 16 & 0xFF)
        target = at + 1 + distance // 4
    return Instruction(
        target,
        ends=target == at or (operation == EXIT and low >> 12 & 0xF == ALWAYS),
        loads=operation in LOADS or operation == COPY,
        counter=barrier if operation in LOADS and barrier != NO_BARRIER else None,
        waits=WAITS[high >> 52 & 0x3F],
    )
