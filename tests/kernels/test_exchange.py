"""Rows shared by several programs, which run at once, in any order, one after another: the same bits, and none waits."""

import dataclasses
import functools
import random
from collections.abc import Callable

import msgspec
import pytest
import torch
from direct import (
    NAN,
    assert_close,
    backward,
    beside,
    expected,
    forward,
    in_folded_lines,
    launch,
    problem_of,
    result_in,
    rows_in,
    sizes_of,
)
from faults import publish_by
from together import Together

from portable_softmax import current_device
from portable_softmax.devices.policy import Polls
from portable_softmax.planning.plan import Tiling
from portable_softmax.runtime.kernel_form import constexprs_of, kernel_of
from portable_softmax.runtime.specialization import KernelSpec
from portable_softmax.runtime.workspace import with_workspace

pytestmark = pytest.mark.kernel


def shared(tile_cols, splits, blocks=1, walk=True):
    return Tiling(1, tile_cols // blocks, splits=splits, blocks=blocks, walk=walk)


BESIDE = {"rows side by side": "across", "rows transposed": "to rows", "rows read twice": "across"}  # in two matrices, by name
FOLDED = "folded lines", "folded lines, one program", "folded lines read twice"  # four lines as one
CASES = {  # what `forward` and `backward` take, all but the programs
    "beyond the end": ("log_softmax", torch.float32, 40, shared(16, 4, walk=False), 1, None),
    "no mask": ("softmin", torch.bfloat16, 48, shared(16, 3), 8, None),
    "unaligned, in blocks": ("softmax", torch.float32, 85, shared(32, 3, blocks=2), 4, 87),
    "rows side by side": ("softmax", torch.float32, (2, 40, 3), Tiling(4, 8, None, None, 3, blocks=2), 1, None),
    "rows transposed": ("log_softmax", torch.bfloat16, (2, 48, 8), Tiling(8, 16, None, None, 3, walk=False), 1, None),
    "rows read twice": (
        "softmax",
        torch.float32,
        (2, 40, 5),
        Tiling(4, 4, None, None, 3, blocks=4, held=False),
        1,
        None,
    ),
    "folded lines": (
        "softmin",
        torch.float32,
        (2, 20, 5),
        Tiling(4, 2, None, None, 2, blocks=2, walk=False),
        4,
        None,
    ),
    "folded lines, one program": ("softmax", torch.bfloat16, (2, 8, 5), Tiling(4, 2, walk=False), 4, None),
    "folded lines read twice": (
        "log_softmax",
        torch.float32,
        (1, 16, 9),
        Tiling(8, 1, None, None, 2, blocks=2, held=False, walk=False),
        4,
        None,
    ),
    "a row read twice": ("softmax", torch.float32, 85, Tiling(1, 16, 1, None, 3, blocks=2, held=False), 4, 87),
}


@pytest.fixture
def interpreter(device):
    if device.backend != "interpreter":
        pytest.skip("programs run at once in the interpreter; tests/kernels/test_neighbours.py launches them on a device")
    return device


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    direction: Callable[..., torch.Tensor]

    def __call__(self, run):
        """The result for two rows, compared with float64."""
        form, dtype, n_cols, tiling, vector, stride = CASES[self.name]
        where = torch.device("cpu")  # the interpreter's
        if self.name in FOLDED:
            return in_folded_lines(self.direction, vector, run, form, dtype, where, n_cols, tiling, 2 * tiling.splits)
        if self.name in BESIDE:
            how = form, dtype, where, n_cols, tiling, 2 * tiling.splits
            return beside(self.direction, BESIDE[self.name], current_device(), run, *how)
        return self.direction(run, form, dtype, where, n_cols, tiling, 2 * tiling.splits, vector, stride, n_rows=2)


@pytest.fixture(params=[forward, backward])
def direction(request):
    return request.param


@pytest.fixture(params=CASES)
def case(request, direction):
    return Case(request.param, direction)


def looking(device, polls):
    """The device whose programs look so often before they find what is missing by themselves."""
    policy = msgspec.structs.replace(device.profile.launch, polls=Polls(polls, "a test"))
    return dataclasses.replace(device, profile=msgspec.structs.replace(device.profile, launch=policy))


def at_once(device, seed, left=lambda words, number: None, **together):
    """Launches as `direct.launch` does, of programs that run at once; see Together. `left` fills a launch's words before."""

    def run(operands, problem, tiling, num_programs):
        spec = KernelSpec.of(problem, tiling)

        def launch_together(*given):
            left(*given[-2:])
            arguments = *given[:-2], *sizes_of(operands, problem), *given[-2:]
            named = dict(zip(spec.signature(), arguments, strict=True)) | constexprs_of(spec, device)
            Together(seed, **together).launch(kernel_of(spec), num_programs, **named)

        with_workspace(launch_together, problem, tiling, operands[0].device)(*operands)

    return run


@pytest.fixture
def untroubled(interpreter, case, monkeypatch, kept={}):  # noqa: B006 - the results of this module's tests
    """The result where each program sees all that it looks for."""

    def not_seen(*arguments):
        raise AssertionError("a program found a split of another by itself")

    if case not in kept:
        with monkeypatch.context() as patched:
            patched.setattr("portable_softmax.kernels.fallback.found", not_seen)
            kept[case] = case(at_once(looking(interpreter, 10**6), 0))
    return kept[case]


def shuffled(numbers):
    return random.Random(5).sample(numbers, len(numbers))


def by_split(numbers):
    """All programs of one split before those of any other."""
    return sorted(numbers, key=lambda number: number % 3)


@pytest.mark.each_value
@pytest.mark.parametrize(("polls", "seed"), [(1, 0), (1, 1), (3, 2)])
def test_any_interleaving(interpreter, case, untroubled, polls, seed):
    assert_same(case(at_once(looking(interpreter, polls), seed)), untroubled)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("resident", "order"), [(1, sorted), (1, reversed), (1, shuffled), (2, shuffled), (2, by_split), (7, by_split)]
)
def test_any_order_and_number_at_once(interpreter, case, untroubled, resident, order):
    assert_same(case(at_once(interpreter, 1, resident=resident, order=order)), untroubled)


