"""Launches as they are planned: compiled for every product by Intel's compilers, and run as planned, whatever the layout."""

import itertools
import re
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from closeness import expected, expected_gradient, gradient_scale, terms_of
from direct import planned
from offline import GPUS, read_problem

from intel import machine
from intel.spirv import for_a_cpu, instructions, opcode
from portable_softmax import Device, occupancy, plan, profiles
from portable_softmax.devices.backends import xpu
from portable_softmax.devices.backends.base import Detected
from portable_softmax.devices.device import merge
from portable_softmax.devices.profiles import match_profile
from portable_softmax.planning.plan import Tiling
from portable_softmax.runtime import compiled as memory
from portable_softmax.runtime import launch, plans, prepared
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.specialization import KernelSpec

PRODUCTS = sorted(name for name, profile in profiles().items() if profile.backend == "xpu")
ARCHITECTURES = sorted({profiles()[name].arch: name for name in PRODUCTS}.values())
LENGTHS = (17, 781, 1024, 8191, 12672, 16384, 50_257, 131_072, 3 * 10**6)
MORE = (1, 100, 333, 1000, 2048, 4096, 6000, 8192, 16383, 20_000, 32_768, 65_536, 100_003, 262_144, 10**6)
DTYPES = ("float32", "bfloat16")


@pytest.fixture
def planned_launches(monkeypatch, recorded):
    """The strategies of launches by this package's own planner and launcher, of which the last step alone is the CPU's."""
    strategies = []

    def launcher(compiled, constexprs, device_index):
        return lambda grid, *arguments: machine.run(compiled, grid, arguments)

    def noted(problem, device, plan_problem=plans.plan_problem):
        found = plan_problem(problem, device)
        strategies.append(found.tiling.strategy)
        return found

    monkeypatch.setattr(prepared, "launcher", launcher)
    monkeypatch.setattr(launch, "plan_problem", noted)
    return strategies


def run(operands, dim, device, form="softmax", backward=False):
    planned(device, operands, form, backward, dim)


def random(shape, dtype, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).mul(3).to(getattr(torch, dtype))


def layouts():
    """(what it is, a tensor, the softmax's dim) of each; the result has the same strides."""
    yield "rows", lambda dtype: random((70, 64), dtype), 1
    yield "unaligned rows", lambda dtype: random((5, 781), dtype), 1
    yield "sliced rows", lambda dtype: random((6, 1000), dtype)[:, 100:900], 1
    yield "long rows", lambda dtype: random((3, 20_000), dtype), 1
    yield "longer rows than are shared", lambda dtype: random((1, 1_200_000), dtype), 1
    yield "transposed heads", lambda dtype: random((2, 37, 5, 64), dtype).transpose(1, 2), 3
    yield "across lines", lambda dtype: random((100, 96), dtype), 0
    yield "across lines in matrices", lambda dtype: random((3, 50, 40), dtype), 1
    yield "across short lines", lambda dtype: random((200, 21, 5), dtype), 1
    yield "across many lines", lambda dtype: random((2, 20_000, 16), dtype), 1
    yield "across lines of an odd length", lambda dtype: random((1, 2400, 33), dtype), 1


DIES = {  # launches, and why they do not run here; all other types and directions of each layout do
    "across many lines-bfloat16-gradient": "intel-opencl-rt 2026.2 always dies of this kernel, in the pass that build.py names"
}


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "gradient"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("make", "dim"), [each[1:] for each in layouts()], ids=[each[0] for each in layouts()])
def test_planned_launches(planned_launches, recorded, request, make, dim, dtype, backward):
    if request.node.callspec.id in DIES:
        pytest.skip(DIES[request.node.callspec.id])
    device, x = Device.from_profile("intel/max-1550"), make(dtype)
    y = torch.empty_like(x, memory_format=torch.preserve_format).copy_(expected("softmax", x, dim).to(x.dtype))
    y = x.clone().copy_(y) if x.is_contiguous() else torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(y)
    if backward:
        dy, dx = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(random(x.shape, dtype, 1)), y.clone().zero_()
        dx = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).zero_()
        run((dx, dy, y), dim, device, "softmax", True)
        recorded(dx, expected_gradient("softmax", dy, y, dim), gradient_scale("softmax", dy, y, dim))
    else:
        result = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).fill_(-1)
        run((result, x), dim, device)
        recorded(result, expected("softmax", x, dim))
    assert planned_launches


