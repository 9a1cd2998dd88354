"""Sections of an ELF64 file, the format in which vendors' compilers write kernels."""

import struct
from typing import NamedTuple


class Section(NamedTuple):
    """A section of an ELF file: its bytes, and the index of the section that it refers to."""

    content: bytes
    link: int


def sections(elf: bytes, called: str) -> list[tuple[str, Section]]:
    """Returns (name, section) in the file's order; ValueError if it has no little-endian ELF64 header, as `called`."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"not a {called}: no little-endian ELF64 header")
    table = struct.unpack_from("<Q", elf, 0x28)[0]
    size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * size) for i in range(count)]
    names = _content(elf, headers[names_index])
    return [(string(names, header[0]), Section(_content(elf, header), header[6])) for header in headers]


def string(table: bytes, start: int) -> str:
    """Returns the string of a table that starts at a byte."""
    return table[start : table.index(b"\0", start)].decode()


def _content(elf: bytes, header: tuple[int, ...]) -> bytes:
    no_bits = 8  # SHT_NOBITS: such a section has no bytes in the file
    return b"" if header[1] == no_bits else elf[header[4] : header[4] + header[5]]
