"""Waits that the text lacks: no instruction may touch a register while a load that writes it may not be done.

Loads take time and count in counters: VMEM in vmcnt (loadcnt on gfx12), LDS in lgkmcnt (dscnt), scalar loads in lgkmcnt too
(kmcnt). A wait bounds the pending loads. VMEM and LDS finish in order, so a load is done if as many loads as
that started after it. Scalar loads finish in any order, so only a wait for all of them is certain ("Manually Inserted Wait
States" and "S_WAITCNT" in the guides; LLVM's SIInsertWaitcnts.cpp).

The check follows all paths through the text. For each pending register it keeps the least number of younger loads in the same
counter. On gfx9 a store counts with the loads; later architectures have a counter for stores. The halves of a vector register
count by themselves, as loads of 16 bits write one and stores of 16 bits read one.
"""

import re
from collections.abc import Iterator

from amdgcn_cpu.faults import MissingWait
from amdgcn_cpu.operands import scalar_register
from amdgcn_cpu.parsing import Assembly, Instruction
from amdgcn_cpu.shapes import returns_old

Key = tuple[str, str]  # half of a register, and the kind of load that writes it: vmem, lds or scalar
Pending = dict[Key, int]  # the least number of younger loads in its counter

_NAMED = re.compile(r"\b(?:([vsa])(?:(\d+)(?:\.([lh]))?|\[(\d+):(\d+)\])|(vcc|vcc_lo|vcc_hi|m0|exec\w*))(?![\w\[])")
_LOADS = re.compile(
    r"(?P<vmem>global|buffer|scratch|flat)_load|(?P<lds>ds)_(?:read|load|bpermute|permute|swizzle)|(?P<scalar>s)_load"
)
_STORES = re.compile(r"(global|buffer|scratch|flat)_(?:store|atomic)|(ds)_(?:write|store)")
_COUNTERS = {"vmcnt": ("vmem",), "lgkmcnt": ("lds", "scalar")}
_WAITS = {"s_wait_loadcnt": ("vmem",), "s_wait_dscnt": ("lds",), "s_wait_kmcnt": ("scalar",)}
_ENOUGH = 64  # no counter is larger
_LDS_ITSELF = "LDS"  # represents what a store to LDS will write


def check_waits(assembly: Assembly) -> None:
    """Looks for registers that are used too early, on any path.

    Raises:
        MissingWait: a register is used too early; the text ends with the instruction that uses it.
    """
    blocks = _blocks(assembly)
    before: dict[int, Pending] = {0: {}}
    waiting = [0]
    while waiting:
        start = waiting.pop()
        pending = dict(before[start])
        end, after = blocks[start]
        for instruction in assembly.instructions[start:end]:
            _step(instruction, pending, assembly.arch)
        for following in after:
            known = before.get(following, {})
            merged = known | {key: min(age, known.get(key, age)) for key, age in pending.items()}
            if following not in before or merged != known:
                before[following] = merged
                waiting.append(following)


def _blocks(assembly: Assembly) -> dict[int, tuple[int, list[int]]]:
    """Returns the basic blocks by their first instruction: (end, blocks that may follow)."""
    named = [instruction.mnemonic for instruction in assembly.instructions]
    count, branches = len(named), {number for number, name in enumerate(named) if name.startswith(("s_branch", "s_cbranch"))}
    starts = sorted({0, *assembly.labels.values(), *(number + 1 for number in branches)} - {count})
    blocks = {}
    for start, end in zip(starts, [*starts[1:], count], strict=True):
        after = [assembly.labels[assembly.instructions[end - 1].operands[0]]] if end - 1 in branches else []
        if named[end - 1] not in ("s_branch", "s_endpgm"):
            after.append(end)
        blocks[start] = end, [block for block in after if block < count]
    return blocks


def _step(instruction: Instruction, pending: Pending, arch: str) -> None:
    if waited := _waited(instruction):
        for kinds, most in waited:
            _end(pending, kinds, most)
        return
    kind, written = _begun(instruction, arch)
    touched = set(_registers(instruction))
    if instruction.mnemonic in ("s_barrier", "s_barrier_signal"):
        touched.add(_LDS_ITSELF)  # others may read it then
    for register, of in pending:
        if register in touched and not (of == kind != "scalar" and register in written):  # in order: the later one stays
            raise MissingWait(
                f"{register.partition('.')[0]} is used before a wait for its load: line {instruction.line}: {instruction.text}"
            )
    if kind:
        together = _together(kind, arch)
        for key in pending:
            if key[1] in together:
                pending[key] = min(pending[key] + 1, _ENOUGH)
        pending.update(dict.fromkeys(((register, kind) for register in written), 0))


