"""Plans are made offline with the vendors' compilers, and kernels compiled once."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from assembly import loops
from offline import allowed_spills, read_problem

from portable_softmax import CompileError, Device, DtypeError, KernelResources, NoDeviceError, occupancy, plan, warm_up
from portable_softmax.planning.lines import lines_of
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import MAX_COLS, Problem
from portable_softmax.planning.reading import as_read
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.runtime import compiler as compiler_module
from portable_softmax.runtime import plans as launch_module
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.launch import problem_from
from portable_softmax.runtime.plans import plan_problem
from portable_softmax.runtime.specialization import KernelSpec


def test_plans_and_problems_are_told_in_a_line():
    found = plan(64, 777, "bf16", "nvidia/h200")
    assert found == plan(64, 777, torch.bfloat16, "nvidia/h200")
    assert repr(found) == f"LaunchPlan(bfloat16 softmax of 64 x 777: {found.tiling}, num_programs {found.num_programs})"
    problem = Problem(64, 777, "bfloat16", "bfloat16", 1, depth=2)
    assert repr(problem) == "Problem(n_rows=64, n_cols=777, x_dtype='bfloat16', y_dtype='bfloat16', vector=1, depth=2)"
    assert eval(repr(problem)) == problem


def test_occupancy_is_of_resources():
    with pytest.raises(TypeError, match=r"resources should be KernelResources\(num_warps=4, .* not \{'num_warps': 4\}"):
        occupancy({"num_warps": 4}, "nvidia/h200")


def test_the_interpreter_plans_nothing_that_is_compiled(monkeypatch):
    """It says so at once, not of each tiling; a model of Ascend's needs no compiler."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for ask in (lambda: plan(12, 345, "float32", "amd/mi300x"), lambda: warm_up([(12, 345)], ["float32"], device="amd/mi300x")):
        with pytest.raises(CompileError, match=r"^TRITON_INTERPRET is set, so nothing can be compiled; unset it"):
            ask()
    assert plan(12, 345, "float32", "ascend/910b3").num_programs


def test_resources_come_from_the_compiled_kernel():
    device = Device.from_profile("nvidia/h200")
    tiling = Tiling(1, 1024, 4, 1)
    compiled = compile_kernel(spec_of(tiling), device)
    found = device.vendor.resources(compiled)
    assert found == KernelResources(4, found.registers_per_thread, compiled.metadata.shared, stack_frame_bytes=0)
    assert 16 <= found.registers_per_thread <= 64
    more = compile_kernel(spec_of(Tiling(1, 8192, 4, 1)), device)
    assert device.vendor.resources(more).registers_per_thread > found.registers_per_thread


@pytest.mark.parametrize("profile", ["nvidia/h200", "amd/rx-7900-xtx"])
def test_a_tile_too_large_for_its_registers_spills_and_is_seen_to(profile):
    device = Device.from_profile(profile)
    spec = spec_of(Tiling(1, 65536, 16, 1), backward=True)
    assert device.vendor.resources(compile_kernel(spec, device)).spilled_bytes_per_thread > 0


@pytest.mark.parametrize(
    ("n_cols", "dtype", "bits"),
    [(4096, "float32", 128), (4096, "bfloat16", 128), (512, "bfloat16", 128), (780, "bfloat16", 64), (781, "bfloat16", 16)],
)
def test_loads_are_as_wide_as_the_length_allows(n_cols, dtype, bits):
    device = Device.from_profile("nvidia/h200")
    problem = Problem(
        4096, n_cols, dtype, dtype, {4096: 16, 512: 16, 780: 8, 781: 2}[n_cols] // (4 if dtype == "float32" else 2)
    )
    compiled = compile_kernel(KernelSpec.of(problem, plan_problem(problem, device).tiling), device)
    loads = {"128": "ld.global.v4.b32", "64": "ld.global.v2.b32", "16": "ld.global.b16"}
    assert loads[str(bits)] in compiled.asm["ptx"]


def spec_of(tiling, backward=False):
    """The float32 softmax's kernel for a tiling, in 16-byte accesses."""
    return KernelSpec(problem=Problem(1, 1, "float32", "float32", 4, backward=backward), tiling=tiling)


def test_a_kernel_is_compiled_once_for_all_row_counts(monkeypatch):
    device = Device.from_profile("nvidia/h200")
    plan(1000, 6000, "float32", device)
    monkeypatch.setattr(compiler_module, "compile_for", None)  # any further compilation fails
    assert plan(2000, 6000, "float32", device).num_programs == 2000


