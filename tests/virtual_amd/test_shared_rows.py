"""Programs that share a row, interleaved at random: their words arrive at once, late, or never, and the bits are the same."""

import functools
import random
from dataclasses import replace

import machine_code
import pytest
import torch
from direct import LAYOUTS, as_they_are, backward, beside, forward, in_folded_lines, overwriting
from machine_code import CASES, CPU, FOREMOST, PRODUCTS, compare, in_virtual_device
from sweep import mostly_slow

from amdgcn_cpu.faults import Stuck
from amdgcn_cpu.memory import GlobalMemory
from portable_softmax import Device
from portable_softmax.kernels.form import constexpr_of
from portable_softmax.planning.plan import Tiling
from portable_softmax.runtime.compiler import compile_for
from portable_softmax.runtime.kernel_form import constexprs_of, form_of, kernel_of

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


@pytest.mark.each_value
@pytest.mark.parametrize(
    "arch", mostly_slow([arch for arch in PRODUCTS if arch not in FOREMOST], {"gfx90a", "gfx1201"}.__contains__)
)
def test_words_that_never_arrive_on_the_others(arch, direction):
    together = compare(direction, in_virtual_device(arch), "shared", special=as_they_are, n_rows=1)
    run = in_virtual_device(arch, lambda: Words({1}), seed=1)
    assert torch.equal(compare(direction, run, "shared", special=as_they_are, n_rows=1), together)


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
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "arch", ["gfx1100", "gfx942", *(pytest.param(each, marks=pytest.mark.slow) for each in ("gfx90a", "gfx1201"))]
)
@pytest.mark.parametrize("held", [True, False])
def test_rows_side_by_side_have_the_same_bits_in_any_interleaving(arch, direction, layout, held):
    tiling, device = Tiling(16, 32, 2, None, 3, blocks=2, walk=False, held=held), Device.from_profile(PRODUCTS[arch])

    def result(**interleaving):
        run = in_virtual_device(arch, **interleaving)
        return beside(direction, layout, device, run, "softmax", torch.float32, CPU, (1, 160, 32), tiling, None, as_they_are)

    assert torch.equal(result(seed=3, resident=1, order=backwards), result())


@pytest.mark.each_value
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
def test_folded_lines_have_the_same_bits_in_any_interleaving(arch, direction, held):
    tiling = Tiling(16, 4, 2, None, 2, blocks=2, walk=False, held=held)

    def result(*memory, **interleaving):
        run = in_virtual_device(arch, *memory, **interleaving)
        return in_folded_lines(direction, 4, run, "softmax", torch.float32, CPU, (1, 64, 9), tiling, None, as_they_are)

    together = result()
    assert torch.equal(result(seed=3, resident=1, order=backwards), together)
    memory = Words({1})
    assert torch.equal(result(lambda: memory, seed=1), together)
    own = 2 * 2 * 4 * 9  # words of each program: two of a row's place, in each of two splits
    assert memory.swaps > own, "no program found a split of another by itself"


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


@pytest.fixture
def blind(monkeypatch):
    """Programs look for words once they have read a split again, and not ahead of that."""

    def compiled(spec, arch):
        device, tiling = Device.from_profile(PRODUCTS[arch]), spec.tiling
        constexprs = constexprs_of(spec, device) | {"FORM": constexpr_of(replace(form_of(spec, device), polls=0))}
        options = tiling.num_warps, tiling.num_stages, tiling.max_registers, tiling.blocks > 1
        return compile_for(device, kernel_of(spec), spec.signature(), constexprs, *options)

    machine_code.text_of.cache_clear()
    monkeypatch.setattr(machine_code, "compiled", functools.cache(compiled))
    yield
    machine_code.text_of.cache_clear()


@pytest.mark.each_value
@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("arch", sorted(FOREMOST))
def test_rows_that_are_overwritten(arch, direction, name, blind):
    together = compare(direction, in_virtual_device(arch), name, special=as_they_are)
    for seed, resident, order in [(1, None, sorted), (2, 2, shuffled), (3, 1, backwards)]:
        run = overwriting(in_virtual_device(arch, seed=seed, resident=resident, order=order), 1)
        assert torch.equal(compare(direction, run, name, special=as_they_are), together)


def test_rows_that_are_overwritten_elsewhere_would_be_wrong(blind):
    """So the test above can fail: here a program that has read a split again takes what it read."""

    def elsewhere(operands, problem, tiling, programs):
        in_virtual_device("gfx942", resident=1)(operands, replace(problem, in_place=False), tiling, programs)

    with pytest.raises(AssertionError):
        compare(forward, overwriting(elsewhere, 1), "shared", special=as_they_are)


def test_a_program_that_waits_for_ever_is_seen():
    """With a loop that no number of looks ends; so the tests above would fail, not hang."""

    def endless(text):
        if "s_cmpk_gt_u32 " not in text:
            pytest.skip("this Triton counts looks in another way")
        assert text.count("s_cmpk_gt_u32 ") == 1
        return text.replace("s_cmpk_gt_u32 ", "s_cmpk_lt_u32 0, s0 ;").replace("0, s0 ;", "s0, 0x0 ;")

    run = in_virtual_device("gfx942", lambda: Words({0}), endless, most_steps=50_000)
    with pytest.raises(Stuck, match="programs still run"):
        compare(forward, run, "shared", special=as_they_are)
