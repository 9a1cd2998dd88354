"""`--verify` sees a kernel that loses a part of a row's maximum: each part is taken out of lowered code that is right."""

import copy
import re

import pytest
import torch

from portable_softmax import current_device
from portable_softmax.probe.schema import SoftmaxProblem
from portable_softmax.probe.trial import trial
from portable_softmax.runtime import prepared
from portable_softmax.runtime.launch import softmax_rows
from virtual.mlir import shared_object

SEEN = 0.95  # of all
N_ROWS = 256
CASES = [(16, "float16"), (781, "float32"), (10000, "bfloat16")]
LANES = 64  # float32 numbers that the vector unit takes at once: 256 bytes
LARGER = re.compile(r"arith\.maxnumf (%\w+), (%\w+) :")
REDUCED = re.compile(
    r"linalg\.reduce ins\(%\w+ : tensor<\d+x(?P<width>\d+)xf32>\) .* dimensions = \[1\] *\n.*\n"
    r"(?P<before> *%\w+ = arith\.maxnumf )%in, %init :"
)
KEPT = """
    %place = linalg.index 1 : index
    %of_each = arith.constant {of_each} : index
    %part = arith.divui %place, %of_each : index
    %parts = arith.constant {parts} : index
    %turn = arith.remui %part, %parts : index
    %gone = arith.constant {gone} : index
    %lost = arith.cmpi eq, %turn, %gone : index
    %kept = arith.select %lost, %init, %in : f32
"""


def parts_of(width):
    """(columns of each part, parts until the first comes again, the one that is lost) of what an instruction may lose.

    A vector unit takes the larger of vectors of LANES columns, and then of two halves of the last one until one number is left.
    So one of its instructions may lose the columns of a vector, or those of half of the lanes.
    """
    vectors = -(-width // LANES)
    yield from ((LANES, vectors, vector) for vector in range(vectors) if vectors > 1)
    for lanes in (1, 2, 4, 8, 16, 32):
        yield from ((lanes, 2, half) for half in range(2) if lanes < width)


def without(linalg, found, part):
    """Returns the code, whose maximum along rows is where `found` is, without a part of `parts_of` in it."""
    kept = KEPT.format(**dict(zip(("of_each", "parts", "gone"), part, strict=True)))
    return f"{linalg[: found.start('before')]}{kept}{found['before']}%kept, %init :{linalg[found.end() :]}"


def changes(linalg, n_cols):
    """(what is there instead, the whole code) of each part that each maximum of rows, or of parts of them, may lose."""
    for found in LARGER.finditer(linalg):
        one, other = found.groups()
        for operation in (f"maxnumf {one}, {one}", f"maxnumf {other}, {other}", f"minnumf {one}, {other}"):
            yield f"{found[0]} {operation}", f"{linalg[: found.start()]}arith.{operation} :{linalg[found.end() :]}"
    for found in REDUCED.finditer(linalg):
        for part in parts_of(min(int(found["width"]), n_cols)):
            yield f"linalg.reduce without {part}", without(linalg, found, part)


@pytest.fixture
def verified(machine, monkeypatch):
    """Verifies a softmax of rows on the device, with a change of its kernel's lowered code."""
    launcher = prepared.launcher
    device = current_device(machine.index("Ascend910B3"))

    def run(n_cols, dtype, change):
        def changed(compiled, constexprs, device_index):
            other = copy.copy(compiled)
            other.module, other.kernel = None, shared_object(change(compiled.asm["ttadapter"]))
            return launcher(other, constexprs, device_index)

        monkeypatch.setattr(prepared, "launcher", changed)
        case = SoftmaxProblem(n_rows=N_ROWS, n_cols=n_cols, dtype=dtype)
        tried = trial(case, N_ROWS, device, "cpu")  # the device makes no random numbers
        y, x = (torch.empty(N_ROWS, each.stride(0), dtype=each.dtype, device=f"npu:{device.index}") for each in tried.operands)
        x, y = x[:, :n_cols].copy_(tried.operands[1]), y[:, :n_cols]
        softmax_rows(x, y, device)
        tried.operands[0].copy_(y)
        return tried.compared().right

    return run


@pytest.fixture
def missed(verified, record_count):
    """Takes parts out of the maximum, one at a time, and returns those whose loss is not seen, and the number of all."""

    def run(n_cols, dtype, most=None):
        texts = []
        assert verified(n_cols, dtype, lambda linalg: texts.append(linalg) or linalg)
        every = list(changes(texts[0], n_cols))
        chosen = every if most is None else [every[at * (len(every) - 1) // (most - 1)] for at in range(most)]
        found = [name for name, code in chosen if verified(n_cols, dtype, lambda _, code=code: code)]
        record_count(f"parts lost of a maximum, {n_cols} of {dtype}", len(chosen), len(found))
        return found, len(chosen)

    return run


def test_columns_past_the_row_can_be_lost(verified):
    """Code that is changed is right otherwise."""
    n_cols, past = 781, (LANES, 16, 13)  # columns 832 to 895 of a tile of 1024

    def changed(linalg):
        (found,) = REDUCED.finditer(linalg)
        assert found["width"] == "1024"
        return without(linalg, found, past)

    assert verified(n_cols, "float32", changed)


@pytest.mark.parametrize(("n_cols", "dtype"), CASES)
def test_some_parts_of_the_maximum_that_are_lost(missed, n_cols, dtype):
    found, _ = missed(n_cols, dtype, most=4)
    assert not found


@pytest.mark.slow
@pytest.mark.parametrize(("n_cols", "dtype"), CASES)
def test_each_part_of_the_maximum_that_is_lost(missed, n_cols, dtype):
    found, total = missed(n_cols, dtype)
    assert len(found) <= (1 - SEEN) * total, found
