"""Launches of row kernels that are computed: for devices that are not here, and on the one that is."""

import copy
import itertools
from functools import partial
from types import SimpleNamespace

import numpy
import pytest
import torch
import triton
import triton.language as tl
from row_kernels import PLANNED, RMS, dequantize, fresh, one_row, planned, scaled
from sweep import mostly_slow
from torch._subclasses.fake_tensor import FakeTensorMode  # tensors of devices that are not here

from portable_softmax import (
    CompileError,
    Device,
    GridError,
    PlanError,
    ProfileError,
    batch_invariant,
    fits,
    inspect_kernel,
    launcher,
    profiles,
)
from portable_softmax.planning import planner
from portable_softmax.row_kernels import launcher as row_launcher
from portable_softmax.row_kernels.compiling import pruned

QUICK = "nvidia/t4", "nvidia/h100-sxm", "amd/mi355x", "amd/rx-7900-xtx"
ARCHITECTURES = {  # one product of each
    (device.backend, device.arch): name
    for name in (*profiles(), *QUICK)
    if (device := Device.from_profile(name)).backend in ("cuda", "hip")
}

GRIDS = 4, (-1, 2), (), (1, 2, 3, 4), (1.5,), ("4",), lambda meta: (meta["n_rows"], -3)  # which no device launches


def is_quick(device, name):
    """A device of QUICK for each kernel, in turn."""
    return device in QUICK and (QUICK.index(device) + list(PLANNED).index(name)) % len(QUICK) == 0


MOVED = {  # by a row, and by a program beside its rows: bytes
    "rms_norm": "a row moves 16,384 bytes of memory; a program beside them 0",
    "rms_norm gradient": "a row moves 24,576 bytes of memory; a program beside them 16,384",
    "layer_norm": "a row moves 16,384 bytes of memory; a program beside them 0",
    "cross_entropy": "a row moves 513,036 bytes of memory; a program beside them 0",
    "rotary": "a row moves 16,896 bytes of memory; a program beside them 0",
}


@pytest.mark.parametrize(("device", "name"), mostly_slow(itertools.product(ARCHITECTURES.values(), PLANNED), is_quick))
def test_a_plan_for_each_architecture(name, device):
    """It spills nothing, exceeds no limit, and has as many programs as rows, or as are resident."""
    plan, hardware = planned(name, device), Device.from_profile(device).hardware
    rows, cols = plan.size
    warps, resident = plan.meta["num_warps"], plan.occupancy.programs_per_multiprocessor * hardware.multiprocessor_count
    assert plan.resources.spilled_bytes_per_thread == 0
    assert resident > 0
    assert warps * hardware.warp_size <= hardware.max_threads_per_program
    assert plan.num_programs in (rows, min(rows, resident))
    assert plan.meta["BLOCK"] >= cols or (name == "cross_entropy" and plan.meta["BLOCK"] >= 1024)
    assert plan.reasons[0] == MOVED[name]
    assert f"num_programs {plan.num_programs}" in str(plan)
    assert str(plan.terms) in str(plan).replace("\n    ", " ")


def test_rows_of_a_known_length_are_read_several_elements_at_once():
    """3000 elements are a multiple of 8, which Triton sees for a constexpr only."""
    few = {"num_warps": 8, "device": "nvidia/h100-sxm"}
    known = RMS.forward.plan("bf16[4096,3000]", "bf16[3000]", "bf16[4096,3000]", 4096, 3000, 1e-6, STAGES=1, **few)
    unknown = scaled.plan("*bf16:16", "*bf16:16", 4096, 3000, **few)
    reason = "rows of 3000 are read an element at a time; more at once, if their length were a tl.constexpr"
    assert (reason in known.reasons, reason in unknown.reasons) == (False, True)
    requests = [RMS.forward.request("*bf16", "*bf16", "*bf16", 4, cols) for cols in (3000, 3004, 3001, 4096)]
    assert [request.multiple for request in requests] == [8, 4, 1, 16]
    assert [scaled.request("*bf16", "*bf16", 4, cols).multiple for cols in (3000, 3004, 3001, 4096)] == [1, 1, 1, 16]


