"""Sections of ELF64 files, and loops in machine code: the instructions of a warp, and loads that wait for one another.

Assemblers move loads behind the arithmetic on those before them, and unroll loops: neither is in any IR of Triton.
"""

import struct
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple


class Instruction(NamedTuple):
    """What an instruction means to loops and loads."""

    target: int | None = None  # index of the instruction that a branch continues at
    ends: bool = False  # the program never gets behind it; a cubin may end in a branch to itself
    loads: bool = False  # from global memory
    counter: int | None = None  # that a load into registers, or on some devices a store, holds until it is done
    waits: tuple[int, ...] = ()  # counters that it waits for
    left: int = 0  # operations of these that need not be done, the latest ones
    clocks: int = 1  # in which a partition of a multiprocessor issues it


class Loop(NamedTuple):
    """Machine code of a loop without its inner loops, or of a program outside loops."""

    depth: int  # number of loops around it, with itself
    clocks: float  # in which a partition of a multiprocessor issues the instructions of a warp, per iteration
    loads: float  # from global memory
    chained: float  # loads of the longest chain, in which each begins after another was waited for


def loop_of(depth: int, instructions: Sequence[Instruction]) -> Loop:
    """Returns the loop of these instructions."""
    pending, waited, chained = defaultdict[int, list[int]](list), 0, 0  # by counter: loads of the chain up to an operation
    for one in instructions:
        for counter in one.waits:
            queue = pending[counter]
            done = queue[: max(0, len(queue) - one.left)]
            waited = max([waited, *done])
            pending[counter] = queue[len(done) :]
        if one.counter is not None:
            pending[one.counter].append(waited + 1 if one.loads else 0)
            chained = max(chained, pending[one.counter][-1])
    return Loop(depth, sum(one.clocks for one in instructions), sum(one.loads for one in instructions), chained)


def sections(elf: bytes, called: str) -> dict[str, bytes]:
    """Returns the sections of a file by name; ValueError if it has no little-endian ELF64 header, as `called`."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"not a {called}: no little-endian ELF64 header")
    table = struct.unpack_from("<Q", elf, 0x28)[0]
    size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * size) for i in range(count)]
    contents = [elf[header[4] : header[4] + header[5]] for header in headers]
    names = contents[names_index]
    starts = [header[0] for header in headers]
    return {names[at : names.index(b"\0", at)].decode(): content for at, content in zip(starts, contents, strict=True)}
