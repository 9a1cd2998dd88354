"""`--verify` sees a kernel that loses a part of a row's maximum: each operand is taken out of SPIR-V that is right, in turn."""

import pytest
import torch

from intel import machine
from intel.spirv import edited, instructions, never_published, opcode
from portable_softmax import Device
from portable_softmax.probe.schema import SoftmaxProblem
from portable_softmax.probe.trial import trial
from portable_softmax.runtime import launch, prepared

SEEN = 0.95  # of all
PRODUCT = "intel/max-1550"
CASES = [
    (256, 64, "float16"),
    (1024, 781, "float32"),  # ragged: few columns are an edge, and none of 256 rows may have its largest element there
    (256, 4096, "bfloat16"),
    (256, 20_000, "float32"),
]
SHARED = 20_000  # columns of rows that programs share
EXTENDED, CONSTANT, COPY = 12, 43, 83
F_MAX = 27  # of OpenCL's extended instructions
OF_PARTS, OF_LANES = 356, 358  # OpGroupNonUniformSMax and FMax: the largest of a sub-group's numbers
REDUCE = 0  # of a sub-group, not of the results of all


def kept_operands(instruction, constants):
    """The operands of a maximum, each of which is a result that has lost the others; none if it is no maximum of a row."""
    if opcode(instruction) == OF_LANES or (opcode(instruction) == OF_PARTS and instruction[4] == REDUCE):
        return instruction[5:6]  # the lane's own; numbers of parts are all in the first sub-group
    if opcode(instruction) != EXTENDED or instruction[4] != F_MAX:
        return ()
    operands = {*instruction[5:7]}
    return () if len(operands) == 1 or operands & constants else instruction[5:7]  # max(x, x), or a limit of x


def losses(spirv):
    """(number of an instruction, the operand that is kept) of each part that a maximum may lose."""
    code = list(instructions(spirv))
    constants = {each[2] for each in code if opcode(each) == CONSTANT}
    return [(at, kept) for at, each in enumerate(code) for kept in kept_operands(each, constants)]


def with_loss(at, kept):
    """An edit of a module: the instruction with that number copies the operand."""

    def edit(spirv):
        numbers = iter(range(10**6))
        return edited(spirv, lambda each: (4 << 16 | COPY, *each[1:3], kept) if next(numbers) == at else each)

    return edit


@pytest.fixture
def verified(monkeypatch):
    """Verifies a softmax of rows as it is planned, with an edit of its kernel's SPIR-V.

    Where programs share rows, it does so also with words that are never published: what a program then does by itself would
    run or not as it comes.
    """
    device = Device.from_profile(PRODUCT)

    def run(n_rows, n_cols, dtype, edit):
        edits = [edit, lambda spirv: edited(edit(spirv), never_published)][: 1 + (n_cols >= SHARED)]
        return all(right(n_rows, n_cols, dtype, each) for each in edits)

    def right(n_rows, n_cols, dtype, edit):
        def launcher(compiled, constexprs, device_index):
            return lambda grid, *arguments: machine.run(compiled, grid, arguments, edit)

        monkeypatch.setattr(prepared, "launcher", launcher)
        tried = trial(SoftmaxProblem(n_rows=n_rows, n_cols=n_cols, dtype=dtype), n_rows, device, "cpu")
        launch.bind_problem(tried.problem, device, torch.device("cpu"), tried.numbers)(*tried.operands)
        return tried.compared().right

    return run


@pytest.fixture
def missed(verified, record_count):
    """Takes operands out of the maximum, one at a time, and returns those whose loss is not seen, and the number of all."""

    def run(n_rows, n_cols, dtype, most=None):
        modules = []
        assert verified(n_rows, n_cols, dtype, lambda spirv: modules.append(spirv) or spirv)
        every = losses(modules[0])
        chosen = every if most is None else [every[at * (len(every) - 1) // (most - 1)] for at in range(most)]
        found = [each for each in chosen if verified(n_rows, n_cols, dtype, with_loss(*each))]
        record_count(f"parts lost of a maximum, {n_cols} of {dtype}", len(chosen), len(found))
        return found, len(chosen)

    return run


@pytest.mark.parametrize(("n_rows", "n_cols", "dtype"), CASES[:2])
def test_some_operands_of_the_maximum_that_are_lost(missed, n_rows, n_cols, dtype):
    found, _ = missed(n_rows, n_cols, dtype, most=4)
    assert not found


@pytest.mark.slow
@pytest.mark.parametrize(("n_rows", "n_cols", "dtype"), CASES)
def test_each_operand_of_the_maximum_that_is_lost(missed, n_rows, n_cols, dtype):
    found, total = missed(n_rows, n_cols, dtype)
    assert len(found) <= (1 - SEEN) * total, found
