"""Registers, stack frame and threads of a kernel, read from its cubin (ELF64) without any tool.

Agrees with `cuobjdump --dump-resource-usage` (a test holds the two together). NVIDIA does not document the attribute
numbers; they are the ones that `cuobjdump --dump-elf` prints by name.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

# (symbol index, value) pairs in .nv.info
FRAME_SIZE = 0x11  # EIATTR_FRAME_SIZE: bytes of local memory per thread
REGISTER_COUNT = 0x2F  # EIATTR_REGCOUNT
SIZED_VALUE = 0x04  # EIFMT_SVAL: a 16-bit size, then the value


class Section(NamedTuple):
    """A section of an ELF file: its bytes, and the index of the section that it refers to."""

    content: bytes
    link: int


def kernel_attributes(cubin: bytes, kernel: str) -> dict[int, int]:
    """Returns the attributes of `kernel` in .nv.info, by number.

    Raises:
        ValueError: not a cubin, or the kernel is not in it.
    """
    sections = _sections(cubin)
    by_name = dict(sections)
    symbols = by_name[".symtab"]
    names = sections[symbols.link][1].content
    attributes = {
        attribute: value
        for attribute, symbol, value in _symbol_attributes(by_name[".nv.info"].content)
        if _string(names, struct.unpack_from("<I", symbols.content, symbol * 24)[0]) == kernel
    }
    if REGISTER_COUNT not in attributes:
        raise ValueError(f"the cubin says nothing of a kernel {kernel!r}")
    return attributes


def _sections(elf: bytes) -> list[tuple[str, Section]]:
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a cubin: no little-endian ELF64 header")
    table = struct.unpack_from("<Q", elf, 0x28)[0]
    size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * size) for i in range(count)]
    names = _content(elf, headers[names_index])
    return [(_string(names, header[0]), Section(_content(elf, header), header[6])) for header in headers]


def _content(elf: bytes, header: tuple[int, ...]) -> bytes:
    no_bits = 8  # SHT_NOBITS: takes no room in the file
    return b"" if header[1] == no_bits else elf[header[4] : header[4] + header[5]]


def _string(table: bytes, start: int) -> str:
    return table[start : table.index(b"\0", start)].decode()


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
