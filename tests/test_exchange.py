"""Rows shared by several programs: in two launches, and in one whose programs run at once, in many interleavings."""

import dataclasses

import msgspec
import pytest
import torch
from direct import assert_close, expected, expected_gradient, gradient_scale, launch, problem_of, result_in, rows_in, sizes_of
from together import Together

from portable_softmax.problem import Tiling
from portable_softmax.spec import KernelSpec

pytestmark = pytest.mark.kernel
INF, NAN = float("inf"), float("nan")


@pytest.fixture
def interpreter(device):
    if device.backend != "interpreter":
        pytest.skip("programs run at once in the interpreter; tests/test_accelerator.py launches them on a device")


def shared(strategy, tile_cols, parts):
    return Tiling(strategy, 1, tile_cols, None, None, parts)


def rows_with_special_values(n_cols, tile_cols, dtype, where, stride=None):
    """Of five rows: one as any; parts that are all -inf; a row that is; a nan; an inf."""
    x, _ = rows_in(5, n_cols, stride or n_cols, dtype, where, NAN, seed=n_cols)
    x[1, : 2 * tile_cols] = -INF
    x[2] = -INF
    x[3, n_cols // 2] = NAN
    x[4, -1] = INF
    return x


def forward(run, form, dtype, where, n_cols, tiling, groups, stride=None, **kind):
    x = rows_with_special_values(n_cols, tiling.tile_cols, dtype, where, stride)
    y, assert_guards = result_in(5, n_cols, stride or n_cols, dtype, where)
    run((y, x), problem_of((y, x), form, False, **kind), tiling, groups * tiling.parts)
    assert_guards()
    assert_close(y, expected(form, x), float(form == "log_softmax"))


def backward(run, form, dtype, where, n_cols, tiling, groups, stride=None, **kind):
    dy, y = (rows_in(5, n_cols, stride or n_cols, dtype, where, NAN, seed)[0] for seed in (1, 2))
    dy[3, n_cols // 2] = NAN
    dx, assert_guards = result_in(5, n_cols, stride or n_cols, dtype, where)
    run((dx, dy, y), problem_of((dx, dy, y), form, True, **kind), tiling, groups * tiling.parts)
    assert_guards()
    assert_close(dx, expected_gradient(form, dy, y), gradient_scale(form, dy, y))


@pytest.fixture
def in_two_launches(device):
    return lambda *arguments: launch(device, *arguments)


@pytest.mark.parametrize("direction", [forward, backward])
def test_two_launches(in_two_launches, where, form, direction):
    """Rows of three tiles and a bit, in four parts, and in two that lie wholly beyond their end."""
    direction(in_two_launches, form, torch.float32, where, 52, shared("split", 16, 6), 3)


@pytest.mark.parametrize("direction", [forward, backward])
def test_two_launches_of_other_kinds(device, in_two_launches, where, direction):
    direction(in_two_launches, "softmax", torch.bfloat16, where, 48, shared("split", 16, 3), 2, vector=8)  # no mask
    if device.backend == "interpreter" or device.vendor.aligned_access:
        direction(in_two_launches, "softmax", torch.float32, where, 53, shared("split", 16, 4), 5, 55, vector=4, ragged=True)


def test_more_parts_than_two_for_a_lane(in_two_launches, where):
    x, _ = rows_in(1, 279, 280, torch.float32, where, NAN)
    x[0, : 4 * 31] -= 200  # the maximum lies in what lanes look at second
    y, assert_guards = result_in(1, 279, 280, torch.float32, where)
    in_two_launches((y, x), problem_of((y, x), "softmax", False), shared("split", 4, 70), 70)
    assert_guards()
    assert_close(y, expected("softmax", x))


class Groups:
    """Launches of programs that wait, one after another, as on a stream: the words of their groups are kept."""

    def __init__(self, device, parts, most_groups, seed, **together):
        self.device, self.parts, self.together = device, parts, Together(seed, **together)
        self.words = torch.zeros(most_groups * (1 + 2 * parts), dtype=torch.int64)
        self.rounds = [0] * most_groups

    def __call__(self, operands, problem, tiling, num_programs):
        spec, groups = KernelSpec.of(problem, tiling), num_programs // tiling.parts
        assert (spec.exchange, num_programs) == ("wait", groups * self.parts)
        sizes, constexprs = sizes_of(operands, problem), spec.constexprs(self.device)
        self.together.launch(spec.kernel, num_programs, *operands, *sizes, self.words, **constexprs)
        for group in range(groups):
            self.rounds[group] += len(range(group, problem.n_rows, groups))
        assert self.words.view(-1, 1 + 2 * self.parts)[:, 0].tolist() == self.rounds


@pytest.mark.parametrize("seed", range(2))
def test_launches_that_follow_each_other(interpreter, device, where, seed):
    """With other numbers of groups and of rounds, of both kernels, and so from either buffer and either parity on."""
    groups, tiling = Groups(device, 3, 3, seed), shared("cooperative", 16, 3)
    forward(groups, "softmax", torch.float32, where, 48, tiling, 3)
    backward(groups, "softmax", torch.float32, where, 45, tiling, 2)
    forward(groups, "log_softmax", torch.float32, where, 33, tiling, 1)
    backward(groups, "log_softmax", torch.float32, where, 48, tiling, 3)
    forward(groups, "softmin", torch.bfloat16, where, 40, tiling, 2, vector=8)
    backward(groups, "softmin", torch.bfloat16, where, 40, tiling, 1, vector=8)
    assert groups.rounds == [2 + 3 + 5 + 2 + 3 + 5, 2 + 2 + 2 + 2, 1 + 1]


def test_ragged_rows_and_parts_beyond_their_end(interpreter, device, where):
    groups, tiling = Groups(device, 4, 2, 7), shared("cooperative", 16, 4)
    for direction in (forward, backward):
        direction(groups, "softmax", torch.float32, where, 37, tiling, 2, 39, vector=4, ragged=True)
        direction(groups, "log_softmax", torch.float16, where, 30, tiling, 1)


@pytest.mark.parametrize("parts", [6, 9])
def test_a_lane_waits_for_several_parts(interpreter, device, where, parts):
    """In warps of 4: each lane waits for one or two words at once; then for two, and for one more."""
    narrow = dataclasses.replace(device, hardware=msgspec.structs.replace(device.hardware, warp_size=4))
    groups, tiling = Groups(narrow, parts, 1, parts), shared("cooperative", 4, parts)
    direction = forward if parts == 9 else backward
    direction(groups, "softmax", torch.float32, where, 4 * parts - 1, tiling, 1)


@pytest.mark.parametrize("resident", [3, 4, 7])
def test_more_programs_than_run_at_once_begin_in_order(interpreter, device, where, resident):
    """Of five rows of three parts: those that run are all of some rows, and a part of the next."""
    groups, tiling = Groups(device, 3, 5, resident, resident=resident), shared("ordered", 16, 3)
    forward(groups, "softmax", torch.float32, where, 45, tiling, 5)
    backward(groups, "log_softmax", torch.bfloat16, where, 48, tiling, 5, vector=8)
    forward(groups, "softmin", torch.float32, where, 37, tiling, 5, 39, vector=4, ragged=True)
    assert groups.rounds == [3] * 5


@pytest.mark.parametrize(
    ("resident", "order"),
    [(2, sorted), (4, lambda numbers: sorted(numbers, key=lambda number: number % 3))],
    ids=["too few run at once", "they begin out of order"],
)
def test_what_ordered_launches_rely_on(interpreter, device, where, monkeypatch, resident, order):
    monkeypatch.setattr("together.MOST_STEPS", 3000)
    groups = Groups(device, 3, 5, 0, resident=resident, order=order)
    with pytest.raises(TimeoutError, match="15 programs still wait"):
        forward(groups, "softmax", torch.float32, where, 48, shared("ordered", 16, 3), 5)


def test_programs_that_would_wait_for_ever_are_seen(interpreter, device, where, monkeypatch):
    """So the tests above would fail, not hang: here no word arrives."""
    from triton.runtime.interpreter import interpreter_builder

    monkeypatch.setattr("together.MOST_STEPS", 500)
    monkeypatch.setattr(interpreter_builder, "create_atomic_rmw", lambda operation, ptr, value, *_: value)
    with pytest.raises(TimeoutError, match="2 programs still wait"):
        forward(Groups(device, 2, 1, 0), "softmax", torch.float32, where, 30, shared("cooperative", 16, 2), 1)
