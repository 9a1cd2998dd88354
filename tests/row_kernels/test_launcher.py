"""Launches of row kernels that are computed: for devices that are not here, and on the one that is."""

import copy
import gc
import itertools
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import row_kernels
import torch
import triton
import triton.language as tl
from row_kernels import PLANNED, assert_plan, planned
from sweep import mostly_slow

from portable_softmax import (
    CompileError,
    Device,
    GridError,
    ProfileError,
    batch_invariant,
    fits,
    inspect_kernel,
    launcher,
    persistent,
    profiles,
)
from portable_softmax.planning.cost import cost
from portable_softmax.planning.row_facts import RowLaunch, Traffic, row_facts
from portable_softmax.row_kernels import row_choice
from portable_softmax.row_kernels.traffic import known_multiple

QUICK = "nvidia/t4", "nvidia/h100-sxm", "amd/mi355x", "amd/rx-7900-xtx"
ARCHITECTURES = {  # one product of each
    (device.backend, device.arch): name
    for name in (*profiles(), *QUICK)
    if (device := Device.from_profile(name)).backend in ("cuda", "hip")
}
RMS = row_kernels.example("rms_norm")


@triton.jit
def one_row(x, y, n_rows, n_cols, BLOCK: tl.constexpr, SCALE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    here = tl.program_id(0) * n_cols + at
    tl.store(y + here, tl.load(x + here, mask=at < n_cols) * SCALE, mask=at < n_cols)


scaled = launcher(one_row, rows="n_rows", cols="n_cols", block="BLOCK", grid=lambda meta: (meta["n_rows"],), SCALE=3)


def is_quick(device, name):
    """A device of QUICK for each kernel, in turn."""
    return device in QUICK and (QUICK.index(device) + list(PLANNED).index(name)) % len(QUICK) == 0


@pytest.mark.parametrize(("device", "name"), mostly_slow(itertools.product(ARCHITECTURES.values(), PLANNED), is_quick))
def test_a_plan_for_each_architecture(name, device):
    assert_plan(name, device)


def test_what_a_kernel_moves_is_read_from_it():
    moved = {name: planned(name, "nvidia/h100-sxm").reasons[0] for name in PLANNED}
    assert moved == {
        "rms_norm": "a row moves 16,384 bytes of memory; a program beside them 0",
        "rms_norm gradient": "a row moves 24,576 bytes of memory; a program beside them 16,384",
        "layer_norm": "a row moves 16,384 bytes of memory; a program beside them 0",
        "cross_entropy": "a row moves 513,036 bytes of memory; a program beside them 0",
        "rotary": "a row moves 16,896 bytes of memory; a program beside them 0",
    }


@pytest.mark.parametrize("name", mostly_slow(ARCHITECTURES.values(), lambda name: name == "nvidia/t4"))
@pytest.mark.parametrize(("dtype", "cols"), [("bf16", 3000), ("f32", 16384), ("f32", 32)])
def test_rows_of_other_lengths_fit_each_architecture(name, dtype, cols):
    hardware, x, w = Device.from_profile(name).hardware, f"{dtype}[8192,{cols}]", f"{dtype}[{cols}]"
    for plan in (
        RMS.forward.plan(x, w, x, 8192, cols, 1e-6, device=name),
        row_kernels.example("cross_entropy").forward.plan(x, "i64[8192]", "f32[8192]", 8192, cols, device=name),
    ):
        assert plan.resources.spilled_bytes_per_thread == 0
        assert plan.occupancy.programs_per_multiprocessor > 0
        assert plan.meta["num_warps"] * hardware.warp_size <= hardware.max_threads_per_program


def test_rows_of_a_known_length_are_read_several_elements_at_once():
    """3000 elements are a multiple of 8, which Triton knows of a constexpr alone."""
    known = RMS.forward.plan("bf16[4096,3000]", "bf16[3000]", "bf16[4096,3000]", 4096, 3000, 1e-6, device="nvidia/h100-sxm")
    unknown = scaled.plan("*bf16:16", "*bf16:16", 4096, 3000, device="nvidia/h100-sxm")
    told = "rows of 3000 are read an element at a time; more at once, if their length were a tl.constexpr"
    assert (told in known.reasons, told in unknown.reasons) == (False, True)
    multiples = {cols: (known_multiple(cols, True), known_multiple(cols, False)) for cols in (3000, 3004, 3001, 4096)}
    assert multiples == {3000: (8, 1), 3004: (4, 1), 3001: (1, 1), 4096: (16, 16)}
    traffic, device = Traffic(row=12000, element=2, row_operands=2), Device.from_profile("nvidia/h100-sxm")
    launches = [RowLaunch(4096, 3000, multiple, 4096, 4, 4, 4096) for multiple in (1, 4, 8)]
    us = [cost(row_facts(traffic, launch, device), device.profile.launch.cost).total for launch in launches]
    assert us[0] > us[1] > us[2]


def test_blocks_of_a_row_are_not_short():
    """Each block of several reduces, and waits for the one before it."""
    forward, device = row_kernels.example("cross_entropy").forward, "nvidia/h100-sxm"
    arguments = "bf16[16384,8192]", "i64[16384]", "f32[16384]", 16384, 8192
    us = [forward.plan(*arguments, BLOCK=block, device=device).terms.total for block in (1024, 8192)]
    assert us[0] > us[1]
    assert planned("cross_entropy", device).meta["BLOCK"] < 128256


@pytest.mark.parametrize(("in_blocks", "hides"), [(False, True), (True, False)])
def test_stages_hide_latency_of_rows_and_not_of_blocks(in_blocks, hides):
    traffic, device = Traffic(row=16384, element=2, row_operands=2, reductions=1), Device.from_profile("nvidia/h100-sxm")
    launches = [RowLaunch(16384, 4096, 16, 528, 4, 4, 1024, stages, in_blocks) for stages in (1, 4)]
    us = [cost(row_facts(traffic, launch, device), device.profile.launch.cost).total for launch in launches]
    assert (us[1] < us[0]) == hides


def test_what_is_given_wins():
    given = {"num_warps": 2, "STAGES": 3, "num_programs": 100}
    plan = planned("rms_norm", "nvidia/h100-sxm", **given)
    assert (plan.num_programs, plan.meta["num_warps"], plan.meta["STAGES"]) == (100, 2, 3)
    assert planned("cross_entropy", "nvidia/h100-sxm", BLOCK=4096).meta["BLOCK"] == 4096
    assert planned("rms_norm", "nvidia/h100-sxm", num_warps=1).meta["num_warps"] == 1, "what spills, too, if it is told"
    always = persistent(RMS.rms_norm_kernel, rows="n_rows", cols="n_cols", block="BLOCK", num_warps=16)
    assert always.plan(*PLANNED["rms_norm"][1], device="nvidia/h100-sxm").meta["num_warps"] == 16


def test_a_fixed_number_of_programs_makes_rows_independent_of_others():
    plans = [
        RMS.forward.plan(
            f"f32[{rows},2048]", "f32[2048]", f"f32[{rows},2048]", rows, 2048, 1e-6, num_programs=64, device="nvidia/h100-sxm"
        )
        for rows in (1, 16, 100, 100_000)
    ]
    assert len({(plan.num_programs, *plan.meta.items()) for plan in plans}) == 1


def test_a_row_for_each_program():
    plan = scaled.plan("f32[5000,300]", "f32[5000,300]", 5000, 300, device="amd/mi300x")
    assert (plan.num_programs, plan.meta["BLOCK"], plan.meta["SCALE"]) == (5000, 512, 3)
    assert plan.grid == (5000, 1, 1)
    assert scaled.plan("f32[0,300]", "f32[0,300]", 0, 300, device="amd/mi300x").num_programs == 0


def test_what_was_compiled_is_chosen_from_for_other_numbers_of_rows(monkeypatch):
    run, calls = persistent(RMS.rms_norm_kernel, rows="n_rows", cols="n_cols", block="BLOCK"), []
    monkeypatch.setattr(
        row_choice, "compiled_for", lambda *given, of=row_choice.compiled_for: calls.append(given[1]) or of(*given)
    )
    sizes = {
        rows: run.plan("*fp32:16", "*fp32:16", "*fp32:16", rows, 512, 1e-6, device="nvidia/h100-sxm")
        for rows in (1025, 1500, 2048)
    }
    assert sum(map(len, calls)) <= 1 + sum(row_choice.COMPILED)
    assert {plan.size[0] for plan in sizes.values()} == set(sizes)


def test_no_tensor_is_kept():
    run = persistent(RMS.rms_norm_kernel, rows="n_rows", cols="n_cols", block="BLOCK")
    x, w = torch.empty(64, 512, device="meta"), torch.empty(512, device="meta")
    kept = weakref.ref(x)
    run.plan(x, w, x, 64, 512, 1e-6, device="nvidia/h100-sxm")
    del x
    gc.collect()
    assert kept() is None


def test_an_autotuners_configurations_are_the_candidates():
    configs = [triton.Config({"STAGES": stages}, num_warps=warps) for stages in (1, 2) for warps in (4, 8)]
    tuned = triton.autotune(configs, ["n_cols"])(RMS.rms_norm_kernel)
    plan = persistent(tuned, rows="n_rows", cols="n_cols", block="BLOCK").plan(
        *PLANNED["rms_norm"][1], device="nvidia/h100-sxm"
    )
    assert plan.config.kwargs["STAGES"] in (1, 2)
    assert (plan.meta["num_warps"] in (4, 8), plan.meta["BLOCK"]) == (True, 4096)


def test_a_heuristic_gives_what_is_not_computed():
    heuristic = triton.heuristics({"SCALE": lambda arguments: 5, "BLOCK": lambda arguments: 1 / 0})(one_row)
    plan = launcher(heuristic, cols="n_cols", block="BLOCK", grid=(64,)).plan(
        "f32[64,64]", "f32[64,64]", 64, 64, device="amd/mi300x"
    )
    assert plan.meta["BLOCK"] == 64


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"rows": "rows"}, "rows='rows': one_row has no such parameter; it has x, y, n_rows, n_cols, BLOCK, SCALE"),
        ({"block": "n_cols"}, "block='n_cols' is no constexpr of one_row; declare n_cols: tl.constexpr"),
        ({"kernel": len}, "is no @triton.jit function"),
    ],
)
def test_names_that_a_kernel_has_not(named, words):
    with pytest.raises(TypeError, match=words):
        persistent(**{"kernel": one_row, "rows": "n_rows", "cols": "n_cols", "block": "BLOCK"} | named)