def test_unaligned_rows_are_another_kernel():
    device = Device.from_profile("nvidia/h200")
    aligned = Problem(64, 1024, "float32", "float32", 4)
    unaligned = Problem(64, 1024, "float32", "float32", 4, aligned=False)
    tiling = plan_problem(aligned, device).tiling
    assert "ld.global.v4" in compile_kernel(KernelSpec.of(aligned, tiling), device).asm["ptx"]
    assert "ld.global.v4" not in compile_kernel(KernelSpec.of(unaligned, tiling), device).asm["ptx"]


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-1, 5)])
def test_sizes_must_be_positive(size):
    with pytest.raises(ValueError, match="must be positive"):
        plan(*size, "float32", Device.from_profile("nvidia/h200"))


@pytest.mark.parametrize("size", [4.5, 4.0, "4", None, np.float32(4), np.array([4, 4])])
def test_sizes_must_be_integers(size):
    with pytest.raises(TypeError, match=rf"n_rows should be an integer, not {re.escape(repr(size))}"):
        plan(size, 5, "float32", "nvidia/h200")
    with pytest.raises(TypeError, match=rf"n_cols should be an integer, not {re.escape(repr(size))}"):
        plan(5, size, "float32", "nvidia/h200")


@pytest.mark.parametrize("integer", [np.int8, np.uint64, np.array, torch.tensor])
def test_sizes_may_be_integers_of_any_kind(integer):
    found = plan(integer(100), integer(64), "float32", "nvidia/h200")
    assert found == plan(100, 64, "float32", "nvidia/h200")
    assert type(found.num_programs) is int


@pytest.mark.parametrize(
    ("size", "dtype", "complaint"),
    [
        (
            (10**29, 4),
            "float32",
            f"{10**29} rows of 4 columns are too large: {16 * 10**29} bytes, and {2**63 - 1} can be addressed",
        ),
        ((2**40, 2**21), "float32", "too large"),
        ((2**40, 2**20), "float64", "too large"),
        (
            (1, MAX_COLS + 1),
            "float16",
            f"a row of {MAX_COLS + 1} elements is too large; rows of up to {MAX_COLS} can be computed",
        ),
    ],
)
def test_sizes_that_no_address_reaches(size, dtype, complaint):
    with pytest.raises(ValueError, match=complaint):
        plan(*size, dtype, "nvidia/h200")


@pytest.mark.parametrize(("size", "dtype"), [((2**41, 2**20 - 1), "float32"), ((1, MAX_COLS), "float16")])
def test_the_largest_sizes(size, dtype):
    assert contiguous_problem(*size, dtype, Device.from_profile("nvidia/h200")).n_rows == size[0]


def test_a_line_of_neighbouring_rows_has_its_limit_and_the_rows_none():
    assert Problem(64, MAX_COLS + 1, "float16", "float16", 8, inner=8)
    with pytest.raises(ValueError, match=f"a row of {MAX_COLS + 1} elements is too large"):
        Problem(MAX_COLS + 1, 8, "float16", "float16", 8, inner=MAX_COLS + 1)


@pytest.mark.parametrize("types", [("float16", "float64"), ("float64", "float16")])
def test_the_wider_type_counts(types):
    with pytest.raises(ValueError, match=f"{2**63} bytes"):
        Problem(2**40, 2**20, *types, 2)
    assert Problem(2**40, 2**20, "float16", "float16", 8)


def test_a_plan_is_printed_in_short_lines():
    found = plan(4096, 32768, "bfloat16", "amd/mi300x")
    lines = str(found).splitlines()
    assert lines[0] == f"{found.tiling}, num_programs {found.num_programs}"
    assert lines[1].startswith(
        f"uses num_warps {found.num_warps}, registers_per_thread {found.resources.registers_per_thread}, "
    )
    assert str(found.occupancy).splitlines()[0] in lines
    assert max(map(len, lines)) <= 100
    assert " ".join(line.strip() for line in lines).endswith(" ".join(found.reasons))
    assert repr(found).startswith("LaunchPlan(bfloat16 softmax of 4096 x 32768: ")
    assert "None" not in str(plan(4096, 32768, "bfloat16", "ascend/910b3"))