def test_stages_load_vectors_and_need_shared_memory_for_loaded_bytes_alone():
    """2 x 32,768 loaded bytes fit a multiprocessor three times; with the stored ones, 2 x 163,840 would fit nowhere."""
    launch, sizes = fresh(dequantize), [(f"i8[2000,{n}]", "f32[2000]", f"f32[2000,{n}]", 2000, n) for n in (28672, 28671)]
    plan, odd = (launch.plan(*size, num_warps=16, device="nvidia/h200") for size in sizes)
    assert plan.meta["STAGES"] > 1 == odd.meta["STAGES"]
    assert plan.resources.shared_memory_bytes < 120_000


def test_passed_options_take_precedence():
    settings = {"num_warps": 2, "STAGES": 3, "num_programs": 100}
    plan = planned("rms_norm", "nvidia/h100-sxm", **settings)
    assert (plan.num_programs, plan.meta["num_warps"], plan.meta["STAGES"]) == (100, 2, 3)
    assert planned("cross_entropy", "nvidia/h100-sxm", BLOCK=4096, num_warps=8).meta["BLOCK"] == 4096
    assert scaled.plan("*fp32", "*fp32", 4, 8, grid=[2, 3], device="nvidia/t4").grid == (2, 3, 1)
    plans = [planned("rms_norm", "nvidia/h100-sxm", num_warps=warps, STAGES=1) for warps in (1, 2, 4)]  # one spills
    assert [plan.resources.num_warps for plan in plans] == [1, 2, 4]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"n_rows": 4.0}, TypeError, "n_rows of one_row should be an integer of at least 0, not 4.0"),
        ({"n_rows": numpy.int64(4)}, TypeError, r"not (np.int64\(4\)|4); pass int\(n_rows\)"),
        ({"n_cols": None}, TypeError, "n_cols of one_row should be an integer of at least 1, not None"),
        ({"OTHER": 1}, CompileError, "OTHER"),
        ({"device": "amd/none"}, ProfileError, "amd/none"),
        ({"n_rows": 2**33}, GridError, "a grid of 8589934592 x 1 x 1 has 8,589,934,592 programs along x"),
        ({"num_programs": 3}, TypeError, "num_programs=3 is for a computed grid, and grid= was"),
        ({"num_warps": "4"}, TypeError, "num_warps of one_row should be an integer .* not '4'"),
        ({"BLOCK": "a"}, TypeError, "BLOCK of one_row should be an integer of at least 1, not 'a'"),
        ({"grid": (0,)}, GridError, r"the grid \(0, 1, 1\) has no program for n_rows=4"),
        ({"grid": lambda meta: (meta["BT"],)}, TypeError, r"the grid reads 'BT', which is missing; there are .*n_rows"),
        *(({"grid": grid}, GridError, "a grid is one to three integers of at least 0") for grid in GRIDS),
        ({"n_cols": 2**21}, CompileError, "(?i)1048576"),
    ],
)
def test_refusals(arguments, error, words):
    with pytest.raises(error, match=words):
        scaled.plan(**{"x": "*fp32", "y": "*fp32", "n_rows": 4, "n_cols": 8, "device": "nvidia/h100-sxm"} | arguments)
    with pytest.raises(TypeError, match="one_row got multiple values for argument 'x'"):
        scaled.plan("*fp32", "*fp32", **{"x": "*fp32"} | arguments)


