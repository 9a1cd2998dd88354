"""Launches are measured on copies of what a kernel stores to, and the fastest is planned from then on."""

from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from row_kernels import RMS, adding, fresh

from portable_softmax import Device
from portable_softmax.planning import planner
from portable_softmax.row_kernels import row_choice
from portable_softmax.row_kernels.buckets import plan_by_bucket
from portable_softmax.row_kernels.compiling import compiled_for
from portable_softmax.row_kernels.ttir import parsed_of, stores_elsewhere
from portable_softmax.runtime.measuring import on_copies

H100 = Device.from_profile("nvidia/h100-sxm")
ARGUMENTS = ("bf16[9000,4096]", "bf16[4096]", "bf16[9000,4096]", 8192, 4096, 1e-6)


@triton.jit
def scattering(x, places, n_cols, BLOCK: tl.constexpr, LOADS: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    y = tl.load(places).to(tl.pointer_type(tl.float32)) if LOADS else x
    tl.store(y + cols, 1.0, mask=cols < n_cols)


@pytest.mark.parametrize("loads", [False, True])
def test_kernels_that_store_to_memory_of_no_argument(loads):
    values = {"x": torch.empty(16, device="meta"), "places": torch.empty(8, dtype=torch.int64, device="meta")}
    (compiled,) = compiled_for(scattering, [None], values | {"n_cols": 16, "BLOCK": 16, "LOADS": loads}, H100)
    assert stores_elsewhere(parsed_of(compiled, scattering)) == loads


def test_copies_keep_views_of_one_memory_together():
    memory = torch.arange(24.0)
    named = {"x": memory[4:16].view(3, 4), "y": memory[8:].view(2, 8)[:, ::2], "w": torch.ones(4), "n": 3}
    copies, restore = on_copies(named)
    copies["y"].fill_(7)
    restore()
    assert torch.equal(copies["y"], named["y"])
    copies["y"].zero_()
    assert memory.tolist() == list(range(24))
    assert copies["x"].flatten().tolist() == [4, 5, 6, 7, 0, 9, 0, 11, 0, 13, 0, 15]
    assert (copies["y"].stride(), copies["w"].tolist(), copies["n"]) == ((8, 2), [1] * 4, 3)


@pytest.mark.parametrize(
    ("rounds", "best"), [([[9, 8, 7], [9, 7, 8]], 1), ([[9, 7, 8], [7, 9, 8]], 0), ([[9, 8.9], [9, 8.9]], 0), ("no room", None)]
)
def test_a_launch_replaces_the_first_if_it_is_faster_in_every_round(rounds, best):
    terms, short = (
        run.plan(*args, device=H100).terms
        for run, args in ((fresh(), ARGUMENTS), (fresh(adding), ("*fp32", "*fp32", 64, 128, 1.0)))
    )
    assert planner.measured([SimpleNamespace(terms=short)] * 2, None)[1].endswith("expected to take less than 10 us")
    launches = [SimpleNamespace(terms=terms, label=word) for word in "abc"][: max(2, len(rounds[0]))]
    found, reason = planner.measured(launches, lambda: rounds)
    assert found == best
    assert reason == "not measured: no room" if rounds == "no room" else reason.startswith(f"measured: {'abc'[best]} took")


def measured(monkeypatch, run, arguments, us, count=4):
    """Returns the launches that are timed, and the plan from then on; every launch takes us(its plan)."""
    plans = []

    def times(calls, device, restore):
        assert all(call["y"].data_ptr() != call["original"] for call in calls)
        return [[us(plan) for plan in plans]] * 2

    monkeypatch.setattr(row_choice, "timed", times)
    request = run.request(*arguments)
    choice = run._choice(request, H100)

    def call_of(plan, copies):
        plans.append(plan)
        return {"y": copies["y"], "original": request.arguments["y"].data_ptr() or -1}

    choice.measure(request, count, call_of)
    assert not plans  # tensors that are not on the device
    monkeypatch.setattr(type(H100.vendor), "torch_device_type", "cpu")
    choice.measure(request, count, call_of)
    monkeypatch.setattr(type(H100.vendor), "torch_device_type", "cuda")
    return plans, run.plan(*arguments, device=H100)


def tensors():
    """Returns arguments of which nothing touches the memory."""
    x, w, y = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((9000, 4096), (4096,), (9000, 4096)))
    return [x, w, y, *ARGUMENTS[3:]]


def test_the_fastest_launch_is_planned_from_then_on(monkeypatch):
    run, arguments = fresh(RMS.rms_norm_kernel), tensors()
    first, ranges = run.plan(*arguments, device=H100), {}
    request = run.request(arguments[0][:8192], arguments[1], arguments[2][:8192], *arguments[3:])
    planned = request, run._choice(request, H100)
    assert plan_by_bucket(ranges, *planned).meta == first.meta
    plans, plan = measured(monkeypatch, run, arguments, lambda plan: 50 if plan.meta == first.meta else 45)
    kinds = [(plan.meta["BLOCK"], plan.meta["num_warps"], plan.meta["STAGES"]) for plan in plans]
    assert len({*kinds}) == 4
    assert len({(kind, plan.num_programs) for kind, plan in zip(kinds, plans, strict=True)}) == len(plans) == 8
    assert plans[0].meta == first.meta
    assert plan.meta == plan_by_bucket(ranges, *planned).meta != first.meta
    line = next(reason for reason in plan.reasons if reason.startswith("measured: "))
    values = dict(one.split("=") for one in line.removeprefix("measured: ").partition(" took 45.0 us")[0].split(", "))
    again = fresh(RMS.rms_norm_kernel).plan(*arguments, device=H100, **{name: int(value) for name, value in values.items()})
    assert (again.meta, again.num_programs) == (plan.meta, plan.num_programs)
    assert run.plan(*arguments[:3], 9000, *arguments[4:], device=H100).meta == plan.meta
    assert run.plan(*arguments[:3], 300, *arguments[4:], device=H100).meta != plan.meta


@pytest.mark.parametrize("deterministic", [False, True])
def test_promised_bits_are_kept(monkeypatch, deterministic):
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: deterministic)
    run, arguments = fresh(RMS.rms_norm_kernel), tensors()
    plans, _ = measured(monkeypatch, run, arguments, lambda plan: 9, count=9)
    bits = {(plan.meta["BLOCK"], plan.meta["num_warps"]) for plan in plans}
    assert len(plans) > 1
    assert (len(bits) == 1) == deterministic