@pytest.mark.parametrize(
    ("arguments", "given", "error", "words"),
    [
        (("*fp32", "*fp32", 4.0, 8), {}, TypeError, "n_rows of one_row should be a number from 0 on, not 4.0"),
        (("*fp32", "*fp32", 4, -8), {}, TypeError, "n_cols of one_row should be a number from 1 on, not -8"),
        (("*fp32", "*fp32", 4), {}, TypeError, "n_cols of one_row should be a number from 1 on, not None"),
        (("*fp32", "*fp32", 4, 8), {"OTHER": 1}, CompileError, "OTHER"),
        (("*fp32", "*fp32", 4, 8), {"device": "amd/none"}, ProfileError, "amd/none"),
        (("*fp32", "*fp32", 2**33, 8), {}, GridError, "a grid of 8589934592 x 1 x 1 has 8,589,934,592 programs along x"),
        (("*fp32", "*fp32", 4, 8), {"num_programs": 3}, TypeError, "num_programs=3 is of a computed grid, and grid= was given"),
        (("*fp32", "*fp32", 4, 0), {}, TypeError, "n_cols of one_row should be a number from 1 on, not 0"),
        (("*fp32", "*fp32", 4, 8), {"num_warps": "4"}, TypeError, "num_warps of one_row should be a number from 1 on, not '4'"),
        (("*fp32", "*fp32", 4, 2**21), {}, CompileError, "(?i)1048576"),
    ],
)
def test_refusals(arguments, given, error, words):
    with pytest.raises(error, match=words):
        scaled.plan(*arguments, **{"device": "nvidia/h100-sxm"} | given)


