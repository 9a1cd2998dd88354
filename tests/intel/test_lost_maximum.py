"""Each operand of a maximum is taken out of SPIR-V that is right."""

import pytest
import torch
from lost_maximum import *  # noqa: F403

from intel import machine
from intel.spirv import edited, instructions, never_published, opcode
from portable_probe.report_types import SoftmaxProblem
from portable_probe.trial import trial
from portable_softmax import Device
from portable_softmax.runtime import launch, prepared

PRODUCT = "intel/max-1550"
CASES = [
    (PRODUCT, 256, 64, "float16"),
    (
        PRODUCT,
        1024,
        781,
        "float32",
    ),  # unaligned: few columns are an edge, and none of 256 rows may have its largest element there
    (PRODUCT, 256, 4096, "bfloat16"),
    (PRODUCT, 256, 20_000, "float32"),
]
QUICK = CASES[:2]
SHARED = 20_000  # columns of rows that programs share
EXTENDED, CONSTANT, COPY = 12, 43, 83
F_MAX = 27  # of OpenCL's extended instructions
OF_SPLITS, OF_LANES = 356, 358  # OpGroupNonUniformSMax and FMax: the largest of a sub-group's numbers
REDUCE = 0  # of a sub-group, not of the results of all


def kept_operands(instruction, constants):
    """The operands of a maximum, each of which is a result that has lost the others; none if it is no maximum of a row."""
    if opcode(instruction) == OF_LANES or (opcode(instruction) == OF_SPLITS and instruction[4] == REDUCE):
        return instruction[5:6]  # the lane's own; numbers of splits are all in the first sub-group
    if opcode(instruction) != EXTENDED or instruction[4] != F_MAX:
        return ()
    operands = {*instruction[5:7]}
    return () if len(operands) == 1 or operands & constants else instruction[5:7]  # max(x, x), or a limit of x


def losses(spirv, n_cols):
    """Makes a maximum a copy of one of its operands."""
    code = list(instructions(spirv))
    constants = {each[2] for each in code if opcode(each) == CONSTANT}
    for at, each in enumerate(code):
        for kept in kept_operands(each, constants):
            yield (at, kept), with_loss(at, kept)


def with_loss(at, kept):
    """An edit of a module: the instruction with that number copies the operand."""

    def edit(spirv):
        numbers = iter(range(10**6))
        return edited(spirv, lambda each: (4 << 16 | COPY, *each[1:3], kept) if next(numbers) == at else each)

    return edit


@pytest.fixture
def verified(monkeypatch):
    """Where programs share rows, also with words that are never published: what a program then does by itself runs for sure."""

    def run(product, n_rows, n_cols, dtype, edit):
        edits = [edit, lambda spirv: edited(edit(spirv), never_published)][: 1 + (n_cols >= SHARED)]
        return all(right(Device.from_profile(product), n_rows, n_cols, dtype, each) for each in edits)

    def right(device, n_rows, n_cols, dtype, edit):
        def launcher(compiled, constexprs, device_index):
            return lambda grid, *arguments: machine.run(compiled, grid, arguments, edit)

        monkeypatch.setattr(prepared, "launcher", launcher)
        tried = trial(SoftmaxProblem(n_rows=n_rows, n_cols=n_cols, dtype=dtype), n_rows, device, "cpu")
        launch.bind_problem(tried.problem, device, torch.device("cpu"), tried.numbers)(*tried.operands)
        return tried.compared().right

    return run
