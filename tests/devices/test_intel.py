"""Intel: resident programs by the driver's own formula, and what is read of a zebin.

The formula is written here once more, apart from the package: KernelHelper::getMaxWorkGroupCount with
calculateAvailableThreadCount and alignSlmSizePerThreadGroup of intel/compute-runtime. Facts are its own, not the profiles'.
"""

import itertools
import re
import struct
from collections import namedtuple
from types import SimpleNamespace

import pytest

from portable_softmax import CompileError, Device, KernelResources, occupancy
from portable_softmax.devices.backends import BACKENDS, xpu
from portable_softmax.devices.backends.xpu import kernel_resources

KB = 1024
SLM_SIZES = [size * KB for size in (0, 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)]
UNEVEN = {24 * KB, 48 * KB, 96 * KB}  # sizes of which no whole number is what a core has
BARRIERS = 32
TWO_MODES = {128: 8, 256: 4}
# Numbers of a device, as the driver has them; modes are threads of an EU by the most GRFs of each.
Facts = namedtuple("Facts", "cores eus slm lanes grf_bytes modes")
PRODUCTS = {
    "intel/max-1550": Facts(64, 8, 128 * KB, 32, 64, TWO_MODES),
    "intel/arc-a770": Facts(32, 16, 64 * KB, 16, 32, TWO_MODES),
    "intel/arc-b390": Facts(12, 8, 128 * KB, 32, 64, {96: 10, 128: 8, 160: 6, 192: 5, 256: 4}),
}


def aligned(slm):
    return next(size for size in SLM_SIZES if slm <= size)


def by_the_driver(facts, warps, grfs, barriers, slm):
    """Programs of the whole device."""
    threads = facts.cores * facts.eus * next(count for most, count in facts.modes.items() if grfs <= most)
    groups = min(threads // warps, threads // facts.cores // warps * facts.cores)
    if barriers:
        groups = min(groups, facts.cores * (BARRIERS // barriers))
    return min(groups, facts.cores * facts.slm // aligned(slm)) if slm else groups


@pytest.mark.parametrize("name", PRODUCTS)
def test_programs_are_the_drivers(name):
    """It counts SLM of the whole device, as if a program's could lie in two cores; else there is no difference."""
    facts, device = PRODUCTS[name], Device.from_profile(name)
    assert device.hardware.multiprocessor_count == facts.cores
    sizes = sorted({0, 1, 16, *(size + odd for size in SLM_SIZES[1:] for odd in (-1, 0, 1) if size + odd <= facts.slm)})
    most, numbers = 1024 // facts.lanes, (1, 2, 3, 4, 7, 8, 12, 16, 31, 32, 64)
    for warps, grfs, barriers, slm in itertools.product(numbers, range(32, 257, 32), (0, 1), sizes):
        if facts.modes is TWO_MODES and grfs not in TWO_MODES:
            continue  # ocloc gives a kernel one or the other
        if warps > most // 2 and (warps > most or (facts.lanes < 32 and grfs > 128)):
            continue  # calculateMaxWorkGroupSize
        used = KernelResources(warps, grfs * facts.grf_bytes // 4 // facts.lanes, slm, barriers=barriers)
        ours = facts.cores * occupancy(used, device).programs_per_multiprocessor
        theirs = by_the_driver(facts, warps, grfs, barriers, slm)
        assert ours == theirs or (ours < theirs and aligned(slm) in UNEVEN), used


INFO = """---
version: '1.73'
kernels:
  - name: softmax_kernel
    execution_env: {{barrier_count: 1, grf_count: 256, simd_size: 32, {spill}eu_thread_count: 4}}
    per_thread_memory_buffers: [{memory}]
...
"""


def zebin(spill="", **memory):
    """A little-endian ELF64 file with the sections that are read."""
    buffers = ", ".join(f"{{type: scratch, usage: {usage}, size: {size}}}" for usage, size in memory.items())
    info, names = INFO.format(spill=spill, memory=buffers).encode() + b"\0", b"\0.ze_info\0.strtab\0"
    places = (1, 64, len(info)), (10, 64 + len(info), len(names))
    headers = [struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, start, size, 0, 0, 1, 0) for name, start, size in places]
    start = b"\x7fELF\x02\x01".ljust(0x28, b"\0") + struct.pack("<Q", 64 + len(info) + len(names))
    return b"".join([start.ljust(0x3A, b"\0"), struct.pack("<HHH", 64, 3, 2), info, names, bytes(64), *headers])


def compiled(code, flags=""):
    target = SimpleNamespace(arch={"version": "12.60.7"})
    metadata = SimpleNamespace(name="softmax_kernel", num_warps=4, shared=16, target=target, build_flags=flags)
    return SimpleNamespace(asm={"spv": code}, metadata=metadata)


@pytest.mark.parametrize(
    ("version", "binary", "expected"),
    [
        *((version, zebin(), (64, 1, 0, 0)) for version in ("12.55.8", "12.70.4")),  # 256 GRFs of 32 or 64 bytes
        *((version, zebin(), (128, 1, 0, 0)) for version in ("12.60.7", "12.61.7", "20.1.4", "30.0.4")),
        ("30.0.4", zebin("spill_size: 256, ", single_space=1024), (128, 1, 8, 32)),  # the rest is for something else
        ("30.0.4", zebin(single_space=1024), (128, 1, 32, 32)),  # older compilers do not say what it is for
        ("30.0.4", zebin(private_space=1024, spill_fill_space=64), (128, 1, 2, 34)),
    ],
)
def test_what_a_zebin_says_of_a_kernel(version, binary, expected):
    """Registers of a lane, barriers, bytes of spills and of the frame of a lane."""
    assert tuple(kernel_resources(binary, "softmax_kernel", version).values()) == expected


@pytest.mark.parametrize(("flags", "ends"), [("-cl-fast", "true"), ("", "true"), ("", 'rm "$last"'), ("", "false")])
def test_spirv_is_compiled_by_ocloc_if_it_is_there(monkeypatch, tmp_path, flags, ends):
    tool, native, words = tmp_path / "ocloc", tmp_path / "native.bin", tmp_path / "words"
    native.write_bytes(zebin())
    tool.write_text(f'#!/bin/sh\necho "$*" > {words}\nfor last; do :; done; cp {native} "$last"; {ends}\n')
    tool.chmod(0o755)
    monkeypatch.setattr(xpu, "OCLOC", str(tool))
    code, resources = compiled(b"\x03\x02\x23\x07", flags), BACKENDS["xpu"].resources
    if ends == "true":
        assert resources(code) == resources(compiled(zebin())) == KernelResources(4, 128, 16, barriers=1, stack_frame_bytes=0)
    else:  # there is no binary, or an error
        with pytest.raises(CompileError, match=r"ocloc for 12.60.7 ended with [01]"):
            resources(code)
    options = " -options -cl-fast" if flags else ""
    monkeypatch.setattr(xpu, "OCLOC", "no-such-compiler")
    assert resources(code) == KernelResources(4, shared_memory_bytes=16)
    assert re.fullmatch(rf"compile -spirv_input -file \S+ -device 12.60.7{options} -o \S+\n", words.read_text())
