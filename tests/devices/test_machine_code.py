"""Loops of machine code, beside nvdisasm's text and LLVM's comments, and chains of loads that are known by construction."""

import re
import struct
import subprocess
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import triton
import triton.language as tl
from sweep import in_turn, mostly_slow

from portable_probe.tune.launches import row_kernel
from portable_softmax import Device
from portable_softmax.devices.backends.machine_code import Loop
from portable_softmax.planning.cost import row_work
from portable_softmax.runtime.compile import compiled
from portable_softmax.runtime.kernel import Kernel

NVDISASM = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
ROWS = {"y": "*fp32:16", "x": "*fp32:16", "n_rows": "i32", "n_cols": "i32:16"}
PRODUCTS = "nvidia/t4", "nvidia/a100-80gb-sxm", "nvidia/h100-sxm", "nvidia/b200", "nvidia/rtx-5090"
QUICK = ("nvidia/t4", 4096), ("nvidia/h100-sxm", 512)  # distances of branches in words, and in bytes


@triton.jit
def chase(y, x, n_rows, LENGTH: tl.constexpr):
    """Follows a chain of so many loads per row, beside one load that waits for nothing."""
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        at = tl.load(x + row)
        for _ in tl.static_range(LENGTH - 1):
            at = tl.load(x + at)
        tl.store(y + row, at + tl.load(y + row))


def loops_of(device, kernel, signature, **constexprs):
    binary = compiled(Kernel(kernel, (*signature.items(), *constexprs.items()), (4, None)), device)
    return device.vendor.loops(binary), binary


def disassembled(code, folder):
    """Returns (instructions, loads) of a cubin's loops by nvdisasm's text: from a label to the last branch back to it."""
    (folder / "kernel.cubin").write_bytes(code)
    text = subprocess.run([NVDISASM, "-c", "-ndf", folder / "kernel.cubin"], capture_output=True, text=True, check=True).stdout
    labels, lines = {}, []
    for line in text.splitlines():
        if label := re.match(r"(\.L_x_\d+):", line):
            labels[label[1]] = len(lines)
        elif instruction := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            lines.append(instruction[1])
    branches = ((re.search(r"BRA.*`?\((\.L_x_\d+)\)", line), at) for at, line in enumerate(lines))
    spans = {labels[found[1]]: at for found, at in branches if found and labels[found[1]] < at}
    loops = []
    for start, end in spans.items():
        inner = [span for span in spans.items() if start <= span[0] and span[1] <= end and span != (start, end)]
        own = [lines[at] for at in range(start, end + 1) if not any(first <= at <= last for first, last in inner)]
        loops.append((len(own), sum(bool(re.search(r"\bLDG", line)) for line in own)))
    return loops


@pytest.mark.skipif(not NVDISASM.exists(), reason="this Triton has no nvdisasm")
@pytest.mark.parametrize(("name", "block"), mostly_slow(product(PRODUCTS, (512, 4096)), lambda *case: case in QUICK))
def test_loops_are_those_of_nvdisasm(name, block, tmp_path):
    loops, compiled = loops_of(Device.from_profile(name), row_kernel, ROWS, BLOCK=block)
    read = [(loop.clocks, loop.loads) for loop in loops if loop.depth]
    assert sorted(read) == sorted(disassembled(compiled.asm["cubin"], tmp_path))
    assert {loop.depth for loop in loops} == {0, 1, 2}


@pytest.mark.parametrize(
    ("product", "length"), in_turn(["nvidia/a100-80gb-sxm", "nvidia/h100-sxm", "amd/mi300x", "amd/rx-9070-xt"], [1, 2, 5])
)
def test_loads_that_wait_for_one_another_are_a_chain(product, length):
    signature = {"y": "*i32", "x": "*i32", "n_rows": "i32"}
    loops, _ = loops_of(Device.from_profile(product), chase, signature, LENGTH=length)
    assert [(loop.depth, loop.loads, loop.chained) for loop in loops if loop.depth] == [(1, length + 1, length)]


def test_code_that_reads_oddly_is_not_read():
    """The cost is then that of a kernel of which no machine code is known."""
    device = Device.from_profile("nvidia/h100-sxm")
    loops, compiled = loops_of(device, row_kernel, ROWS, BLOCK=512)
    code, metadata = compiled.asm["cubin"], compiled.metadata
    before_volta = SimpleNamespace(target=SimpleNamespace(arch=60))
    branch = struct.pack("<Q", 0x947 | 7 << 12 | 1 << 40)  # forwards, by more than the kernel has
    end = code.index(struct.pack("<Q", 0xFFFFFFFC00FC7947))  # the branch to itself at the end
    odd = code[:1000], code.replace(b".text.", b".txet."), code[:end] + branch + code[end + 8 :], b""
    for some, about in [*((some, metadata) for some in odd), (code, before_volta)]:
        assert device.vendor.loops(SimpleNamespace(asm={"cubin": some}, metadata=about)) == []
    assert device.vendor.loops(compiled) == loops != []
    assert Device.from_profile("amd/mi300x").vendor.loops(SimpleNamespace(asm={"amdgcn": "s_endpgm"}, metadata=metadata)) == []


def test_work_of_a_row_follows_from_loops():
    """Checks loops over blocks as they are, and unrolled by four with one block behind the loop."""
    outside, rows, blocks = Loop(0, 50, 0, 0), Loop(1, 100, 0, 0), Loop(2, 20, 2, 1)
    unrolled, with_rest = Loop(2, 80, 8, 4), Loop(1, 100 + 20, 2, 1)
    assert row_work([], True, 8) == (0, 0)
    assert row_work([outside, rows], True, 0) == (100, 0)
    assert row_work([outside, rows], False, 0) == (150, 0)
    assert row_work([outside, rows, blocks], True, 8) == (100 + 4 * 20, 4 * 1)
    assert row_work([outside, with_rest, unrolled], True, 8) == (80 + 120 - 20, 4 + 1 - 1)