def test_a_compiler_that_traces_sees_the_kernel(monkeypatch):
    """In an operator of torch.library.triton_op, for a device that is not here."""
    from torch._dynamo.backends.common import aot_autograd

    from portable_softmax.row_kernels import launcher as module

    monkeypatch.setattr(module, "chosen", lambda device: Device.from_profile("nvidia/h100-sxm"))
    monkeypatch.setattr(module, "current_index", lambda: lambda: 0)
    run, seen = persistent(RMS.rms_norm_kernel, rows="n_rows", cols="n_cols", block="BLOCK"), []

    @torch.library.triton_op("test_persistent::rms_norm", mutates_args={})
    def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        run(x, w, y, *x.shape, 1e-6)
        return y

    def stop(graph, inputs):
        seen.append(graph.code)
        raise NotImplementedError("seen")

    compiled = torch.compile(rms_norm, backend=aot_autograd(fw_compiler=stop), fullgraph=True)
    with pytest.raises(Exception, match="seen"):
        compiled(torch.empty(64, 1000), torch.empty(1000))
    plan = run.plan("f32[64,1000]", "f32[1000]", "f32[64,1000]", 64, 1000, 1e-6)
    assert f"grid = [({plan.num_programs}, 1, 1)]" in seen[0]
    assert "'BLOCK': 1024" in seen[0]


