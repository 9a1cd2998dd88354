"""Each part of a maximum is taken out of lowered code that is right."""

import copy
import re

import pytest
import torch
from lost_maximum import *  # noqa: F403

from portable_probe.report_types import SoftmaxProblem
from portable_probe.trial import trial
from portable_softmax import current_device
from portable_softmax.runtime import prepared
from portable_softmax.runtime.launch import softmax_rows
from virtual.mlir import shared_object

ARCH = "Ascend910B3"
CASES = QUICK = [(ARCH, 256, 16, "float16"), (ARCH, 256, 781, "float32"), (ARCH, 256, 10000, "bfloat16")]
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


def losses(linalg, n_cols):
    """Takes out parts that each maximum of rows, or of parts of them, may lose."""
    for found in LARGER.finditer(linalg):
        one, other = found.groups()
        for operation in (f"maxnumf {one}, {one}", f"maxnumf {other}, {other}", f"minnumf {one}, {other}"):
            instead = f"{linalg[: found.start()]}arith.{operation} :{linalg[found.end() :]}"
            yield f"{found[0]} {operation}", lambda _, code=instead: code
    for found in REDUCED.finditer(linalg):
        for part in parts_of(min(int(found["width"]), n_cols)):
            yield f"linalg.reduce without {part}", lambda code, at=found, part=part: without(code, at, part)


@pytest.fixture
def verified(machine, monkeypatch):
    launcher = prepared.launcher

    def run(arch, n_rows, n_cols, dtype, change):
        device = current_device(machine.index(arch))

        def changed(compiled, constexprs, device_index):
            other = copy.copy(compiled)
            other.module, other.kernel = None, shared_object(change(compiled.asm["ttadapter"]))
            return launcher(other, constexprs, device_index)

        monkeypatch.setattr(prepared, "launcher", changed)
        case = SoftmaxProblem(n_rows=n_rows, n_cols=n_cols, dtype=dtype)
        tried = trial(case, n_rows, device, "cpu")  # the device makes no random numbers
        y, x = (torch.empty(n_rows, each.stride(0), dtype=each.dtype, device=f"npu:{device.index}") for each in tried.operands)
        x, y = x[:, :n_cols].copy_(tried.operands[1]), y[:, :n_cols]
        softmax_rows(x, y, device)
        tried.operands[0].copy_(y)
        return tried.compared().right

    return run


def test_columns_past_the_row_can_be_lost(verified):
    """Code that is changed is right otherwise."""
    past = (LANES, 16, 13)  # columns 832 to 895 of a tile of 1024

    def changed(linalg):
        (found,) = REDUCED.finditer(linalg)
        assert found["width"] == "1024"
        return without(linalg, found, past)

    assert verified(*CASES[1], changed)
