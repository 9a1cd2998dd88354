"""Programs per Xe core against the driver's own formula and against Intel's GPU Occupancy Calculator.

Both are written here once more, from their sources and apart from the package: KernelHelper::getMaxWorkGroupCount with
calculateAvailableThreadCount and alignSlmSizePerThreadGroup of intel/compute-runtime, and compute_ss_occupancy of
Tools/GPU-Occupancy-Calculator/index.html in oneapi-src/oneAPI-samples. Facts are theirs, not the profiles'.
"""

import itertools
from typing import NamedTuple

import pytest

from portable_softmax import Device, KernelResources, occupancy

KB = 1024
SLM_SIZES = [size * KB for size in (0, 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)]
UNEVEN = {24 * KB, 48 * KB, 96 * KB}  # sizes of which no whole number is what a core has


class Facts(NamedTuple):
    """Numbers that both sources call by other names; `slm` and `barriers` are (the driver's, the calculator's)."""

    cores: int
    eus: int
    slm: tuple[int, int]
    barriers: tuple[int, int]
    lanes: int
    grf_bytes: int
    modes: dict[int, int]  # threads of an EU by the most GRFs of each


TWO_MODES = {128: 8, 256: 4}
XE3 = {96: 10, 128: 8, 160: 6, 192: 5, 256: 4}
PRODUCTS = {
    "intel/max-1550": Facts(64, 8, (128 * KB, 128 * KB), (32, 64), 32, 64, TWO_MODES),
    "intel/max-1100": Facts(56, 8, (128 * KB, 128 * KB), (32, 64), 32, 64, TWO_MODES),
    "intel/arc-a770": Facts(32, 16, (64 * KB, 128 * KB), (32, 128), 16, 32, TWO_MODES),
    "intel/arc-b580": Facts(20, 8, (128 * KB, 128 * KB), (32, 64), 32, 64, TWO_MODES),
    "intel/arc-140v": Facts(8, 8, (128 * KB, 128 * KB), (32, 64), 32, 64, TWO_MODES),
    "intel/arc-b390": Facts(12, 8, (128 * KB, 0), (32, 0), 32, 64, XE3),  # the calculator does not know it
}


def aligned(slm):
    return next(size for size in SLM_SIZES if slm <= size)


def by_the_driver(facts, warps, grfs, barriers, slm):
    """Programs of the whole device."""
    threads = facts.cores * facts.eus * next(count for most, count in facts.modes.items() if grfs <= most)
    groups = min(threads // warps, threads // facts.cores // warps * facts.cores)
    if barriers:
        groups = min(groups, facts.cores * (facts.barriers[0] // barriers))
    if slm:
        groups = min(groups, facts.cores * facts.slm[0] // aligned(slm))
    return groups


def by_the_calculator(facts, warps, large, barriers, slm):
    """Programs of a core; a limit on work-groups of one for each of its threads."""
    threads = facts.eus * 8
    most = facts.barriers[1] if barriers else threads
    by_slm = facts.slm[1] // aligned(slm) if slm else most
    return min(threads // (2 if large else 1) // warps, by_slm, most)


def cases(facts):
    """(warps, GRFs, barriers, bytes of SLM) of programs that the driver takes."""
    sizes = sorted({0, 1, 16, *(size + odd for size in SLM_SIZES[1:] for odd in (-1, 0, 1) if size + odd <= facts.slm[0])})
    most = 1024 // facts.lanes
    for warps, grfs, barriers, slm in itertools.product(range(1, most + 1), range(32, 257, 32), (0, 1), sizes):
        halved = facts.lanes < 32 and grfs > 128  # calculateMaxWorkGroupSize
        if facts.modes is TWO_MODES and grfs not in TWO_MODES:
            continue  # ocloc gives a kernel one or the other
        if not (halved and warps > most // 2):
            yield warps, grfs, barriers, slm


def ours(name, facts, warps, grfs, barriers, slm):
    registers = grfs * facts.grf_bytes // 4 // facts.lanes
    used = KernelResources(warps, registers, slm, barriers=barriers)
    return occupancy(used, name).programs_per_multiprocessor


@pytest.mark.parametrize("name", PRODUCTS)
def test_programs_are_the_drivers(record_count, name):
    """It counts SLM of the whole device, as if a program's could lie in two cores; else there is no difference."""
    facts = PRODUCTS[name]
    assert Device.from_profile(name).hardware.multiprocessor_count == facts.cores
    compared, different = 0, []
    for case in cases(facts):
        mine, theirs = facts.cores * ours(name, facts, *case), by_the_driver(facts, *case)
        compared += 1
        if mine != theirs:
            different.append((case, mine, theirs))
    unexplained = [each for each in different if each[1] > each[2] or aligned(each[0][3]) not in UNEVEN]
    record_count("programs per device, compute-runtime's getMaxWorkGroupCount", compared, len(unexplained))
    assert not unexplained
    assert different, "at 48 and 96 KB there should be some"


@pytest.mark.parametrize("name", [name for name, facts in PRODUCTS.items() if facts.barriers[1]])
def test_programs_are_the_calculators(record_count, name):
    """Its barriers are 64 or 128 where the driver has 32, and an Arc A770 has twice as much SLM there."""
    facts = PRODUCTS[name]
    compared, unexplained = 0, []
    for warps, grfs, barriers, slm in cases(facts):
        mine, theirs = ours(name, facts, warps, grfs, barriers, slm), by_the_calculator(facts, warps, grfs > 128, barriers, slm)
        compared += 1
        more_slm = slm and facts.slm[0] < facts.slm[1] and mine == facts.slm[0] // aligned(slm)
        if mine != theirs and not (mine < theirs and ((barriers and mine == facts.barriers[0]) or more_slm)):
            unexplained.append((warps, grfs, barriers, slm, mine, theirs))
    record_count("programs per Xe core, Intel's GPU Occupancy Calculator", compared, len(unexplained))
    assert not unexplained


def test_a_program_too_large_for_its_registers_does_not_run():
    """1,024 threads in sub-groups of 16 with 256 GRFs: the driver takes 512."""
    assert occupancy(KernelResources(64, 64), "intel/arc-a770").programs_per_multiprocessor == 2
    found = occupancy(KernelResources(64, 128), "intel/arc-a770")
    assert (found.programs_per_multiprocessor, found.limited_by) == (0, ("threads per program",))
    assert occupancy(KernelResources(32, 128), "intel/max-1550").programs_per_multiprocessor == 1


def test_registers_that_are_not_known_are_counted_as_the_most():
    found = occupancy(KernelResources(4, None, 16), "intel/max-1550")
    assert found.limits == {"warps": 16, "barriers": 32, "registers (estimated)": 8, "shared memory": 128}
    assert found.limited_by == ("registers (estimated)",)