@pytest.mark.kernel
@pytest.mark.parametrize("case", row_kernels.CASES)
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (7, 40), (33, 1000), (5, 1040), (3, 5000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_right_on_the_device_here(where, case, rows, cols, dtype):
    run, arguments, given, exact = case(rows, cols, dtype)
    placed = [each.to(where) if hasattr(each, "to") else each for each in arguments]
    run(*placed, **given)
    row_kernels.assert_right(case, placed, exact)


@pytest.mark.kernel
@pytest.mark.parametrize("num_programs", [1, 3, 50])
def test_any_number_of_programs_is_right(where, num_programs):
    for case in row_kernels.CASES:
        run, arguments, given, exact = case(7, 100, torch.float32)
        placed = [each.to(where) if hasattr(each, "to") else each for each in arguments]
        if case is row_kernels.rms_norm_gradient:
            placed[4] = torch.zeros(num_programs, 100, device=where)
        run(*placed, **given, num_programs=num_programs)
        row_kernels.assert_right(case, placed, exact)


@pytest.mark.kernel
def test_arguments_by_name_and_no_rows(where):
    x = torch.rand(3, 70, device=where)
    y = torch.empty_like(x)
    scaled(n_rows=3, n_cols=70, y=y, x=x)
    assert torch.equal(y, x * 3)
    scaled(x, y, 3, n_cols=70, SCALE=2)
    assert torch.equal(y, x * 2)
    assert scaled(x, torch.empty(0, 70, device=where), 0, 70) is None


@pytest.mark.kernel
def test_decorated_kernels_run(where):
    configs = [
        triton.Config({"SCALE": scale}, num_warps=4, pre_hook=lambda arguments: arguments["y"].fill_(1)) for scale in (3, 3)
    ]
    x = torch.rand(3, 70, device=where)
    for kernel in (triton.autotune(configs, ["n_cols"])(one_row), triton.heuristics({"SCALE": lambda arguments: 3})(one_row)):
        run, y = launcher(kernel, cols="n_cols", block="BLOCK", grid=lambda meta: (meta["n_rows"],)), torch.empty_like(x)
        for _ in range(2):
            run(x, y, 3, 70)
            assert torch.equal(y, x * 3)


@pytest.mark.kernel
@pytest.mark.accelerator  # the interpreter takes one thread at a time
def test_from_threads(where):
    run = persistent(RMS.rms_norm_kernel, rows="n_rows", cols="n_cols", block="BLOCK")

    def launch(rows):
        _, arguments, _, exact = row_kernels.rms_norm(rows, 64, torch.float32)
        placed = [each.to(where) if hasattr(each, "to") else each for each in arguments]
        for _ in range(3):
            run(*placed)
        row_kernels.assert_right(row_kernels.rms_norm, placed, exact)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(launch, (1, 2, 3, 4))) == [None] * 4


@pytest.mark.kernel
@pytest.mark.accelerator
def test_the_first_call_may_be_captured(where):
    x = torch.randn(64, 1000, device=where)
    w, y = torch.rand(1000, device=where), torch.empty_like(x)
    run, graph = persistent(RMS.rms_norm_kernel, rows="n_rows", cols="n_cols", block="BLOCK"), torch.cuda.CUDAGraph()
    RMS.forward(x, w, y, 64, 1000, 1e-6)  # loads the code
    expected = y.clone()
    y.zero_()
    with torch.cuda.graph(graph):
        run(x, w, y, 64, 1000, 1e-6)
    graph.replay()
    assert torch.equal(y, expected)


@pytest.mark.kernel
def test_compiled_code_goes_on_around_a_launch(where):
    module = row_kernels.example("layer_norm")
    x, w, b = (torch.randn(shape, device=where) for shape in ((8, 100), (100,), (100,)))
    compiled = torch.compile(lambda x, w, b: module.layer_norm(x * 2, w, b) + 1, backend="eager")
    torch.testing.assert_close(compiled(x, w, b), torch.nn.functional.layer_norm(x * 2, (100,), w, b) + 1)


@triton.jit
def adding(x, y, n_rows, n_cols, eps, BLOCK: tl.constexpr, F: tl.constexpr = 1):
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        value = tl.load(x + row * n_cols + at, mask=at < n_cols)
        tl.store(y + row * n_cols + at, value * F + eps, mask=at < n_cols)


@pytest.mark.kernel
def test_a_call_wins_over_what_was_given_before(where):
    run, x = persistent(adding, rows="n_rows", cols="n_cols", block="BLOCK", eps=0.5), torch.zeros(2, 4, device=where)
    y = torch.empty_like(x)
    for given, expected in (({}, 0.5), ({"eps": 1.5}, 1.5), ({"eps": 2.5}, 2.5), ({}, 0.5)):
        run(x, y, 2, 4, **given)
        assert y[0, 0] == expected
    run(x, y, 2, 4, 3.5)
    assert y[0, 0] == 3.5