@pytest.mark.parametrize("form", ["log_softmax", "softmin"])
@pytest.mark.parametrize("product", ARCHITECTURES)
def test_every_architecture_computes_what_is_planned_for_it(planned_launches, recorded, product, form):
    device = Device.from_profile(product)
    for shape in ((70, 64), (5, 781), (2, 20_000)):
        x = random(shape, "float32")
        result = torch.empty_like(x)
        run((result, x), 1, device, form)
        recorded(result, expected(form, x), terms_of(form))
    assert planned_launches == ["tile", "tile", "shared"]


@pytest.mark.parametrize("product", ARCHITECTURES)
@pytest.mark.parametrize("lengths", [LENGTHS, pytest.param(MORE, marks=pytest.mark.slow)], ids=["some", "more"])
def test_static_quality(ocloc, record_count, lengths, product):
    """Every plan is there, with registers, spills nothing and fits."""
    device = Device.from_profile(product)
    faults, compared, strategies = [], 0, set()
    for n_rows, n_cols, dtype, backward in itertools.product((4096,), lengths, DTYPES, (False, True)):
        found = plan(n_rows, n_cols, dtype, device, backward=backward)
        used = found.resources
        strategies.add((found.tiling.strategy, found.tiling.held))
        compared += 1
        if not used.registers_per_thread or used.spilled_bytes_per_thread or not found.occupancy.programs_per_multiprocessor:
            faults.append(f"{n_rows} x {n_cols} {dtype} {'gradient' if backward else 'softmax'}: {found}")
    record_count(f"static quality, xpu/{device.arch}", compared, len(faults))
    assert not faults, faults[0]
    assert strategies >= {("tile", True), ("shared", True)} | ({("shared", False)} if lengths is LENGTHS else set())


@pytest.fixture
def fresh(monkeypatch):
    """No plan and no kernel of earlier tests."""
    monkeypatch.setattr(memory, "_compiled", {})
    plans.plan_problem.cache_clear()
    yield
    plans.plan_problem.cache_clear()


def test_without_ocloc_registers_are_estimated(monkeypatch, fresh):
    monkeypatch.setattr(xpu, "OCLOC", "no-such-compiler")
    found = plan(4096, 999, "float32", "intel/max-1550")
    assert found.resources.registers_per_thread is None
    assert any(reason.startswith("registers are estimated") for reason in found.reasons)
    assert found.occupancy.limits["registers (estimated)"] == 32 // found.num_warps


def test_ocloc_is_asked_for_the_device_and_the_register_mode(ocloc):
    """256 GRFs of 64 bytes are 128 registers of each of 32 lanes; left to itself, the compiler takes 96 GRFs on Xe3."""
    tiling = Tiling(1, 1024, 4, 1)
    for product, most, registers in (("intel/max-1550", 64, 64), ("intel/max-1550", 128, 128), ("intel/arc-b390", None, 48)):
        device = Device.from_profile(product)
        problem = read_problem(4096, 1024, "float32", device)
        spec = KernelSpec.of(problem, replace(tiling, max_registers=most))
        assert device.vendor.resources(compile_kernel(spec, device)).registers_per_thread == registers


def test_an_error_of_ocloc_is_the_plans(ocloc, monkeypatch, fresh):
    native = xpu._native
    monkeypatch.setattr(xpu, "_native", lambda ocloc, spirv, version, flags: native(ocloc, b"no SPIR-V", version, flags))
    with pytest.raises(Exception, match=r"ocloc for 12\.60\.7 ended with"):
        plan(4096, 1001, "float32", "intel/max-1550")


def test_sycl_is_needed_for_a_live_device_alone():
    """Triton builds a module that names a live device's architecture; one that is not here has no number there."""
    built = []

    def build(source, name):
        built.append(name)
        return SimpleNamespace(parse_device_arch=lambda number: f"arch {number}")

    names = xpu._BuiltWhenAsked(build)("source", "arch_utils")
    assert (names.parse_device_arch(0), built) == ("", [])
    assert (names.parse_device_arch(7), built) == ("arch 7", ["arch_utils"])
    xpu._BuiltWhenAsked(build)("source", "spirv_utils")
    assert built[1:] == ["spirv_utils"]


