"""Programs that share a row, interleaved at random: their words arrive at once, late, or never, and the bits are the same."""

import random

import pytest
import torch
from direct import as_they_are, backward, beside, forward
from machine_code import CASES, CPU, FOREMOST, PRODUCTS, compare, in_virtual_device

from amdgcn_cpu.memory import GlobalMemory
from portable_softmax import Device
from portable_softmax.planning.plan import Tiling

SHARED = ["shared", "shared, unaligned"]


class Words(GlobalMemory):
    """Memory in which the words of some splits arrive after `late` more accesses, or never.

    Args:
        splits: whose words are kept back.
        late: accesses, until they are there; None is never.
    """

    def __init__(self, splits, late=None):
        super().__init__()
        self.splits, self.late, self.accesses, self.kept, self.swaps = splits, late, 0, [], 0

    def exchange(self, address, value, size, operation):
        assert size == 8
        if operation != "swap":  # an atomic that looks, and changes nothing
            assert (operation, value) in (("or", 0), ("add", 0))
            return super().exchange(address, value, size, operation)
        self.swaps += 1
        if (address % 2**36 // 8) % 16 // 2 not in self.splits:  # 16 words for up to 8 splits of a row
            return super().exchange(address, value, size, operation)
        self.kept.append((self.accesses, address, value))
        return 0

    def load(self, addresses, size):
        self._arrive()
        return super().load(addresses, size)

    def _arrive(self):
        self.accesses += 1
        arrived = [each for each in self.kept if self.late is not None and self.accesses > each[0] + self.late]
        self.kept = [each for each in self.kept if each not in arrived]
        for _, address, value in arrived:
            super().exchange(address, value, 8, "swap")


@pytest.fixture(params=[arch if arch in FOREMOST else pytest.param(arch, marks=pytest.mark.slow) for arch in PRODUCTS])
def arch(request):
    return request.param


@pytest.fixture(params=[forward, backward])
def direction(request):
    return request.param


def shuffled(numbers):
    return random.Random(5).sample(list(numbers), len(list(numbers)))


def backwards(numbers):
    return list(numbers)[::-1]


@pytest.mark.each_value
@pytest.mark.parametrize("name", SHARED)
def test_any_interleaving(arch, direction, name):
    together = compare(direction, in_virtual_device(arch), name, special=as_they_are)
    for seed, resident, order in [(1, None, sorted), (2, 2, shuffled), (3, 1, backwards)]:
        run = in_virtual_device(arch, seed=seed, resident=resident, order=order)
        assert torch.equal(compare(direction, run, name, special=as_they_are), together)


@pytest.mark.each_value
@pytest.mark.parametrize(
    "arch", ["gfx1100", "gfx942", *(pytest.param(each, marks=pytest.mark.slow) for each in ("gfx90a", "gfx1201"))]
)
@pytest.mark.parametrize("held", [True, False])
def test_rows_side_by_side_have_the_same_bits_in_any_interleaving(arch, direction, held):
    tiling, device = Tiling(16, 32, 2, None, 3, blocks=2, walk=False, held=held), Device.from_profile(PRODUCTS[arch])

    def result(**interleaving):
        run = in_virtual_device(arch, **interleaving)
        return beside(direction, device, run, "softmax", torch.float32, CPU, (1, 160, 32), tiling, None, as_they_are)

    assert torch.equal(result(seed=3, resident=1, order=backwards), result())


def test_a_split_of_one_block_has_the_same_bits_whoever_finds_it():
    """Products must not become one with the additions of their sum in `reduce`, as `reduce_split` adds in a loop."""
    name = "shared, in one block"
    together = compare(backward, in_virtual_device("gfx942"), name, special=as_they_are, n_rows=6)
    alone = compare(backward, in_virtual_device("gfx942", seed=2, resident=1), name, special=as_they_are, n_rows=6)
    assert torch.equal(alone, together)


@pytest.mark.each_value
@pytest.mark.parametrize("splits", [{0}, {2}, {0, 1, 2}], ids=str)
@pytest.mark.parametrize("late", [None, 30])
def test_words_that_arrive_late_or_never(arch, direction, splits, late):
    together = compare(direction, in_virtual_device(arch), "shared", special=as_they_are)
    memories = []

    def memory():
        memories.append(Words(splits, late))
        return memories[0]

    assert torch.equal(compare(direction, in_virtual_device(arch, memory), "shared", special=as_they_are), together)
    tiling = CASES["shared"][0]
    own = 2 * 2 * tiling.splits  # words of two rows
    assert memories[0].swaps > own or late, "no program found a split of another by itself"
