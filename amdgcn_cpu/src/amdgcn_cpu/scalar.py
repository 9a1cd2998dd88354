"""Scalar instructions as functions of a wave: arithmetic, comparisons, loads, branches, barriers and waits.

They follow the guides' chapters "Scalar ALU Operations", "Scalar Memory Operations" and "Program Flow Control".
"""

import re
from collections.abc import Callable

from amdgcn_cpu.operands import scalar_register, scalar_source, scalar_target
from amdgcn_cpu.parsing import Instruction
from amdgcn_cpu.scalar_table import (
    ACCUMULATING,
    RELATIONS,
    RENAMED,
    SAVE_EXEC,
    SCALAR_OPS,
    WITH_CONSTANT,
    float_of,
    signed,
)
from amdgcn_cpu.state import EXEC, VCC, Wave

Step = Callable[[Wave], None]

# Waits for results, and hints to the hardware. They do nothing, because results are there at once.
_NOTHING = {
    "s_nop", "s_clause", "s_delay_alu", "s_sleep", "s_setprio", "s_inst_prefetch", "s_set_inst_prefetch_distance",
    "s_waitcnt", "s_waitcnt_depctr", "s_waitcnt_vscnt", "s_wait_alu", "s_wait_idle",
    "s_wait_loadcnt", "s_wait_storecnt", "s_wait_dscnt", "s_wait_kmcnt", "s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt",
}  # fmt: skip
_LOADED = {"dword": 1, "b32": 1, "b64": 2, "b96": 3, "b128": 4, "b256": 8, "b512": 16}

_CONDITIONS: dict[str, Callable[[Wave], bool]] = {
    "s_branch": lambda wave: True,
    "s_cbranch_scc0": lambda wave: not wave.scc,
    "s_cbranch_scc1": lambda wave: bool(wave.scc),
    "s_cbranch_vccz": lambda wave: not wave.mask(VCC),
    "s_cbranch_vccnz": lambda wave: bool(wave.mask(VCC)),
    "s_cbranch_execz": lambda wave: not wave.exec,
    "s_cbranch_execnz": lambda wave: bool(wave.exec),
}


def compile_scalar(instruction: Instruction, labels: dict[str, int]) -> Step:
    """Returns the function of a wave that a scalar instruction performs.

    Raises:
        UnknownInstruction: the instruction is not known.
    """
    name, operands = instruction.mnemonic, instruction.operands
    if name in _NOTHING:
        return lambda wave: None
    if name in _CONDITIONS:
        return _branch(_CONDITIONS[name], labels[operands[0]])
    if name == "s_sendmsg" and operands == ("sendmsg(MSG_DEALLOC_VGPRS)",):
        return lambda wave: None  # frees registers for another wave: nothing reads them afterwards
    if name == "s_setreg_imm32_b32":
        return _set_mode(instruction)
    if name == "s_endpgm":
        return _end
    if name in ("s_barrier", "s_barrier_signal", "s_barrier_wait"):
        return _barrier(instruction)
    if match := re.fullmatch(r"s_load_(?:dwordx(\d+)|(\w+))", name):
        return _load(instruction, int(match[1]) if match[1] else _LOADED[match[2]])
    if instruction.modifiers:
        raise instruction.unknown("unknown modifier")
    if match := re.fullmatch(r"s_cmp(k?)_([a-z]+)_([iuf])(32|64)", name):
        return _compare(operands, match[2], match[3], int(match[4]))
    if match := re.fullmatch(r"s_bitcmp([01])_b(32|64)", name):
        return _compare_bit(operands, int(match[1]), int(match[2]))
    if (match := re.fullmatch(r"s_(\w+)_saveexec_b(32|64)", name)) and match[1] in SAVE_EXEC:
        return _save_exec(operands, SAVE_EXEC[match[1]], int(match[2]))
    return _arithmetic(instruction, RENAMED.get(name, name))


def _end(wave: Wave) -> None:
    wave.ended = True


def _set_mode(instruction: Instruction) -> Step:
    """Compiles S_SETREG of the register MODE: FP16_OVFL, and rounding to nearest, which is all that is known."""
    register, value = instruction.operands
    field = re.sub(r"hwreg\(HW_REG_(?:WAVE_)?MODE, (.*)\)", r"\1", register)
    if field == "23, 1":
        return lambda wave: setattr(wave, "clamps_halves", value == "1")
    if field not in ("0, 2", "2, 2", "0, 4") or value != "0":
        raise instruction.unknown("unknown mode")
    return lambda wave: None