@pytest.mark.parametrize("product", ARCHITECTURES)
def test_plans_for_an_unknown_architecture_fit_every_known_one(ocloc, product):
    known = Device.from_profile(product)
    hardware = known.hardware
    driver = {"shared_memory_per_program_max": hardware.shared_memory_per_program_max, "max_threads_per_program": 1024}
    torch_facts = {"multiprocessor_count": hardware.multiprocessor_count}
    estimated = merge(match_profile("xpu", "99.9.9", None), Detected(None, known.arch, driver, torch_facts), None)
    assert estimated.profile.estimated
    for n_cols in (781, 16384, 131_072):
        found = plan(4096, n_cols, "float32", estimated)
        assert found.occupancy.programs_per_multiprocessor >= 1
        lanes = hardware.warp_size // 16
        same = replace(found.resources, num_warps=-(-found.num_warps // lanes))
        assert found.occupancy.programs_per_multiprocessor <= occupancy(same, known).programs_per_multiprocessor or lanes == 1


def test_other_vendors_are_not_compiled_for():
    """triton-xpu is a package `triton`, with a backend for Intel and one for NVIDIA."""
    with pytest.raises(Exception, match=r"do not compile for hip|does not compile for hip"):
        plan(64, 64, "float32", next(name for name in GPUS if name.startswith("amd/")))


def test_header_instructions_alone_are_left_out():
    device = Device.from_profile("intel/max-1550")
    found = plan(4096, 781, "float32", device)
    spirv = compile_kernel(KernelSpec.of(found.problem, found.tiling), device).asm["spv"]
    left_out = [each for each in instructions(spirv) if for_a_cpu(each) is None]
    assert 1 <= len(left_out) <= 5
    assert {opcode(each) for each in left_out} <= {10, 16, 17}
    assert re.fullmatch(r"12\.60\.7", device.arch)


def native_accesses(spec, device, ocloc, folder):
    """Accesses to global memory in the native code, as its disassembly has them: load.ugm.d32x4 is 16 bytes of each lane."""
    compiled = compile_kernel(spec, device)
    binary = folder / "kernel.bin"
    binary.write_bytes(xpu._native(ocloc, compiled.asm["spv"], device.arch, compiled.metadata.build_flags))
    subprocess.run(
        [ocloc, "disasm", "-file", binary, "-device", device.arch, "-dump", folder / "parts"], check=True, capture_output=True
    )
    (text,) = folder.glob("parts/.text.*.asm")
    return set(
        re.findall(r"\b(?:load|store|atomic_\w+)\.ugm\.d\d+(?:x\d+)?\b(?!t)", text.read_text())
    )  # t: of a whole sub-group


@pytest.mark.parametrize("product", ARCHITECTURES)
@pytest.mark.parametrize(("dtype", "n_cols"), [("float32", 1024), ("bfloat16", 8192)])
def test_native_code_reads_and_writes_16_bytes_at_a_time(ocloc, tmp_path, product, dtype, n_cols):
    device = Device.from_profile(product)
    found = plan(4096, n_cols, dtype, device)
    spec = KernelSpec.of(found.problem, found.tiling)
    assert native_accesses(spec, device, ocloc, tmp_path) == {"load.ugm.d32x4", "store.ugm.d32x4"}


@pytest.mark.parametrize("product", ARCHITECTURES)
def test_programs_that_share_a_row_poll_by_atomic_operations(ocloc, tmp_path, product):
    """Triton makes a plain load of a volatile one here, which a compiler may take out of the loop."""
    device = Device.from_profile(product)
    found = plan(64, 65_536, "float32", device)
    assert found.tiling.splits > 1
    spec = KernelSpec.of(found.problem, found.tiling)
    assert {each.split(".")[0] for each in native_accesses(spec, device, ocloc, tmp_path)} >= {"atomic_or", "load", "store"}
