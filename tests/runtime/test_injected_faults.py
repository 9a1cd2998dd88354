"""Faults of words reach the compiled kernels: the situations of tests/kernels/test_neighbours.py are what they say."""

from faults import all_lost
from offline import H200
from situations import publishing

from portable_softmax import Device
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.specialization import KernelSpec


def words_written():
    """Counts how often a kernel of shared rows writes to memory that others read."""
    spec = KernelSpec.of(Problem(4, 4096, "float32", "float32", 4), Tiling(1, 1024, 4, 1, 4))
    return compile_kernel(spec, Device.from_profile(H200)).asm["ptx"].count("atom.")


def test_words_that_are_lost_are_not_written():
    written = words_written()
    with publishing(all_lost):
        assert words_written() == 0
    assert words_written() == written > 0
