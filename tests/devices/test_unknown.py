"""Architectures that no profile describes, and devices of other vendors whose Triton takes the name of a known backend."""

import warnings
from itertools import product

import pytest
from offline import PRODUCTS, foremost, read_problem
from playback import fresh, play, recorded  # noqa: F401  (an autouse fixture)

from portable_softmax import Device, KernelResources, current_device, occupancy, profiles
from portable_softmax.devices.backends import BACKENDS, cuda
from portable_softmax.devices.backends.base import Detected
from portable_softmax.devices.device import merge
from portable_softmax.devices.profiles import match_profile
from portable_softmax.planning import planner

OTHERS = {
    "lookalike_c550": "MetaX C550 is cuda/80 to Triton, but another vendor's: plans lean on .* of nvidia/est",
    "lookalike_k100_ai": "K100_AI is hip/gfx928 to Triton, but another vendor's: plans lean on .* of amd/est",
    "lookalike_p800": "P800 is xpu/3 to Triton, but another vendor's: plans lean on .* of intel/est",
}


@pytest.mark.parametrize(("name", "sentence"), OTHERS.items(), ids=OTHERS)
def test_a_warning_names_the_device_and_every_problem_has_a_launch_that_fits(monkeypatch, name, sentence):
    machine = recorded(name)
    play(monkeypatch, machine)
    with pytest.warns(UserWarning, match=sentence) as warned:
        other, again = current_device(), current_device()
    assert again is other
    assert len(warned) == 1
    expected = machine["expected"]
    assert (other.profile.name, other.arch, other.profile.estimated) == (expected["profile"], expected["arch"], True)
    for fact, (value, origin) in expected["facts"].items():
        assert (getattr(other.hardware, fact), other.origins[fact]) == (value, origin), fact

    def measure(problem, tiling, device):
        return KernelResources(tiling.num_warps, None, 1024)

    for n_rows, n_cols, backward in product((1, 4096), (1, 33, 781, 50257, 10**6), (False, True)):
        chosen = planner.choose(read_problem(n_rows, n_cols, "bfloat16", other, "softmax", backward), other, measure)
        assert chosen.occupancy.programs_per_multiprocessor >= 1
        assert chosen.tiling.num_warps * other.hardware.warp_size <= other.hardware.max_threads_per_program


VENDORS_OWN = [
    ("cuda", 70, "Tesla V100-SXM2-16GB"), ("cuda", 90, "Graphics Device"), ("cuda", 200, None), ("hip", "gfx906", None),
    ("hip", "gfx90a", None), ("hip", "gfx942:sramecc+:xnack-", None), ("hip", "gfx1250", None),
]  # fmt: skip


@pytest.mark.parametrize(("backend", "arch", "name"), VENDORS_OWN)
def test_no_device_of_the_vendors_own_is_one(monkeypatch, backend, arch, name):
    machine = recorded({"cuda": "driver_h200", "hip": "driver_mi300x"}[backend])
    machine = machine | {"target": [backend, arch, machine["target"][2]], "torch": [machine["torch"][0] | {"name": name}]}
    play(monkeypatch, machine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert current_device().vendor is BACKENDS[backend]


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