@pytest.mark.parametrize(("dtype", "profile"), [("int8", "nvidia/h200"), ("float64", "ascend/910b3")])
def test_types_that_a_device_does_not_compute(dtype, profile):
    with pytest.raises(DtypeError, match=f"softmax of {dtype} was asked for; .* computes float16, bfloat16, float32"):
        plan(5, 5, dtype, Device.from_profile(profile))


def test_a_torch_dtype_names_itself():
    device = Device.from_profile("nvidia/h200")
    assert plan(64, 512, torch.float16, device) == plan(64, 512, "float16", device)


def test_without_a_device_one_must_be_named():
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    with pytest.raises(NoDeviceError):
        plan(5, 5, "float32")


def test_an_older_triton_is_not_asked_for_targets_that_end_its_process(monkeypatch):
    monkeypatch.setattr(compiler_module, "triton_version", lambda: (3, 2))
    device = Device.from_profile("nvidia/jetson-agx-thor")
    with pytest.raises(CompileError, match=r"Triton 3\.2 does not compile for cuda/110 .*; install Triton 3\.7\.1 or later"):
        plan(64, 519, "float32", device)


def test_a_compiler_that_fails_is_quoted(monkeypatch):
    def fail(*_):
        raise RuntimeError("PassManager::run failed")

    monkeypatch.setattr(compiler_module, "source_of", fail)
    with pytest.raises(CompileError, match=r"softmax_kernel\(\*fp32:16, .* for cuda/90: PassManager::run failed"):
        compile_kernel(
            spec_of(Tiling(3, 16, 1, 1)),
            Device.from_profile("nvidia/h200"),
        )