@triton.jit
def at_address(address, n_cols, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(address.to(tl.pointer_type(tl.float32)) + tl.program_id(0) * n_cols + cols, 1.0, mask=cols < n_cols)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_plans_are_for_the_device_of_the_tensors(monkeypatch):
    with FakeTensorMode():
        first, second = (torch.empty(4, 8, device=f"cuda:{index}") for index in range(2))
    devices = [Device.from_profile(name) for name in ("nvidia/h200", "nvidia/t4")]
    monkeypatch.setattr(row_launcher, "current_device", devices.__getitem__)
    planned = [fresh(one_row, grid=(4,)).plan(x, x, 4, 8, num_warps=4).device for x in (first, second)]
    assert planned == ["nvidia/h200", "nvidia/t4"]
    with pytest.raises(RuntimeError, match="tensors to be on the same device, but x is on cuda:0 and y is on cuda:1"):
        scaled.plan(first, second, 4, 8)
    launched, launch = list[str](), launcher(at_address, cols="n_cols", block="BLOCK", grid=(4,))
    monkeypatch.setattr(type(launch), "_bind", lambda self, plan, device, *call: lambda *values: launched.append(device.name))
    for device in (devices[0], devices[1], devices[0]):  # the current one, as there are no tensors
        monkeypatch.setattr(row_launcher, "current_device", lambda device=device: device)
        launch(2**40, 8)
    assert launched == ["nvidia/h200", "nvidia/t4", "nvidia/h200"]


def test_plans_end_in_time(monkeypatch):
    """The first candidate is compiled in any time, and those that should not be faster are not missed."""
    monkeypatch.setattr(planner, "LONGEST", 0)
    left = [SimpleNamespace(us=us) for us in (1, 2, 3, 8)]
    assert planner.compile_best(left, lambda some: [SimpleNamespace(us=5)], 6, 1)[1] == ["2 candidates: 0 s have passed"]


@triton.jit
def by_head(x, w, y, n_rows, n_cols, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        total = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            scale = tl.load(w + row % 8 * n_cols + cols, mask=cols < n_cols, other=0.0)
            total += tl.sum(tl.load(x + row * n_cols + cols, mask=cols < n_cols, other=0.0) * scale, 0)
        tl.store(y + row, total)


def test_launches_do_not_depend_on_rows_where_batches_must_not_matter():
    """Nor on the number of rows of the first call, none included."""

    def metas(run, *numbers):
        sizes = ((f"f32[{n},2048]", "f32[8,2048]", f"f32[{n}]", n, 2048) for n in numbers)
        return [str(run.plan(*arguments, device="nvidia/h200").meta) for arguments in sizes]

    with batch_invariant():
        assert len({*metas(fresh(by_head), 0, 4096), *metas(fresh(by_head), 64)}) == 1
    of_rows = [fresh().plan(f"bf16[{n},1024]", *["*bf16:16"] * 2, n, 1024, 1e-6, device="nvidia/h200") for n in (1, 4096)]
    assert of_rows[0].meta != of_rows[1].meta


def test_a_plan_writes_nothing():
    written = []

    def hook(arguments):
        written.append(arguments["y"].device.type)
        arguments["y"].zero_()

    kernel = triton.autotune([triton.Config({"SCALE": 3}, num_warps=4, pre_hook=hook)], ["n_cols"])(one_row)
    arguments = {"x": torch.rand(64, 64), "y": torch.full((64, 64), 3.0), "n_rows": 64, "n_cols": 64}
    launcher(kernel, cols="n_cols", block="BLOCK", grid=(64,)).plan(**arguments, device="nvidia/t4")
    inspect_kernel(kernel, arguments | {"BLOCK": 64}, config=0, device="nvidia/t4")
    partial(fits, kernel=kernel, device="nvidia/t4")(kernel.configs, arguments | {"BLOCK": 64})
    assert set(written) == {"meta"}
    assert (arguments["y"] == 3).all()


def test_configurations_cover_a_row_and_are_not_pruned():
    kernel = triton.autotune(
        [triton.Config({"BLOCK": size}) for size in (1024, 8192, 4096)],
        ["n_cols"],
        prune_configs_by={"early_config_prune": lambda configs, named, **_: configs[: named["n_rows"]]},
    )(one_row)
    run = fresh(kernel, grid=lambda meta: (meta["n_rows"],))
    planned = [run.plan("*fp32", "*fp32", rows, 3000, device="nvidia/t4").meta["BLOCK"] for rows in (2, 3)]
    assert planned == [8192, 4096]
    assert pruned(kernel, {}, None) == kernel.configs  # it reads n_rows
    with pytest.raises(PlanError, match="its own pruning of configurations fails"):
        run.plan("*fp32", "*fp32", 0, 3000, device="nvidia/t4")


@pytest.mark.kernel
def test_copies_are_the_launcher_itself():
    module = torch.nn.Module()
    module.launch = scaled
    assert copy.copy(module.launch) is copy.deepcopy(module).launch is scaled
