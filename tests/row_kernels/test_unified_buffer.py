"""Bounds of Ascend's Unified Buffer, of kernels whose front end alone has run here."""

import logging

import pytest
import row_kernels
import triton
import triton.language as tl
from ascend_reports import COMPILES, OVERFLOWS, REPORTS, SIZES, argmax_prob, of, swiglu

from portable_softmax import CompileError, Device, PlanError, fits, inspect_kernel
from portable_softmax.row_kernels.fits import NoConfigurationFitsError

DEVICE, A5 = "ascend/910b3", "ascend/950pr_957x"
THERE = Device.from_profile(DEVICE).hardware.shared_memory_per_program_max


def used(kernel, types, constants, device=DEVICE):
    return inspect_kernel(kernel, types, constants, device=device)


@pytest.mark.parametrize("case", REPORTS, ids=lambda case: f"{case.kernel.__name__}-{case.told}-{case.constants}")
def test_what_the_compiler_reported_lies_between(case):
    found = used(case.kernel, case.types, case.constants)
    least, most = found.resources.shared_memory_bytes, found.resources.shared_memory_most
    reported = {COMPILES: (0, THERE), OVERFLOWS: (THERE + 1, 10**9)}.get(case.told) or (case.told // 8, case.told // 8)
    assert least <= reported[1]
    assert most >= reported[0]
    assert most <= 4 * least
    assert found.occupancy.programs_per_multiprocessor == (least <= THERE)


@triton.jit
def online_unrolled(x, y, N: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    peak = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for start in tl.static_range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * N + at, mask=at < N, other=float("-inf")).to(tl.float32)
        new = tl.maximum(peak, tl.max(value, 0))
        total = total * tl.exp(peak - new) + tl.sum(tl.exp(value - new), 0)
        peak = new
    tl.store(y + row, peak + tl.log(total))


def test_blocks_that_were_unrolled_are_kept_on_the_950():
    """triton-lang/triton-ascend issue 2246: its compiler asks for 541,696 bytes on the 950, and compiles for the 910B."""
    types, constants = of("bf16", "x") | of("fp32", "y"), {"N": 151936, "BLOCK": 8192}
    most = {name: used(online_unrolled, types, constants, name).resources.shared_memory_most for name in (DEVICE, A5)}
    assert most[DEVICE] <= THERE
    assert 541_696 <= most[A5] <= 2 * 541_696
    once = used(online_unrolled, types, constants | {"N": 8192}, A5).resources.shared_memory_most
    assert once == used(online_unrolled, types, constants | {"N": 8192}).resources.shared_memory_most


def test_options_of_ascends_compiler():
    """The most of a kernel that loads blocks in a loop follows from multibuffer; another compiler's options are no options."""
    types, constants = of("fp32", "x", "probabilities") | of("i64", "ids") | SIZES, {"BLOCK": 1024}
    usual, single = (
        inspect_kernel(argmax_prob, types, constants, device=DEVICE, **options).resources
        for options in ({"multibuffer": True}, {"multibuffer": False, "unit_flag": True})
    )
    assert single.shared_memory_bytes == usual.shared_memory_bytes <= single.shared_memory_most < usual.shared_memory_most
    with pytest.raises(CompileError, match=r"waves is no parameter of argmax_prob, .* options are .*multibuffer"):
        inspect_kernel(argmax_prob, types, constants, device=DEVICE, waves=2)


def test_fits_prefers_what_certainly_fits(caplog):
    caplog.set_level(logging.INFO, "portable_softmax.fits")
    configs = [triton.Config({"BLOCK": block}) for block in (4096, 16384, 131072)]
    chosen = fits.with_(kernel=swiglu, device=DEVICE)
    arguments = of("fp16", "gate", "up", "y") | {"n_cols": "i32"}
    assert chosen(configs, arguments) == configs[:1]
    assert "may not fit: a program takes" in caplog.text
    assert f"and there are {THERE}" in caplog.text
    assert chosen(configs[1:], arguments) == configs[1:2], "what may fit is tried where nothing certainly does"
    with pytest.raises(NoConfigurationFitsError, match="bytes of shared memory, and there are"):
        chosen(configs[2:], arguments)


def test_a_row_that_does_not_fit_in_one_block_names_the_block_that_does():
    x, w = "f32[64,16384]", "f32[16384]"
    with pytest.raises(PlanError, match=r"a block of 16384 uses .*; the largest BLOCK that certainly fits is 4096"):
        row_kernels.example("layer_norm").forward.plan(x, w, w, x, 64, 16384, 1e-5, device=DEVICE)
