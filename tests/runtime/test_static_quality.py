"""Compiled kernels waste nothing and wait with a bound, as far as their code shows; a kernel is compiled once."""

import re
from itertools import cycle
from types import SimpleNamespace

import pytest
from offline import H200, MI300X, PRODUCTS, read_problem
from sweep import mostly_slow

from amdgcn_cpu import Fault, Kernel
from portable_softmax import CompileError, Device, profiles
from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.planning.operands import contiguous_problem
from portable_softmax.planning.plan import spilled_by
from portable_softmax.planning.problem import VECTOR_BYTES, Problem, Scores
from portable_softmax.planning.tiling import Tiling
from portable_softmax.runtime.compile import compiled, resources_of
from portable_softmax.runtime.kernel import kernels_of
from portable_softmax.runtime.plans import plan_problem

DTYPES = cycle(("float16", "bfloat16", "float32"))
KINDS = [(n_cols, {}) for n_cols in (7, 781, 1024, 12672, 50257, 65536)]
KINDS += [(n_cols, {"backward": True}) for n_cols in (33, 781, 4096, 65536)]
SCORES = Scores(scale="number"), Scores(mask="bool"), Scores(mask="float32"), Scores(causal="upper_left", scale="number")
KINDS += [(2048, {"scores": scores}) for scores in SCORES]
PROBLEMS = [contiguous_problem(4096, n_cols, next(DTYPES), **kind) for n_cols, kind in KINDS]
PROFILES = [(name, profiles()[name]) for name in PRODUCTS if profiles()[name].backend != "xpu"]  # which need another Triton
QUICK = {"nvidia/t4": 0, H200: 1, MI300X: 2, "amd/rx-7900-xtx": 3}  # quarters of the problems
PTX_ACCESS = r"\b((?:ld|st)\.global[\w.:]*?(?:\.v(\d))?\.[bfu](\d+))\b"
AMD_ACCESS = r"\b((?:buffer|global|flat)_(?:load|store)_(?:d16_)?(?:hi_)?(\w+?)(?:_d16(?:_hi)?)?)\s"
AMD_BYTES = {"byte": 1, "ubyte": 1, "short": 2, "ushort": 2, "dword": 4, "dwordx2": 8, "dwordx4": 16}
UNCACHED = (  # reads that no cache of a multiprocessor answers, in PTX or AMD assembly
    r"\bld\.volatile\.global|\batom\.\S*\.or\.|_load_.*\b(?:glc|sc1|SCOPE_DEV|SCOPE_SYS)\b|_atomic_or.*\b(?:glc|sc0|TH_ATOMIC_RETURN)\b"
)
PTX_MASKED = r"@!?%p\d+ ((?:ld|st)\.global\S*\.v\d\S*)"


def plans():
    """Yields products and a quarter of the problems; all quarters of two products. Those of QUICK are not slow."""
    for number, (name, profile) in enumerate(PROFILES):
        for quarter in range(4) if name in (H200, MI300X) else [QUICK.get(name, number % 4)]:
            slow = [] if QUICK.get(name) == quarter else [pytest.mark.slow]
            yield pytest.param(name, quarter, marks=[pytest.mark.xdist_group(profile.arch), *slow])


@pytest.mark.parametrize(("profile", "quarter"), [*plans()])
def test_plans_and_their_kernels(profile, quarter):
    device, faults = Device.from_profile(profile), []
    for problem in PROBLEMS[quarter::4]:
        planned = plan_problem(problem, device)
        seen = [*planned.warnings, *(reason for reason in planned.reasons if "is not used: " in reason)]  # by spills, or ptxas
        if planned.tiling.num_warps:  # a compiler for the others is not here
            kernel, *_ = kernels_of(planned.problem, planned.tiling, device)
            binary = compiled(kernel, device)
            seen += faults_of_accesses(planned, binary.asm, device)
            seen += faults_of_loops(planned, binary, device, "words_ptr" in kernel.types)
        faults += [f"{problem.name} of {problem.size}: {fault}" for fault in seen]
    assert not faults


