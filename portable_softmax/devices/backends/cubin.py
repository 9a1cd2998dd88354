"""Registers, stack frame and local stores of a kernel, read from its cubin (ELF64) without any tool.

Tests compare them with `cuobjdump --dump-resource-usage` and `ptxas -v`. NVIDIA documents neither the attribute numbers, which
`cuobjdump --dump-elf` prints by name, nor the encoding of instructions, which `nvdisasm` prints.
"""

import struct
from collections.abc import Iterator

from portable_softmax.devices.backends.elf import sections, string

# (symbol index, value) pairs in .nv.info
FRAME_SIZE = 0x11  # EIATTR_FRAME_SIZE: bytes of local memory per thread
STACK_SIZE = 0x12  # EIATTR_MIN_STACK_SIZE: the same, with the frames of functions that it calls
REGISTER_COUNT = 0x2F  # EIATTR_REGCOUNT
SIZED_VALUE = 0x04  # EIFMT_SVAL: a 16-bit size, then the value

# Instructions from compute capability 7.0 on: 16 bytes, the operation in the lowest 12 bits.
LOCAL_STORE = 0x387  # STL
WIDTHS = (1, 1, 2, 2, 4, 8, 16)  # bytes, by bits 73 to 75


def kernel_attributes(cubin: bytes, kernel: str) -> dict[int, int]:
    """Returns the attributes of `kernel` in .nv.info, by number.

    Raises:
        ValueError: not a cubin, or the kernel is not in it.
    """
    all_sections = sections(cubin, "cubin")
    by_name = dict(all_sections)
    symbols = by_name[".symtab"]
    names = all_sections[symbols.link][1].content
    attributes = {
        attribute: value
        for attribute, symbol, value in _symbol_attributes(by_name[".nv.info"].content)
        if string(names, struct.unpack_from("<I", symbols.content, symbol * 24)[0]) == kernel
    }
    if REGISTER_COUNT not in attributes:
        raise ValueError(f"the cubin does not describe the kernel {kernel!r}")
    return attributes


def local_stores(cubin: bytes) -> int:
    """Counts the bytes that the code stores to local memory, a store in a loop once."""
    code = (section.content for name, section in sections(cubin, "cubin") if name.startswith(".text."))
    instructions = (instruction for content in code for instruction in struct.iter_unpack("<QQ", content))
    return sum(WIDTHS[high >> 9 & 7] for low, high in instructions if low & 0xFFF == LOCAL_STORE)


def _symbol_attributes(info: bytes) -> Iterator[tuple[int, int, int]]:
    """Yields (attribute, symbol index, value) of each record that has a value for a symbol."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == SIZED_VALUE:
            if size == 8:
                yield attribute, *struct.unpack_from("<II", info, at)
            at += size
