"""Atomic operations: GLOBAL_ATOMIC, BUFFER_ATOMIC and DS, which take one lane after another."""

import re
from collections.abc import Callable

import numpy as np

from amdgcn_cpu.arrays import Array
from amdgcn_cpu.parsing import Instruction
from amdgcn_cpu.shapes import Access, put, register_of, take
from amdgcn_cpu.state import Wave

Places = Callable[[Wave], tuple[Array, Array]]  # the lanes that access memory, and their addresses
Exchange = Callable[[Wave, int, int], int]  # writes what an operand makes of the word at an address, and returns the old word

_NAME = re.compile(
    r"(?P<operation>cmpswap|cmpst(?:ore)?|swap|wrxchg|storexchg|pk_add|add|sub|[sui]?min|[sui]?max|fmin|fmax|min_num|max_num|and|or|xor)"
    r"(?P<returns>_rtn)?(?:_(?P<type>x2|bf16|[buif](?:16|32|64)))?"
)
_SAME = {"cmpst": "cmpswap", "cmpstore": "cmpswap", "wrxchg": "swap", "storexchg": "swap", "min_num": "min", "max_num": "max"}


def atomic_of(text: str) -> tuple[str, int, bool] | None:
    """Reads the end of a mnemonic: `add_f32`, `smax_x2`, `cmpswap_b64`, `add_rtn_u32`.

    Returns (operation, bytes, whether it returns the old value), where the operation has its type, as `max_i`, `add_f` or
    `pk_add_bf16`; None for another instruction.
    """
    match = _NAME.fullmatch(text)
    if not match:
        return None
    operation, kind = match["operation"], match["type"] or "u32"
    size = 8 if kind == "x2" or kind.endswith("64") else 4
    letter = kind[0] if kind[0] in "if" else "u"
    if operation[0] in "suf" and operation[1:] in ("min", "max"):
        operation, letter = operation[1:], {"s": "i", "u": "u", "f": "f"}[operation[0]]
    operation = _SAME.get(operation, operation)
    if operation == "pk_add":
        return f"pk_add_{kind}", 4, bool(match["returns"])
    return f"{operation}_{letter}" if operation in ("min", "max", "add") else operation, size, bool(match["returns"])


def compile_atomic(
    instruction: Instruction, result: str | None, data: list[str], size: int, double: bool, places: Places, exchange: Exchange
) -> Callable[[Wave], None]:
    """Compiles an atomic operation.

    Args:
        instruction: the instruction.
        result: the register of the old value; None drops it.
        data: registers of the operand; LDS has the two of a comparison apart, the expected word last.
        size: bytes of a word.
        double: whether the operand is two words, the new one and the expected one.
        places: the lanes that take part, and their addresses.
        exchange: performs the operation on one word.
    """
    width = size * (2 if double and len(data) == 1 else 1)
    operands = [register_of(instruction, text) for text in data]
    target = register_of(instruction, result) if result else None

    def atomic(wave: Wave) -> None:
        lanes, addresses = places(wave)
        values = np.concatenate([take(wave, register, Access(width), lanes) for register in operands], axis=1)
        for lane, place, value in zip(lanes, addresses, values, strict=True):
            old = exchange(wave, int(place), int.from_bytes(value.tobytes(), "little"))
            if target is not None:
                before = np.frombuffer(old.to_bytes(size, "little"), np.uint8)[None]
                put(wave, target, Access(size), np.array([lane]), before)

    return atomic