def faults_of_accesses(planned, asm, device):
    """Accesses of few bytes, and masks of vectors where tiles end where rows do.

    The ends of unaligned rows, words that programs exchange, and masks are read by few bytes, too.
    """
    problem, tiling = planned.problem, planned.tiling
    block = tiling.tile_rows * tiling.split_cols // tiling.blocks
    per_thread = max(1, block // (tiling.num_warps * device.hardware.warp_size))
    possible = min(VECTOR_BYTES, min(problem.vector, per_thread) * DTYPE_BYTES[problem.x_dtype])
    is_plain = not (problem.whole_vectors or tiling.is_split or problem.scores.mask)
    widths = access_widths(asm)
    narrow = {access for access, width in widths if width < possible}
    if max(width for _, width in widths) < possible or (is_plain and narrow):
        yield f"accesses, where {possible} bytes are possible: {narrow}"
    ends_alike = tiling.in_registers and problem.n_cols % tiling.split_cols == 0
    if is_plain and ends_alike and tiling.tile_rows == 1 and not problem.scores:
        yield from (f"a mask where tiles end where rows do: {access}" for access in re.findall(PTX_MASKED, asm.get("ptx", "")))


def faults_of_loops(planned, compiled, device, exchanges):
    """Loops that wait without a bound, or for numbers in a cache; AMD code that lacks a wait for a load, or is unknown."""
    ttir, code = compiled.asm["ttir"], compiled.asm.get("ptx") or compiled.asm["amdgcn"]
    loops = re.findall(r"scf\.while (.*?)\} do \{(.*?)scf\.yield", ttir, re.DOTALL)  # (condition, body)
    if not len(loops) == ttir.count("scf.while") == exchanges:
        yield f"{len(loops)} loops that are not counted"
    if bool(re.search(UNCACHED, code)) != exchanges:
        yield "words are read from a cache" if exchanges else "it reads what no cache answers"
    if not all(is_bounded(condition, body, device.profile.launch.polls.value) for condition, body in loops):
        yield "a loop without a bound"
    if "cf.br" in ttir.replace("scf.", ""):
        yield "a loop by other means"
    if "amdgcn" in compiled.asm:
        try:
            Kernel(compiled.asm["amdgcn"])
        except Fault as fault:
            yield str(fault)


def is_bounded(condition, body, most):
    """True if a loop ends, whatever else holds, once a number that it raises by one is `most`."""
    counted = re.search(rf"(%\S+) = arith\.cmpi slt, (%\S+), %c{most}_i32\S* : i32", condition)
    ends = re.search(r"(%\S+) = arith\.andi (%\S+), (%\S+) : i1.*\n\s*scf\.condition\((%\S+)\)", condition)
    if not counted or not ends or ends[1] != ends[4] or counted[1] not in ends.groups()[1:3]:
        return False
    return bool(re.search(rf"arith\.addi {re.escape(counted[2])}, %c1_i32\S* : i32", body))


def access_widths(asm):
    """(instruction, bytes) of every access to global memory in PTX or AMD assembly."""
    if "ptx" in asm:
        widths = [(text, int(count or 1) * int(bits) // 8) for text, count, bits in re.findall(PTX_ACCESS, asm["ptx"])]
    else:
        accesses = re.findall(AMD_ACCESS, asm["amdgcn"])
        widths = [(text, AMD_BYTES.get(kind) or int(re.sub(r"\D", "", kind)) // 8) for text, kind in accesses]
    assert widths, "a softmax reads and writes global memory"
    return widths


PAIRS = (H200, "softmax", False, "bfloat16"), (MI300X, "softmax", True, "float16"), (H200, "log_softmax", True, "bfloat16")


@pytest.mark.parametrize(("profile", "form", "backward", "dtype"), mostly_slow(PAIRS, lambda _, form, *__: form == "softmax"))
def test_two_elements_of_16_bits_share_a_register(profile, form, backward, dtype):
    device, blocks = Device.from_profile(profile), 8 if backward else 16
    width = 4 * device.hardware.warp_size * 8
    problem = read_problem(64, 4 * blocks * width, dtype, device, form, backward)
    kernel, *_ = kernels_of(problem, Tiling(1, width, 4, 4, blocks=blocks, walk=False), device)
    used = resources_of(kernel, device)
    assert used.registers_per_thread <= 128, "128 elements a thread, and addresses"
    assert spilled_by(used) == 0


@pytest.mark.parametrize(
    ("profile", "stage", "pattern"), [(H200, "ptx", r"\bfma\.rn\.f32"), (MI300X, "amdgcn", r"\bv_(?:pk_)?fmac?_f32")]
)
def test_products_and_sums_are_fused_whatever_the_default(monkeypatch, profile, stage, pattern):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    device, counts = Device.from_profile(profile), []
    options = device.vendor.compile_options(1, None, device.hardware)
    problem = read_problem(64, 704, "float32", device, "log_softmax", True)
    kernel, *_ = kernels_of(problem, Tiling(1, 256, 1, in_registers=False), device)
    for chosen in (options, {name: value for name, value in options.items() if "fusion" not in name}):
        monkeypatch.setattr(device.vendor, "compile_options", lambda *_, chosen=chosen: chosen)
        counts.append(len(re.findall(pattern, compiled.__wrapped__(kernel, device).asm[stage])))
    assert counts[0] > counts[1]


SHIFTS = "mul.wide.u32 \t%rd31, %r53, {}; shl.b64 \t%rd33, %rd32, 34; or.b64 \t%rd34, {}, %rd33;"  # by LLVM in Triton 3.6


def test_a_kernel_that_may_be_wrong_is_not_used(monkeypatch):
    ptx = {"add.s16x2 %r1, %r2, %r3;": True, SHIFTS.format(2**28, "%rd31"): True}
    ptx |= dict.fromkeys((SHIFTS.format(4, "%rd31"), SHIFTS.format(2**28, "%rd3")), False)
    device = Device.from_profile(H200)
    for code, is_wrong in ptx.items():
        assert bool(device.vendor.known_fault(SimpleNamespace(asm={"ptx": code}))) is is_wrong
    kernel, *_ = kernels_of(Problem(5, 77, "float32", "float32", 1), Tiling(1, 128, 1), device)
    monkeypatch.setattr(BACKENDS["cuda"], "known_fault", lambda compiled: f"{compiled.metadata.name} may be wrong")
    for _ in range(2):
        with pytest.raises(CompileError, match="softmax_kernel is not used: softmax_kernel may be wrong"):
            compiled(kernel, device)
