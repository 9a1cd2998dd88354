"""Which words the programs of a launch get; no kernel runs."""

import dataclasses
from types import SimpleNamespace

import msgspec
import pytest
import torch

from portable_softmax import Device, DeviceError, workspace
from portable_softmax.planner import choose
from portable_softmax.problem import Problem, Tiling

FIRST, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)
CPU = torch.device("cpu")


@pytest.fixture
def machine(monkeypatch):
    """Two devices with the stream `machine.stream` current, whose memory is the host's."""
    from triton.runtime import driver

    now = SimpleNamespace(stream=7, capturing=False)
    monkeypatch.setattr(workspace, "_kept", {})
    monkeypatch.setattr(workspace, "_new_words", lambda *arguments, new=workspace._new_words: new(*arguments[:3], CPU))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: now.capturing)
    monkeypatch.setattr(driver, "_active", SimpleNamespace(get_current_stream=lambda index: (index, now.stream)))
    return now


def words(parts, where=FIRST, groups=1):
    return workspace._words_of_groups(groups, parts, Device.from_profile("nvidia/h200"), where)


def test_words_are_kept_for_a_number_of_parts_a_device_and_a_stream(machine):
    kept = words(8)
    assert words(8) is kept
    others = [words(9), words(8, SECOND)]
    machine.stream = 8
    others.append(words(8))
    assert len({each.data_ptr() for each in (kept, *others)}) == 4
    machine.stream = 7
    kept.fill_(5)
    assert words(8) is kept
    assert (words(8) == 5).all(), "rounds are counted on from launch to launch"


def test_there_are_more_words_where_more_programs_begin_than_can_be_resident(machine):
    few, resident = words(8), 132 * 64 // 8
    assert len(few) == resident * (1 + 2 * 8)
    assert words(8, groups=resident) is few
    few.fill_(5)
    many = words(8, groups=10_000)
    assert len(many) == 10_000 * (1 + 2 * 8)
    assert not many.any(), "no round is counted on from elsewhere"
    assert words(8) is words(8, groups=9999) is many


def test_a_captured_graph_has_words_of_its_own(machine):
    kept = words(8)
    machine.capturing = True
    first, second = words(8), words(8)
    assert len({each.data_ptr() for each in (kept, first, second)}) == 3
    assert not first.any()
    machine.capturing = False
    assert words(8) is kept


def test_a_cooperative_launch_that_the_driver_refuses(machine):
    def refused(grid, *arguments):
        raise RuntimeError("Triton Error [CUDA]: too many blocks in cooperative launch")

    tiling = Tiling("cooperative", 1, 2048, 1, 1, 32)
    problem, device = Problem(4, 65536, "float32", "float32", 4), Device.from_profile("nvidia/h200")
    launch = workspace.with_words([refused], problem, tiling, device, FIRST)
    with pytest.raises(DeviceError, match=r"3200 programs .* at once .* too many blocks"):
        launch((3200, 1, 1))


@pytest.mark.parametrize(("n_rows", "strategy"), [(100, "cooperative"), (10**4, "ordered")])
@pytest.mark.parametrize("n_cols", [32769, 65536, 131072, 10**6])
def test_there_are_words_for_every_group_of_a_launch(machine, n_rows, strategy, n_cols):
    from portable_softmax import KernelResources

    def light(problem, tiling, device):
        return KernelResources(tiling.num_warps, 16)

    device = Device.from_profile("nvidia/h200")
    many = msgspec.structs.replace(device.hardware, multiprocessor_count=1000)
    problem = Problem(n_rows, n_cols, "float32", "float32", 1)
    plan = choose(problem, dataclasses.replace(device, hardware=many), light)
    assert plan.strategy == strategy
    seen = []
    launch = workspace.with_words([lambda *arguments: seen.append(arguments)], problem, plan.tiling, device, FIRST)
    launch((plan.num_programs, 1, 1), "y", "x")
    (grid, *operands, given), parts = seen[0], plan.parts
    assert (grid, operands) == ((plan.num_programs, 1, 1), ["y", "x"])
    assert len(given) % (1 + 2 * parts) == 0
    assert len(given) >= plan.num_programs // parts * (1 + 2 * parts)


def test_both_launches_of_a_split_get_the_same_words_and_each_call_its_own():
    problem, tiling = Problem(5, 100, "float32", "float32", 1), Tiling("split", 1, 16, 1, 1, 7)
    seen = []
    launches = [lambda *arguments, kind=kind: seen.append((kind, *arguments)) for kind in tiling.exchanges]
    launch = workspace.with_words(launches, problem, tiling, Device.from_profile("nvidia/h200"), CPU)
    for _ in range(2):
        launch((35, 1, 1), "y", "x", 5)
    assert [each[:-1] for each in seen] == [(kind, (35, 1, 1), "y", "x", 5) for kind in ("publish", "collect") * 2]
    assert seen[0][-1] is seen[1][-1]
    assert seen[2][-1] is seen[3][-1] is not seen[0][-1]
    assert seen[0][-1].shape == (5 * 7,)
