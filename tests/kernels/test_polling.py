"""Programs that look for each other's numbers read memory each time, and look a bounded number of times: in compiled code."""

from types import SimpleNamespace

import pytest
from assembly import is_bounded, polling_loops, whiles
from offline import SHARING, foremost

from portable_softmax import Device, profiles
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem, contiguous_problem
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.plans import plan_problem
from portable_softmax.runtime.specialization import KernelSpec

GPUS = [name for name in SHARING if profiles()[name].backend in ("cuda", "hip")]  # which this Triton compiles for
COLS = 65_536, 50_257, 10**6  # the last are more splits than a small GPU holds


@pytest.mark.each_value
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("profile", foremost(GPUS))
@pytest.mark.parametrize("n_cols", COLS)
def test_a_loop_that_polls_reads_memory_and_ends(profile, n_cols, backward):
    device = Device.from_profile(profile)
    found = plan_problem(contiguous_problem(4096, n_cols, "bfloat16", backward=backward), device)
    compiled = compile_kernel(KernelSpec.of(found.problem, found.tiling), device)
    ttir, shared = compiled.asm["ttir"], found.tiling.splits > 1
    assert shared or n_cols == max(COLS)
    loops, polling = whiles(ttir), polling_loops(compiled)
    assert len(loops) == ttir.count("scf.while") == len(polling) == shared
    assert all(is_bounded(condition, body, device.profile.launch.polls.value) for condition, body in loops)
    assert "cf.br" not in ttir.replace("scf.", ""), "a loop by other means"
    for line in (line for loop in polling for line in loop if found.num_warps == 1 and "ptx" in compiled.asm):
        assert not any(word in line for word in ("bar.", "barrier", "shared", "membar", "fence")), "a warp waits for others"


@pytest.mark.parametrize("profile", foremost([name for name in GPUS if profiles()[name].backend == "hip"]))
def test_several_rows_exchange_words_on_amd(profile):
    """LLVM has no exchange in a buffer, which Triton makes of one at offsets that it knows."""
    problem = Problem(64, 300, "float32", "float32", 4, inner=16, depth=2)
    spec = KernelSpec.of(problem, Tiling(16, 128, 2, splits=3, blocks=2))
    assert "global_atomic_swap" in compile_kernel(spec, Device.from_profile(profile)).asm["amdgcn"]


def test_a_planted_fault_is_seen():
    device = Device.from_profile("nvidia/h200")
    found = plan_problem(contiguous_problem(4096, COLS[0], "bfloat16"), device)
    compiled = compile_kernel(KernelSpec.of(found.problem, found.tiling), device)
    ((condition, body),) = whiles(compiled.asm["ttir"])
    assert not is_bounded(condition.replace("arith.andi", "arith.ori"), body, device.profile.launch.polls.value)
    cached = compiled.asm["ptx"].replace("ld.volatile.global", "ld.global")
    assert not polling_loops(SimpleNamespace(asm={"ptx": cached}))
