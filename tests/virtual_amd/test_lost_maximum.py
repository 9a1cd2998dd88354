"""Each instruction of a maximum is dropped from machine code that is right."""

import re
from types import SimpleNamespace

import pytest
from lost_maximum import *  # noqa: F403

from portable_probe import virtual
from portable_probe.report_types import SoftmaxProblem
from portable_softmax import Device, plan
from portable_softmax.errors import KernelError

MAX = re.compile(r"^\tv_(?:pk_)?max(?:imum)?3?(?:_num)?_f(?:16|32|64)\w* (.+)$", re.MULTILINE)
CASES = [("amd/mi300x", 256, 781, "float32"), ("amd/mi300x", 256, 4096, "bfloat16"), ("amd/rx-7900-xtx", 256, 781, "float32")]
QUICK = [("amd/mi300x", 64, 781, "float32")]


def losses(text, n_cols):
    """Drops instructions that take the larger of two numbers; max(x, x) only makes nan quiet."""
    for found in MAX.finditer(text):
        operands = [each.split()[0] for each in found[1].split(", ")][1:]
        if len({*operands}) > 1:
            yield found[0].strip(), lambda code, at=found: f"{code[: at.start()]}\ts_nop 0{code[at.end() :]}"


@pytest.fixture
def verified(monkeypatch):
    compile_kernel = virtual.compile_kernel

    def run(profile, n_rows, n_cols, dtype, change):
        def changed(spec, device):
            compiled = compile_kernel(spec, device)
            return SimpleNamespace(asm={"amdgcn": change(compiled.asm["amdgcn"])}, metadata=compiled.metadata)

        monkeypatch.setattr(virtual, "compile_kernel", changed)
        device, case = Device.from_profile(profile), SoftmaxProblem(n_rows=n_rows, n_cols=n_cols, dtype=dtype)
        try:
            return virtual.verify_softmax(case, plan(n_rows, n_cols, dtype, device), device).right
        except KernelError:
            return False

    return run