def _branch(condition: Callable[[Wave], bool], label: int) -> Step:
    def branch(wave: Wave) -> None:
        if condition(wave):
            wave.pc = label

    return branch


def _barrier(instruction: Instruction) -> Step:
    """Compiles S_BARRIER, which arrives and waits. gfx12 has an instruction for each; -1 is the workgroup's barrier."""
    if instruction.mnemonic != "s_barrier" and instruction.operands != ("-1",):
        raise instruction.unknown("unknown barrier")

    def signal(wave: Wave) -> None:
        wave.signals += 1
        wave.local.arrived[wave.index] = wave.signals

    def wait(wave: Wave) -> None:
        if not wave.local.all_arrived(wave.waits):
            wave.pc -= 1  # runs again when the wave goes on
            wave.blocked = True
        else:
            wave.blocked = False
            wave.waits += 1

    def both(wave: Wave) -> None:
        if wave.signals == wave.waits:
            signal(wave)
        wait(wave)

    return {"s_barrier": both, "s_barrier_signal": signal, "s_barrier_wait": wait}[instruction.mnemonic]


def _load(instruction: Instruction, count: int) -> Step:
    """Compiles S_LOAD: 32-bit words from a 64-bit address and one or two offsets."""
    modifiers = dict(instruction.modifiers)
    more = int(modifiers.pop("offset", "0"), 0)
    to, base, offset = instruction.operands
    first = scalar_register(to)
    if modifiers or first is None:
        raise instruction.unknown("unknown modifier or result")
    start, address, away = first, scalar_source(base, 64), scalar_source(offset, 32)

    def load(wave: Wave) -> None:
        words = wave.memory.words(address(wave) + away(wave) + more, count)
        wave.scalars[start : start + count] = words

    return load


def _compare(operands: tuple[str, ...], relation: str, letter: str, width: int) -> Step:
    """Compiles S_CMP and S_CMPK: SCC becomes whether the relation holds."""
    left, right = (scalar_source(text, width) for text in operands)
    holds = RELATIONS[relation]

    def compare(wave: Wave) -> None:
        a, b = left(wave), right(wave)
        if letter == "f":
            wave.scc = int(holds(float_of(a)[0], float_of(b)[0]))
        else:
            wave.scc = int(holds(signed(a, width), signed(b, width)) if letter == "i" else holds(a, b))

    return compare


def _compare_bit(operands: tuple[str, ...], wanted: int, width: int) -> Step:
    """Compiles S_BITCMP0 and S_BITCMP1: SCC becomes whether the bit is 0, or 1."""
    value, place = scalar_source(operands[0], width), scalar_source(operands[1], 32)

    def compare(wave: Wave) -> None:
        wave.scc = int((value(wave) >> (place(wave) & (width - 1)) & 1) == wanted)

    return compare


def _save_exec(operands: tuple[str, ...], logic: Callable[[int, int], int], width: int) -> Step:
    write, read, keep = scalar_target(operands[0], width), scalar_source(operands[1], width), (1 << width) - 1

    def save(wave: Wave) -> None:
        value, old = read(wave), wave.exec
        write(wave, old)
        wave.set_mask(EXEC, logic(value, old) & keep)
        wave.scc = int(wave.exec != 0)

    return save


def _arithmetic(instruction: Instruction, name: str) -> Step:
    operands = list(instruction.operands)
    if name in WITH_CONSTANT:  # the constant's 16 bits are signed
        name = WITH_CONSTANT[name]
        operands[-1] = hex(signed(int(operands[-1], 0) & 0xFFFF, 16) & 0xFFFFFFFF)
        operands[1:1] = operands[:1] if len(operands) == 2 and name != "s_mov_b32" else []
    if name not in SCALAR_OPS:
        raise instruction.unknown("unknown instruction")
    op = SCALAR_OPS[name]
    if name in ACCUMULATING:
        operands.append(operands[0])
    widths = op.widths or (op.width,) * (len(operands) - 1)
    write = scalar_target(operands[0], op.width)
    reads = [scalar_source(text, width) for text, width in zip(operands[1:], widths, strict=True)]
    result, scc, carries, keep = op.result, op.scc, op.carries, (1 << op.width) - 1

    def compute(wave: Wave) -> None:
        values = [read(wave) for read in reads]
        whole = result(*values, wave.scc) if carries else result(*values)
        write(wave, whole & keep)
        if scc is not None:
            wave.scc = int(scc(whole, *values))

    return compute