@pytest.mark.parametrize("programs", [3, 6, 15])
def test_programs_that_take_several_rows(device, where, direction, programs):
    run = functools.partial(launch, device)
    direction(run, "softmax", torch.float32, where, 41, shared(16, 3), programs)
    if device.backend == "interpreter" or device.vendor.aligned_access:
        direction(run, "softmin", torch.float32, where, 37, shared(16, 3), programs, vector=4, stride=39)


def assert_same(result, other):
    assert torch.equal(result.nan_to_num(nan=-2.0), other.nan_to_num(nan=-2.0)), "the bits differ"
    assert torch.equal(result.isnan(), other.isnan())


def test_as_many_splits_as_lanes(device, where):
    x, _ = rows_in(1, 255, 256, torch.float32, where, NAN)
    x[0, : 4 * 31] -= 200
    y, assert_guards = result_in(1, 255, 256, torch.float32, where)
    launch(device, (y, x), problem_of((y, x), "softmax", False), shared(4, 64), 64)
    assert_guards()
    assert_close(y, expected("softmax", x))


def test_programs_that_would_wait_are_seen(interpreter, direction, where, monkeypatch):
    """So the tests above would fail, not hang: here no word arrives, and programs look for it for ever."""
    monkeypatch.setattr("together.MOST_STEPS", 500)
    publish_by(monkeypatch, lambda *arguments: None)
    with pytest.raises(TimeoutError, match="10 programs still wait"):
        direction(at_once(looking(interpreter, 10**6), 0), "softmax", torch.float32, where, 30, shared(16, 2), 10)
