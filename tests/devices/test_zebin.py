"""Facts read of a zebin; real ones, of Intel's compiler, are read in tests/intel."""

import struct
from types import SimpleNamespace

import pytest

from portable_softmax import Device, KernelResources
from portable_softmax.devices.backends import xpu
from portable_softmax.devices.backends.zebin import kernel_info

INFO = """---
version: '1.73'
kernels:
  - name: other
    execution_env: {{grf_count: 96, simd_size: 16, eu_thread_count: 10}}
  - name: softmax_kernel
    execution_env: {{barrier_count: 1, grf_count: 256, simd_size: 32, {spill}eu_thread_count: 4}}
    {memory}
...
"""
FAMILIES = {"Xe-HPG": 0xC07, "Xe-HPC": 0xC08, "Xe3": 0x1E00}


def note(kind, number):
    return struct.pack("<III", 8, 4, kind) + b"IntelGT\0" + struct.pack("<I", number)


def elf(**contents):
    """A little-endian ELF64 file of these sections, as cubins and zebins are."""
    names = b"\0" + b"".join(f".{name}\0".replace("_", ".").encode() for name in contents) + b".strtab\0"
    parts, headers, at = [], [struct.pack("<IIQQQQIIQQ", *[0] * 10)], 64
    for name, content in [*contents.items(), ("strtab", names)]:
        name_at = names.index(f".{name}\0".replace("_", ".").encode())
        headers.append(struct.pack("<IIQQQQIIQQ", name_at, 1, 0, 0, at, len(content), 0, 0, 1, 0))
        parts.append(content)
        at += len(content)
    start = b"\x7fELF\x02\x01".ljust(0x28, b"\0") + struct.pack("<Q", at)
    header = start.ljust(0x3A, b"\0") + struct.pack("<HHH", 64, len(headers), len(headers) - 1)
    return header + b"".join([*parts, *headers])


def zebin(family, spill="", memory=""):
    text = INFO.format(spill=spill, memory=memory).encode() + b"\0"
    file = elf(ze_info=text, note_intelgt_compat=note(1, 7) + note(2, FAMILIES[family]))
    return file.replace(b".ze.info", b".ze_info")


@pytest.mark.parametrize(("family", "registers"), [("Xe-HPG", 64), ("Xe-HPC", 128), ("Xe3", 128)])
def test_grfs_are_registers_of_each_lane(family, registers):
    """256 of 32 or of 64 bytes, which 32 lanes share."""
    assert kernel_info(zebin(family), "softmax_kernel") == (registers, 1, 0, 0)


def test_barriers_and_spills_are_none_where_nothing_is_said_of_them():
    assert kernel_info(zebin("Xe3"), "other") == (96 * 64 // 4 // 16, 0, 0, 0)


@pytest.mark.parametrize(
    ("told", "buffers", "spilled", "frame"),
    [
        ("spill_size: 256, ", {"single_space": 1024}, 8, 32),  # the rest is for something else
        ("spill_size: 0, ", {"single_space": 1024}, 0, 32),
        ("", {"single_space": 1024}, 32, 32),  # older compilers do not say what it is for
        ("", {"private_space": 1024}, 0, 32),
        ("", {"private_space": 1024, "spill_fill_space": 64}, 2, 34),
        ("spill_size: 256, ", {}, 8, 8),
    ],
)
def test_spills_and_other_memory_are_counted_by_lane(told, buffers, spilled, frame):
    memory = ", ".join(f"{{type: scratch, usage: {usage}, size: {size}}}" for usage, size in buffers.items())
    found = kernel_info(zebin("Xe3", told, f"per_thread_memory_buffers: [{memory}]"), "softmax_kernel")
    assert (found.spilled, found.frame) == (spilled, frame)


def test_native_code_that_triton_made_itself_needs_no_other_compiler(monkeypatch):
    monkeypatch.setattr(xpu, "OCLOC", "no-such-compiler")
    metadata = SimpleNamespace(name="softmax_kernel", num_warps=4, shared=16)
    found = xpu.resources(SimpleNamespace(asm={"spv": zebin("Xe-HPC")}, metadata=metadata))
    assert found == KernelResources(4, 128, 16, barriers=1, stack_frame_bytes=0)
    unknown = xpu.resources(SimpleNamespace(asm={"spv": b"\x03\x02\x23\x07"}, metadata=metadata))
    assert unknown == KernelResources(4, None, 16)


@pytest.mark.parametrize(
    ("binary", "kernel", "complaint"),
    [
        (b"CTNI", "softmax_kernel", "not a zebin: no little-endian ELF64 header"),
        (elf(text=b"code"), "softmax_kernel", "it has no section .ze_info"),
        (zebin("Xe3"), "softmin", "the zebin says nothing of a kernel 'softmin'"),
        (zebin("Xe3").replace(note(2, 0x1E00), note(9, 0)), "other", "does not say which family"),
    ],
)
def test_what_is_no_zebin_is_refused(binary, kernel, complaint):
    with pytest.raises(ValueError, match=complaint):
        kernel_info(binary, kernel)


def test_a_limit_of_registers_is_a_mode_of_intels_compiler():
    hardware = Device.from_profile("intel/max-1550").hardware
    modes = {most: xpu.compile_options(4, 2, most, hardware)["grf_mode"] for most in (None, 64, 65, 128)}
    assert modes == {None: "auto", 64: "small", 65: "large", 128: "large"}
