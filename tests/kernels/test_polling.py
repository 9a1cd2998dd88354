"""Programs that look for each other's numbers read memory each time, and look a bounded number of times: in compiled code."""

from dataclasses import replace

import pytest
from assembly import is_bounded, polling_loops, whiles
from offline import SHARING, foremost, read_problem

from portable_softmax import Device, profiles
from portable_softmax.kernels.form import constexpr_of
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.runtime.compiler import compile_for
from portable_softmax.runtime.kernel_form import constexprs_of, form_of, kernel_of
from portable_softmax.runtime.plans import plan_problem
from portable_softmax.runtime.specialization import KernelSpec

COMPILED = {"cuda", "hip"}  # by this Triton
GPUS = [name for name in SHARING if profiles()[name].backend in COMPILED]
AMD = [name for name in GPUS if name.startswith("amd/")]


def compiled_for(device, n_rows=4096, n_cols=65_536, dtype="bfloat16", backward=False, **fields):
    """The kernel that is planned."""
    found = plan_problem(contiguous_problem(n_rows, n_cols, dtype, backward=backward), device)
    tiling, spec = found.tiling, KernelSpec.of(found.problem, found.tiling)
    options = tiling.num_warps, tiling.num_stages, tiling.max_registers, tiling.blocks > 1
    constexprs = constexprs_of(spec, device) | {"FORM": constexpr_of(replace(form_of(spec, device), **fields))}
    return compile_for(device, kernel_of(spec), spec.signature(), constexprs, *options), tiling


@pytest.mark.each_value
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("profile", foremost(GPUS))
@pytest.mark.parametrize(("n_rows", "n_cols"), [(16, 65_536), (4096, 50_257), (4096, 10**6)])
def test_the_loop_that_polls_reads_memory_each_time(profile, n_rows, n_cols, backward):
    compiled, tiling = compiled_for(Device.from_profile(profile), n_rows, n_cols, backward=backward)
    if tiling.splits > 1:
        assert len(polling_loops(compiled)) == 1, tiling
    else:
        assert n_cols == 10**6, "more splits than a small GPU holds"


@pytest.mark.each_value
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("profile", foremost(AMD))
def test_on_amd_a_volatile_load_is_taken_out_of_the_loop_and_that_is_seen(profile, backward):
    device = Device.from_profile(profile)
    assert device.vendor.poll == "atomic"
    compiled, _ = compiled_for(device, backward=backward, poll="volatile")
    assert not polling_loops(compiled), "Triton compiles them as volatile now: vendor.poll may be too"


def test_on_nvidia_a_load_that_is_not_volatile_is_seen():
    compiled, _ = compiled_for(Device.from_profile("nvidia/h200"))
    compiled.asm["ptx"] = compiled.asm["ptx"].replace("ld.volatile.global", "ld.global")
    assert not polling_loops(compiled)


@pytest.mark.each_value
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("n_cols", [20_484, 65_536])
def test_nothing_in_the_loop_makes_one_warp_wait_for_others(n_cols, backward):
    device = Device.from_profile("nvidia/h200")
    problem = read_problem(4096, n_cols, "float32", device, backward=backward)
    tiling = Tiling(1, 4096, 1, 1, -(-n_cols // 4096), walk=False)
    spec = KernelSpec.of(problem, tiling)
    compiled = compile_for(device, kernel_of(spec), spec.signature(), constexprs_of(spec, device), 1, 1)
    assert not compiled.metadata.launch_cooperative_grid
    (loop,) = polling_loops(compiled)
    assert sum("ld.volatile" in line for line in loop) == 1, "both words of a split, of 32 splits at once"
    for word in ("bar.", "barrier", "shared", "membar", "fence"):
        assert not any(word in line for line in loop)


@pytest.mark.each_value
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("profile", ["nvidia/h200", "nvidia/t4", "amd/mi300x", "amd/rx-7900-xtx"])
@pytest.mark.parametrize(
    ("n_cols", "dtype"),
    [(781, "float32"), (4096, "bfloat16"), (65_536, "bfloat16"), (50_257, "float32"), (10**6, "float64")],
)
def test_no_loop_is_without_a_bound(profile, n_cols, dtype, backward):
    device = Device.from_profile(profile)
    polls = device.profile.launch.polls.value
    compiled, tiling = compiled_for(device, 4096, n_cols, dtype, backward)
    ttir = compiled.asm["ttir"]
    found = whiles(ttir)
    assert len(found) == ttir.count("scf.while") == (tiling.splits > 1)
    assert all(is_bounded(condition, body, polls) for condition, body in found)
    assert "cf.br" not in ttir.replace("scf.", ""), "a loop by other means"


@pytest.mark.parametrize(
    ("old", "new"),
    [("arith.andi", "arith.ori"), ("cmpi slt", "cmpi ne"), ("%c256_i32", "%n_i32"), ("arith.addi %polls", "arith.addi %other")],
)
def test_a_loop_without_a_bound_is_seen(old, new):
    compiled, _ = compiled_for(Device.from_profile("nvidia/h200"))
    ((condition, body),) = whiles(compiled.asm["ttir"])
    assert is_bounded(condition, body, 256)
    assert old in condition + body
    assert not is_bounded(condition.replace(old, new), body.replace(old, new), 256)
