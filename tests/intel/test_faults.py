"""Kernels that are wrong on purpose are caught: one instruction of the SPIR-V is another, one at a time."""

import os
import signal

import pytest
import torch
from direct import as_they_are, backward, forward
from machine_code import compare, spikes

from intel import build
from intel.machine import on_the_cpu
from intel.spirv import edited, for_a_cpu, instructions, opcode
from portable_softmax.planning.plan import Tiling

PRODUCT = "intel/max-1550"
F_ADD, F_SUB, F_MUL, F_DIV, STORE = 129, 131, 133, 136, 62
OTHERS = {F_ADD: F_SUB, F_SUB: F_ADD, F_MUL: F_ADD, F_DIV: F_MUL}  # with the same operands


def with_fault(at):
    """An edit of a module: the instruction with that number, of those in OTHERS, is another one."""

    def edit(spirv):
        seen = iter(range(10**6))

        def changed(instruction):
            if opcode(instruction) not in OTHERS or next(seen) != at:
                return instruction
            return (instruction[0] & ~0xFFFF | OTHERS[opcode(instruction)], *instruction[1:])

        return edited(spirv, changed)

    return edit


def caught(direction, name, edit, dtype=torch.float32):
    """Tells whether a comparison with float64, of rows of two kinds, fails."""
    kinds = (as_they_are, spikes) if direction is forward else (as_they_are,)
    for special in kinds:
        try:
            compare(direction, on_the_cpu(PRODUCT, edit), name, dtype=dtype, special=special)
        except AssertionError:
            return True
    return False


def count_of(direction, name):
    """Number of instructions of a case's kernel that can be another one."""
    seen = []

    def look(spirv):
        seen.append(sum(opcode(each) in OTHERS for each in instructions(spirv)))
        return spirv

    compare(direction, on_the_cpu(PRODUCT, look), name)
    return seen[0]


@pytest.mark.parametrize(("direction", "name"), [(forward, "rows"), (backward, "no mask"), (forward, "online")])
def test_arithmetic_that_is_other_arithmetic(record_count, direction, name):
    """Twelve instructions of each kernel, from its first to its last."""
    total = count_of(direction, name)
    chosen = sorted({round(split * (total - 1) / 11) for split in range(12)})
    missed = [at for at in chosen if not caught(direction, name, with_fault(at))]
    record_count(f"faults of arithmetic, {name}, {direction.__name__}", len(chosen), len(missed))
    assert not missed


def test_a_store_that_is_missing():
    def edit(spirv):
        stores = sum(opcode(each) == STORE for each in instructions(spirv))
        seen = iter(range(stores))
        return edited(spirv, lambda each: None if opcode(each) == STORE and next(seen) == stores - 1 else each)

    assert caught(forward, "no mask", edit)


def test_a_store_past_the_rows():
    """The guards see rows that are longer than they should be."""
    tiling, run = Tiling(1, 256, 1), on_the_cpu(PRODUCT)

    def longer(operands, problem, tiling, programs):
        y, x = operands
        n_rows, n_cols = y.shape
        wider = [each.as_strided((n_rows, n_cols + 4), each.stride()) for each in (y, x)]
        run(wider, problem, tiling, programs)

    with pytest.raises(AssertionError, match="outside of the rows"):
        forward(longer, "softmax", torch.float32, torch.device("cpu"), 192, tiling, 1, vector=4, special=as_they_are)


def test_a_compiler_that_dies_is_asked_again():
    os.kill(build.builder().submit(os.getpid).result(), signal.SIGKILL)
    kernel = build.kernel_of(edited(spirv_of("rows"), for_a_cpu))
    assert kernel.function_name == "softmax_kernel"


def spirv_of(name):
    """The SPIR-V of a case."""
    found = []
    compare(forward, on_the_cpu(PRODUCT, lambda spirv: found.append(spirv) or spirv), name)
    return found[0]
