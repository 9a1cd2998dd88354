"""The next step is the least that raises the number of programs."""

import pytest

from portable_probe.explain import next_step
from portable_softmax import Device, KernelResources, occupancy


def step_of(profile, *resources):
    return next_step(KernelResources(*resources), Device.from_profile(profile))


def programs(profile, *resources):
    return occupancy(KernelResources(*resources), Device.from_profile(profile)).programs_per_multiprocessor


@pytest.mark.parametrize(
    ("profile", "resources", "step"),
    [
        ("amd/mi100", (4, 66, 16), "4 programs instead of 3 with at most 64 registers per thread (66 now)"),
        ("nvidia/h200", (4, 100, 40000), "5 programs instead of 4 with at most 96 registers per thread (100 now)"),
        ("nvidia/h200", (4, 32, 40000), "6 programs instead of 5 with at most 37888 bytes of shared memory (40000 now)"),
        ("nvidia/h200", (4, 24, 4112), "already at the hardware limit (warps)"),
        ("amd/mi300x", (4, 40, 65536), "2 programs instead of 1 with at most 32768 bytes of shared memory (65536 now)"),
        ("ascend/910b3", (None, None, 200_000), "does not fit: a program needs 200000 bytes of Unified Buffer, and 196608 fit"),
        (
            "nvidia/h200",
            (4, 100, 50000),
            "5 programs instead of 4 with at most 96 registers per thread (100 now) "
            "and at most 45568 bytes of shared memory (50000 now)",
        ),
        (
            "intel/max-1550",
            (8, None, 0),
            "unknown: the compiler does not report registers (install `ocloc`); all else allows 8",
        ),
    ],
)
def test_the_next_step(profile, resources, step):
    assert step_of(profile, *resources) == step


def test_the_next_step_is_the_least_that_helps():
    for registers in range(33, 256):
        step = step_of("nvidia/h200", 4, registers, 16)
        most = int(step.split(" at most ")[1].split()[0])
        here = programs("nvidia/h200", 4, registers, 16)
        assert programs("nvidia/h200", 4, most, 16) > here == programs("nvidia/h200", 4, most + 1, 16)
