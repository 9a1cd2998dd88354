"""Launches of scores for one product of each vendor: they are planned, spill nothing, and read whole vectors where they can."""

import re

import pytest
from offline import A2, H200, MI300X

from portable_softmax import Device
from portable_softmax.planning.lines import lines_of_scores
from portable_softmax.planning.request import problem_of
from portable_softmax.planning.scores import Scores
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.plans import plan_problem
from portable_softmax.runtime.specialization import KernelSpec

SCALED = Scores(scale="number")
MASKS = {  # of x of (8, 16, columns, columns): sizes, and what is done to x
    "no mask": (None, SCALED),
    "bool": ((8, 1, 1, -1), Scores(scale="number", mask="bool")),
    "added": ((8, 1, -1, -1), Scores(scale="number", mask="float32")),
    "causal": (None, Scores(scale="number", causal="upper_left")),
}


def strides_of(shape):
    strides = [1]
    for size in shape[:0:-1]:
        strides.insert(0, strides[0] * size)
    return strides


def problem(shape, mask, scores, dtype, y_dtype=None, backward=False, gap=0, **how):
    """Returns the problem of contiguous x; its mask has `gap` elements behind each of its rows."""
    room = (*mask[:-1], mask[-1] + gap) if mask else ()
    strides = (
        [stride if size > 1 else 0 for size, stride in zip(mask, strides_of(room), strict=True)] if mask else [0] * len(shape)
    )
    lines = lines_of_scores(shape, len(shape) - 1, [strides_of(shape)] * (3 if backward else 2), strides, bool(scores.causal))
    return problem_of(lines, dtype, y_dtype or dtype, scores=scores, backward=backward, **({"mask_aligned": True} | how))


def heads(name, cols, dtype, **how):
    mask, scores = MASKS[name]
    return problem((8, 16, cols, cols), mask and tuple(cols if size == -1 else size for size in mask), scores, dtype, **how)


def accesses(given, device):
    """Returns (the plan, bytes of each load from memory in its kernel)."""
    plan = plan_problem(given, device)
    assembly = compile_kernel(KernelSpec.of(plan.problem, plan.tiling), device).asm
    if "ptx" in assembly:
        found = re.findall(r"\bld\.global[\w.:]*?(?:\.v(\d))?\.[bfu](\d+)\b", assembly["ptx"])
        return plan, [int(count or 1) * int(bits) // 8 for count, bits in found]
    sizes = {"ubyte": 1, "ushort": 2, "dword": 4, "dwordx2": 8, "dwordx4": 16}
    return plan, [sizes[each] for each in re.findall(r"\b(?:buffer|global)_load_(\w+)\s", assembly["amdgcn"]) if each in sizes]


@pytest.mark.each_value
@pytest.mark.parametrize("profile", [H200, MI300X])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("cols", [512, 2048])
def test_heads_are_read_in_whole_vectors(profile, dtype, name, cols):
    plan, loads = accesses(heads(name, cols, dtype), Device.from_profile(profile))
    assert plan.warning is None
    assert plan.resources.spilled_bytes_per_thread == 0
    of_x = 16
    of_mask = {"bool": 8 if dtype == "bfloat16" else 4}.get(name, 16)
    assert set(loads) == {of_x, of_mask}


@pytest.mark.parametrize("name", ["bool", "causal"])
def test_heads_of_long_odd_lengths_are_unaligned(name):
    device = Device.from_profile(H200)
    plan, loads = accesses(heads(name, 1001, "bfloat16"), device)
    assert plan.problem.unaligned
    assert plan.warning is None
    assert loads.count(16) >= 2, "vectors of x"
    assert loads.count(2) <= 8, "the ends of a row"


@pytest.mark.parametrize("how", [{"gap": 3}, {"mask_aligned": False}], ids=str)
def test_a_mask_that_lies_badly_costs_x_nothing(how):
    plan, loads = accesses(heads("bool", 2048, "bfloat16", **how), Device.from_profile(H200))
    assert plan.problem.mask_vector == 1
    assert set(loads) == {16, 1}


@pytest.mark.parametrize(("name", "bytes_of_an_element"), [("no mask", 22), ("bool", 28), ("added", 34), ("causal", 22)])
def test_a_mask_takes_its_split_of_a_unified_buffer(name, bytes_of_an_element):
    plan = plan_problem(heads(name, 8192, "float32"), Device.from_profile(A2))
    assert plan.resources.shared_memory_bytes == bytes_of_an_element * plan.tiling.tile_rows * plan.tiling.tile_cols


def test_invariant_rows_have_one_kernel_however_many_heads_have_a_mask():
    one, many = (
        problem((batch, 16, 64, 64), (batch, 1, 1, 64), Scores(mask="bool"), "bfloat16", batch_invariant=True, gap=3)
        for batch in (1, 8)
    )
    assert one.mask_vector == many.mask_vector == 1
