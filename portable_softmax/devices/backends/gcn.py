"""Loops of a kernel for AMD's devices, read from LLVM's assembly text."""

import re
from collections import defaultdict

from portable_softmax.devices.backends.machine_code import Instruction, Loop, loop_of

BLOCK = re.compile(r"\.?L?(BB\d+_\d+):|; %bb\.\d+:")
IN_LOOP, HEADER = re.compile(r"in Loop: Header=(\w+) Depth=(\d+)"), re.compile(r"Loop Header: Depth=(\d+)")
LOAD, STORE = re.compile(r"(global|flat|buffer)_load_"), re.compile(r"(global|flat|buffer)_(store|atomic)_")
TO_SHARED = "_lds"  # a load from global memory into shared memory
WAIT = re.compile(r"s_wait(?:cnt .*?\bvmcnt\(|_loadcnt )(0x[0-9a-f]+|\d+)")
OF_64 = "gfx9"  # architectures with one counter of loads and stores, and vectors of 64 lanes on 16
CLOCKS = 4  # of an instruction for such a vector


def loops(assembly: str, arch: str) -> list[Loop]:
    """Returns the code of a kernel outside loops, then that of every loop that LLVM's comments name; ValueError without any."""
    body, end, _ = assembly.partition(".Lfunc_end0:")
    if not end:
        raise ValueError("the assembly ends no function")
    blocks = defaultdict[tuple[str, int], list[Instruction]](list)
    name, place = "", ("", 0)
    for line in map(str.strip, body.partition(".Lfunc_begin0:")[2].splitlines()):
        if block := BLOCK.match(line):
            name, place = block[1] or "", ("", 0)
        if inside := IN_LOOP.search(line):
            place = inside[1], int(inside[2])
        elif header := HEADER.search(line):
            place = name, int(header[1])
        if line[:1].isalpha() and not line.endswith(":"):
            blocks[place].append(_instruction(line, arch))
    return [loop_of(depth, code) for (_, depth), code in sorted(blocks.items(), key=lambda one: one[0][1])]


def _instruction(line: str, arch: str) -> Instruction:
    loads, stores, wait = LOAD.match(line), STORE.match(line) and arch.startswith(OF_64), WAIT.match(line)
    to_registers = loads and TO_SHARED not in line
    return Instruction(
        loads=bool(loads),
        counter=0 if to_registers or stores else None,
        waits=(0,) if wait else (),
        left=int(wait[1], 0) if wait else 0,
        clocks=CLOCKS if line.startswith("v_") and arch.startswith(OF_64) else 1,
    )
