"""Rows in matrices are found by two divisions of 64 bits: ptxas makes a second one of each where it sees a remainder."""

import subprocess
from pathlib import Path

import pytest
import torch

from portable_softmax import Device
from portable_softmax.planning.lines import lines_of
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.launch import problem_from
from portable_softmax.runtime.plans import plan_problem
from portable_softmax.runtime.specialization import KernelSpec


@pytest.mark.parametrize("backward", [False, True])
def test_heads_divide_twice(backward, tmp_path):
    triton = pytest.importorskip("triton")
    device, file = Device.from_profile("nvidia/h200"), tmp_path / "kernel.cubin"
    result, heads = (
        torch.empty(16, 16, 680, 192, dtype=torch.bfloat16, device="meta"),
        torch.empty(16, 680, 16, 192, device="meta"),
    )
    operands = (result, heads.bfloat16().transpose(1, 2), *([result] if backward else []))
    lines = lines_of(result.shape, 3, [each.stride() for each in operands], True)
    assert lines.depth == 3
    found = plan_problem(problem_from(operands, lines, "softmax", backward, False), device)
    file.write_bytes(compile_kernel(KernelSpec.of(found.problem, found.tiling), device).asm["cubin"])
    cuobjdump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    printed = subprocess.run([cuobjdump, "-sass", file], capture_output=True, text=True, check=True).stdout
    assert printed.count("CALL.REL") == 2, "of divisions whose operands do not fit 32 bits; others are expanded in place"
