"""An architecture that no profile describes gets a plan that its hardware can keep.

Every known architecture is held out in turn: its runtime's facts are kept, all else comes from estimated.yaml.
"""

from itertools import product

import pytest
from offline import PRODUCTS, foremost
from playback import fresh, play, recorded  # noqa: F401  (an autouse fixture)

from portable_softmax import Device, KernelResources, occupancy, profiles
from portable_softmax.devices.backends import cuda
from portable_softmax.devices.backends.base import Detected
from portable_softmax.devices.device import merge
from portable_softmax.devices.profiles import match_profile

UNKNOWN = {"cuda": "999", "hip": "gfx9999", "xpu": "99.9.9"}
TOLD = {  # by driver and torch, of any device
    "cuda": (
        tuple(cuda.DRIVER_FACTS),
        ("registers_per_multiprocessor", "shared_memory_per_multiprocessor", "max_warps_per_multiprocessor"),
    ),
    "hip": (("multiprocessor_count", "warp_size", "shared_memory_per_program_max"), ()),
    "xpu": (("shared_memory_per_program_max", "max_threads_per_program"), ("multiprocessor_count",)),
}
KNOWN = [name for name in PRODUCTS if profiles()[name].backend in TOLD]
COMPILED = [name for name in KNOWN if profiles()[name].backend != "xpu"]  # the others need another Triton


def held_out(known):
    """The device as it would be detected, had its architecture no profile."""
    driver, torch = ({fact: getattr(known.hardware, fact) for fact in facts} for facts in TOLD[known.backend])
    estimate = match_profile(known.backend, UNKNOWN[known.backend], None)
    assert estimate.estimated
    return merge(estimate, Detected(None, known.arch, driver, torch), None)


def programs(resources, device):
    return occupancy(resources, device).programs_per_multiprocessor


@pytest.mark.parametrize("profile", foremost(KNOWN))
def test_no_kernel_is_promised_more_programs_than_there_are(record_count, profile):
    known = Device.from_profile(profile)
    estimated, hw = held_out(known), known.hardware
    edges = {hw.shared_memory_per_multiprocessor // n + odd for n in (1, 2, 3, 5, 8, 16, 32) for odd in (-1024, 0, 1)}
    sizes = sorted({0, 16, 48 * 1024, hw.shared_memory_per_program_max} | edges)
    granule = 4  # of which those of all vendors are multiples: within it nothing changes
    registers = [count for count in range(1, hw.max_registers_per_thread + 2) if count % granule < 2]
    grid = [KernelResources(*case) for case in product((1, 2, 3, 4, 8, 16, 32), registers, sizes)]
    promised_more = [resources for resources in grid if programs(resources, estimated) > programs(resources, known)]
    record_count("programs on an unknown architecture, never more than there are", len(grid), len(promised_more))
    assert promised_more == []
