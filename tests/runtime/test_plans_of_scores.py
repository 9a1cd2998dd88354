"""Launches of scores for one product of each vendor: they are planned, spill nothing, and read whole vectors where they can."""

import pytest
import torch
from assembly import access_widths
from offline import A2, H200, MI300X

from portable_softmax import Device
from portable_softmax.planning.problem import Scores
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.layout import described
from portable_softmax.runtime.plans import plan_problem
from portable_softmax.runtime.specialization import KernelSpec

MASKS = {  # of x of (8, 16, columns, columns): rows of the mask for each batch, and what is done to x
    "no mask": (0, Scores(scale="number")),
    "bool": (1, Scores(scale="number", mask="bool")),
    "added": (-1, Scores(scale="number", mask="float32")),
    "causal": (0, Scores(scale="number", causal="upper_left")),
}


def heads(name, cols, dtype, gap=0, **how):
    """Returns the problem of contiguous heads; their mask has `gap` elements behind each of its rows."""
    rows, scores = MASKS[name]
    x, mask = torch.empty(8, 16, cols, cols, dtype=getattr(torch, dtype), device="meta"), None
    if rows:
        mask = torch.empty(8, 1, cols if rows < 0 else rows, cols + gap, dtype=getattr(torch, scores.mask), device="meta")
        mask = mask[..., :cols].expand(x.shape)
    about = {"form": "softmax", "scores": scores, **how}
    copy, _, problem = described((torch.empty_like(x), x), 3, Device.from_profile(H200), mask, **about)
    assert copy is None
    return problem


def loads_of(problem, device):
    """Returns (the plan, bytes of each load from memory in its kernel, but for words and numbers of rows)."""
    plan = plan_problem(problem, device)
    assembly = compile_kernel(KernelSpec.of(plan.problem, plan.tiling), device).asm
    return plan, [width for name, width in access_widths(assembly) if "ld" in name or "load" in name]


@pytest.mark.each_value
@pytest.mark.parametrize("profile", [H200, MI300X])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("cols", [512, 2048])
def test_heads_are_read_in_whole_vectors(profile, dtype, name, cols):
    plan, loads = loads_of(heads(name, cols, dtype), Device.from_profile(profile))
    assert plan.warning is None
    assert plan.resources.spilled_bytes_per_thread == 0
    assert set(loads) == {16, {"bool": 8 if dtype == "bfloat16" else 4}.get(name, 16)}


@pytest.mark.parametrize("name", ["bool", "causal"])
def test_heads_of_long_odd_lengths_are_unaligned(name):
    plan, loads = loads_of(heads(name, 1001, "bfloat16"), Device.from_profile(H200))
    assert plan.problem.unaligned
    assert plan.warning is None
    assert loads.count(16) >= 2, "vectors of x"
    assert loads.count(2) <= 8, "the ends of a row"


def test_a_mask_that_lies_badly_costs_x_nothing():
    plan, loads = loads_of(heads("bool", 2048, "bfloat16", gap=3), Device.from_profile(H200))
    assert plan.problem.mask_vector == 1
    assert set(loads) == {16, 1}


@pytest.mark.parametrize(("name", "bytes_of_an_element"), [("no mask", 22), ("bool", 28), ("added", 34), ("causal", 22)])
def test_a_mask_takes_its_split_of_a_unified_buffer(name, bytes_of_an_element):
    plan = plan_problem(heads(name, 8192, "float32"), Device.from_profile(A2))
    assert plan.resources.shared_memory_bytes == bytes_of_an_element * plan.tiling.tile_rows * plan.tiling.tile_cols


def test_a_mask_of_batch_invariant_rows_is_read_one_by_one():
    assert heads("bool", 64, "bfloat16", batch_invariant=True).mask_vector == 1