def _begun(instruction: Instruction, arch: str) -> tuple[str, set[str]]:
    """Returns the kind of memory access that an instruction starts, "" for none, and the registers that it will write."""
    name = instruction.mnemonic
    first = set(_registers_of(_with_half(instruction)[0])) if instruction.operands else set()
    if match := _LOADS.match(name):
        return str(match.lastgroup), first
    if match := _STORES.match(name):
        if match[2]:
            return "lds", {_LDS_ITSELF}
        if "_atomic_" in name and returns_old(instruction.modifiers):
            return "vmem", first
        return ("vmem" if arch.startswith("gfx9") else ""), set()
    return "", set()


def _together(kind: str, arch: str) -> tuple[str, ...]:
    """Returns the kinds of loads that count in the same counter."""
    if kind == "vmem" or arch.startswith("gfx12"):
        return (kind,)
    return _COUNTERS["lgkmcnt"]


def _waited(instruction: Instruction) -> list[tuple[tuple[str, ...], int]]:
    """Returns the counters that an instruction waits for, as their kinds of loads, and how many loads may remain pending."""
    name, text = instruction.mnemonic, " ".join(instruction.operands)
    if name == "s_wait_idle":
        return [(("vmem",), 0), (("lds",), 0), (("scalar",), 0)]
    if name == "s_waitcnt":
        matches = re.findall(r"(\w+)\((\d+)\)", text)
        if not matches:
            raise instruction.unknown("unknown wait")
        return [(_COUNTERS[counter], int(most)) for counter, most in matches if counter in _COUNTERS]
    if name == "s_wait_loadcnt_dscnt":  # two fields of six bits
        return [(("vmem",), int(text, 0) >> 8 & 63), (("lds",), int(text, 0) & 63)]
    if name == "s_wait_storecnt_dscnt":
        return [(("lds",), int(text, 0) & 63)]
    return [(_WAITS[name], int(text, 0))] if name in _WAITS else []


def _end(pending: Pending, kinds: tuple[str, ...], most: int) -> None:
    """Removes the loads that are done after a wait."""
    unordered = "scalar" in kinds and any(kind == "scalar" for _, kind in pending)
    for key in [key for key, age in pending.items() if key[1] in kinds and (most == 0 or (age >= most and not unordered))]:
        del pending[key]


def _registers(instruction: Instruction) -> Iterator[str]:
    for operand in (*_with_half(instruction), *(instruction.second.operands if instruction.second else ())):
        yield from _registers_of(operand)


def _with_half(instruction: Instruction) -> tuple[str, ...]:
    """Returns the operands; of a load or a store of 16 bits or fewer, the data's register with its half: `v1.h`."""
    name, operands = instruction.mnemonic, list(instruction.operands)
    match = re.match(r"(global|buffer|scratch|ds)_(load|store|write)_(\w+)", name)
    if match and (
        (match[2] == "load" and "d16" in name) or (match[2] != "load" and re.match(r"(b8|b16|byte|short)(_|$)", match[3]))
    ):
        place = 0 if match[2] == "load" or match[1] == "buffer" else 1
        operands[place] = operands[place].removesuffix(".l").removesuffix(".h") + (".h" if "d16_hi" in name else ".l")
    return tuple(operands)


def _ends(letter: str, half: str) -> tuple[str, ...]:
    """Returns the endings of a register's parts: both halves of a vector register, unless one is named."""
    if letter == "s":
        return ("",)
    return (f".{half}",) if half else (".l", ".h")


def _registers_of(operand: str) -> Iterator[str]:
    """Yields the names of all registers of an operand: `v[2:3]` is v2.l, v2.h, v3.l, v3.h, and `s4` is s4."""
    for letter, one, half, first, last, name in _NAMED.findall(operand):
        if name:
            yield from (f"s{number}" for number in _pair(name))
        else:
            numbers = range(int(one or first), int(one or last) + 1)
            yield from (f"{letter}{number}{end}" for number in numbers for end in _ends(letter, half))


def _pair(name: str) -> range:
    first = scalar_register(name)
    if first is None:
        return range(0)
    count = 2 if name in ("vcc", "exec") else 1
    return range(first, first + count)