def test_nothing_can_be_compiled_while_the_interpreter_is_on(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(CompileError, match="TRITON_INTERPRET is set"):
        compile_kernel(
            spec_of(Tiling(3, 8, 1, 1)),
            Device.from_profile("nvidia/h200"),
        )


@pytest.mark.each_value
@pytest.mark.parametrize("profile", ["nvidia/h200", "nvidia/t4", "amd/mi300x", "amd/rx-7900-xtx", "ascend/910b3"])
@pytest.mark.parametrize("form", ["softmax", "log_softmax"])
def test_gradients_have_a_plan_for_every_length(profile, form):
    device = Device.from_profile(profile)
    for n_cols in (1, 781, 32768, 131072):
        found = plan(4096, n_cols, "bfloat16", device, form=form, backward=True)
        assert (found.resources.stack_frame_bytes or 0) <= allowed_spills(found, device)
        assert found.warning is None
        assert found.occupancy.programs_per_multiprocessor >= 1
        assert found.tiling.covers(n_cols) >= n_cols


def test_a_gradient_takes_more_unified_buffer_than_its_softmax():
    device = Device.from_profile("ascend/910b3")
    tile = Tiling(1, 4096)
    bytes_of = {
        backward: launch_module._measure(Problem(64, 4096, "float32", "float32", 4, backward=backward), tile, device)
        for backward in (False, True)
    }
    assert bytes_of[False].shared_memory_bytes == 4096 * (2 * 4 + 2 * 4 + 4 + 2)
    assert bytes_of[True].shared_memory_bytes == 4096 * (2 * 8 + 2 * 4 + 2 * 4 + 2)


@pytest.mark.each_value
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_lines_of_an_inner_dimension_are_read_in_wide_accesses(backward, dtype):
    device = Device.from_profile("nvidia/h200")
    vector = 4 if dtype == "float32" else 8
    problem = Problem(64 * 512, 781, dtype, dtype, vector, backward=backward, inner=512)
    found = plan_problem(problem, device)
    assert found.tiling.strategy == "tile"
    assert found.tiling.tile_rows >= 8
    assert found.num_programs == 64 * 512 // found.tiling.tile_rows
    ptx = compile_kernel(KernelSpec.of(problem, found.tiling), device).asm["ptx"]
    assert set(re.findall(r"(?:ld|st)\.global\.v(\d)\.b32", ptx)) == {"4"}
    assert not re.search(r"(?:ld|st)\.global\.[bfu]\d+", ptx), "no access of a single word"


def test_a_triton_without_tuples_cannot_hold_rows_in_blocks(monkeypatch):
    monkeypatch.setattr(compiler_module, "triton_version", lambda: (3, 2))
    spec = spec_of(Tiling(1, 256, 1, 1, blocks=6))
    with pytest.raises(CompileError, match=r"no tuples of tensors; install Triton 3\.3 or later"):
        compile_kernel(spec, Device.from_profile("nvidia/h200"))


@pytest.mark.parametrize("n_rows", [19, 4097])
def test_what_is_planned_is_compiled_already(monkeypatch, n_rows):
    """Planning compiles for what it needs to know; a launch of the plan must not wait for the compiler again."""
    device = Device.from_profile("nvidia/h200")
    for n_cols in (4096, 65536):
        problem = read_problem(n_rows, n_cols, "float32", device)
        found = plan_problem(problem, device)
        with monkeypatch.context() as patched:
            patched.setattr(compiler_module, "compile_for", lambda *arguments: pytest.fail("compiled again"))
            compile_kernel(KernelSpec.of(problem, found.tiling), device)


def test_a_launch_that_must_walk_has_a_kernel_of_its_own():
    device = Device.from_profile("amd/mi300x")
    all_at_once, walking = (read_problem(n_rows, 4096, "bfloat16", device) for n_rows in (4096, 2**33))
    plans = [plan_problem(problem, device) for problem in (all_at_once, walking)]
    assert [found.tiling.walk for found in plans] == [False, True]
    assert replace(plans[0].tiling, walk=True) == plans[1].tiling
    kernels = [
        compile_kernel(KernelSpec.of(problem, found.tiling), device).asm["amdgcn"]
        for problem, found in zip((all_at_once, walking), plans, strict=True)
    ]
    assert [len(loops(kernel)) for kernel in kernels] == [0, 1]


@pytest.mark.each_value
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("profile", ["nvidia/h200", "nvidia/t4", "amd/mi300x", "amd/rx-7900-xtx"])
def test_only_programs_that_share_rows_write_words_and_none_is_launched_cooperatively(profile, backward):
    device = Device.from_profile(profile)
    for n_cols, shared in ((4096, False), (65536, True)):
        problem = read_problem(64, n_cols, "float32", device, backward=backward)
        found = plan_problem(problem, device)
        assert (found.tiling.strategy == "shared") == shared
        compiled = compile_kernel(KernelSpec.of(problem, found.tiling), device)
        assert not getattr(compiled.metadata, "launch_cooperative_grid", False)
        assert ("tt.atomic_rmw exch" in compiled.asm["ttir"]) == shared


@pytest.mark.parametrize("n_cols", [781, 50257])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_unaligned_rows_are_read_in_whole_vectors_but_for_their_edges(n_cols, dtype):
    device = Device.from_profile("nvidia/h200")
    for backward in (False, True):
        problem = read_problem(4096, n_cols, dtype, device, backward=backward)
        assert problem.unaligned
        ptx = compile_kernel(KernelSpec.of(problem, plan_problem(problem, device).tiling), device).asm["ptx"]
        narrow = [kind for kind in re.findall(r"\b(?:ld|st)\.global\.(\w+)", ptx) if kind not in ("v2", "v4")]
        operands = 2 if backward else 1
        assert set(narrow) == {"b16" if dtype == "bfloat16" else "b32"}
        assert len(narrow) <= (3 * operands + 2 if n_cols == 50257 else operands + 1), "shared, others' edges and its own again"


@pytest.mark.each_value
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("n_cols", [4096, 6144 * 8192 // 1024])  # a tile, and whole splits in both directions
def test_tiles_that_end_where_rows_do_need_no_mask(n_cols, backward):
    device = Device.from_profile("nvidia/h200")
    problem = read_problem(4096, n_cols, "float32", device, backward=backward)
    tiling = plan_problem(problem, device).tiling

    def masked(problem):
        ptx = compile_kernel(KernelSpec.of(problem, tiling), device).asm["ptx"]
        return re.findall(r"@!?%p\d+ (?:ld|st)\.global\S*v4\S*", ptx)

    assert not masked(problem)
    assert masked(replace(problem, n_cols=n_cols - 4)), "so that would be seen"


def test_steps_of_sharded_rows_are_not_paired():
    """They are other kernels, which would take two rows for one."""
    operands = tuple(torch.zeros(64, 33, dtype=torch.bfloat16) for _ in range(3))
    lines = lines_of((64, 33), 1, [each.stride() for each in operands], True)
    described, device = (operands, lines, "log_softmax", True, False), Device.from_profile("nvidia/h200")
    assert as_read(problem_from(*described), device).paired
    assert not any(as_read(problem_from(*described, step), device).paired for step in ("reduce", "map"))