@pytest.mark.kernel
def test_constants_that_compare_equal_are_launches_of_their_own(where):
    run = persistent(adding, rows="n_rows", cols="n_cols", block="BLOCK", eps=0)
    x, y = torch.full((2, 4), 100, dtype=torch.int8, device=where), torch.empty(2, 4, dtype=torch.int32, device=where)
    for factor in (2, 2.0, True, 1, 2):
        run(x, y, 2, 4, F=factor)
        fresh = persistent(adding, rows="n_rows", cols="n_cols", block="BLOCK", eps=0)
        expected = torch.empty_like(y)
        fresh(x, expected, 2, 4, F=factor)
        assert torch.equal(y, expected)
    plan = [run.plan(x, y, 2, 4, F=factor).meta["F"] for factor in (2, 2.0)]
    assert [*map(type, plan)] == [int, float]


@pytest.mark.kernel
def test_one_launch_by_position_and_by_name(where):
    run, x = persistent(adding, rows="n_rows", cols="n_cols", block="BLOCK"), torch.ones(2, 4, device=where)
    y = torch.empty_like(x)
    for number in range(4):
        for call in (lambda eps: run(x=x, y=y, n_rows=2, n_cols=4, eps=eps, F=3), lambda eps: run(x, y, 2, 4, eps, F=3)):
            call(float(number))
            assert y[0, 0] == 3 + number


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"num_programs": -1}, "num_programs of adding should be a number from 1 on, not -1"),
        ({"num_programs": 3.5}, "num_programs of adding should be a number from 1 on, not 3.5"),
        ({"wrong": 1}, "wrong"),
        ({"n_rows": 2.0}, "n_rows of adding should be a number from 0 on, not 2.0"),
    ],
)
def test_calls_that_are_refused(where, given, words):
    run, x = persistent(adding, rows="n_rows", cols="n_cols", block="BLOCK"), torch.ones(2, 4, device=where)
    arguments = {"x": x, "y": x, "n_rows": 2, "n_cols": 4, "eps": 0.5}
    run(**arguments | {"y": torch.empty_like(x)})
    with pytest.raises((TypeError, CompileError), match=words):
        run(**arguments | given)


def test_launches_do_not_depend_on_rows_where_batches_must_not_matter():
    run = persistent(RMS.rms_norm_kernel, rows="n_rows", cols="n_cols", block="BLOCK")

    def metas():
        plans = [
            run.plan(f"bf16[{n},4096]", "bf16[4096]", f"bf16[{n},4096]", n, 4096, 1e-6, device="nvidia/h100-sxm")
            for n in (1, 64, 1024)
        ]
        assert plans[0].num_programs == 1
        return {tuple(plan.meta.items()) for plan in plans}

    assert len(metas()) > 1
    with batch_invariant():
        assert len(metas()) == 1
    assert len(metas()) > 1


def test_a_plan_writes_nothing():
    written = []

    def hook(arguments):
        written.append(arguments["y"].device.type)
        arguments["y"].zero_()

    kernel = triton.autotune([triton.Config({"SCALE": 3}, num_warps=warps, pre_hook=hook) for warps in (4, 8)], ["n_cols"])(
        one_row
    )
    x, y = torch.rand(64, 64), torch.full((64, 64), 3.0)
    launcher(kernel, cols="n_cols", block="BLOCK", grid=(64,)).plan(x, y, 64, 64, device="nvidia/t4")
    inspect_kernel(kernel, {"x": x, "y": y, "n_rows": 64, "n_cols": 64, "BLOCK": 64}, config=0, device="nvidia/t4")
    fits.with_(kernel=kernel, device="nvidia/t4")(kernel.configs, {"x": x, "y": y, "n_rows": 64, "n_cols": 64, "BLOCK": 64})
    assert set(written) == {"meta"}
    assert (y == 3).all()


def test_copies_and_pickles():
    module = torch.nn.Module()
    module.norm = RMS.forward
    assert copy.deepcopy(module).norm is RMS.forward
    assert copy.copy(RMS.forward) is RMS.forward
    read = pickle.loads(pickle.dumps(scaled_by_two))
    assert read.kernel is one_row
    assert read.plan("f32[8,64]", "f32[8,64]", 8, 64, device="nvidia/t4").grid == (8, 1, 1)


scaled_by_two = launcher(one_row, cols="n_cols", block="BLOCK", grid=(8,), SCALE=2)
