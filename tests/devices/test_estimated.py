"""An architecture that no profile describes gets a plan that its hardware can keep.

Every known architecture is held out in turn: its runtime's facts are kept, all else comes from estimated.yaml.
"""

from itertools import product

import pytest
import triton
from offline import PRODUCTS, foremost
from playback import fresh, play, recorded  # noqa: F401  (an autouse fixture)

from portable_probe.program import main
from portable_softmax import CompileError, Device, KernelResources, current_device, occupancy, plan, profiles
from portable_softmax.devices import detect
from portable_softmax.devices.backends import cuda
from portable_softmax.devices.backends.base import Detected
from portable_softmax.devices.device import merge
from portable_softmax.devices.profiles import match_profile
from portable_softmax.runtime.compiler import check_target

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


def skip_unless_triton_compiles_for(known):
    if str(known.arch).startswith("gfx103") and triton.__version__ >= "3.9":
        pytest.skip("Triton 3.9 compiles nothing for it: unsupported target")
    try:
        check_target(known)
    except CompileError as error:
        pytest.skip(str(error))


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


@pytest.mark.parametrize("profile", foremost(COMPILED))
@pytest.mark.parametrize(
    ("dtypes", "lengths"),
    [(("float32",), (781,)), pytest.param(("float16",), (33, 8192, 131072), marks=pytest.mark.slow)],
)
def test_every_plan_fits_the_hardware(record_count, profile, dtypes, lengths):
    known = Device.from_profile(profile)
    skip_unless_triton_compiles_for(known)
    estimated = held_out(known)
    found = [plan(4096, n_cols, dtype, estimated) for dtype, n_cols in product(dtypes, lengths)]
    counts = [(programs(chosen.resources, estimated), programs(chosen.resources, known)) for chosen in found]
    wrong = [chosen for chosen, (promised, true) in zip(found, counts, strict=True) if not 1 <= promised <= true]
    record_count("plans for an unknown architecture, all of which fit it", len(found), len(wrong))
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("driver_h200", 999),
        ("driver_mi300x", "gfx9999"),
        ("driver_rx7900xtx", "gfx9998"),
        ("driver_b580", {"version": "99.9.9"}),
    ],
)
def test_what_a_device_of_an_unknown_architecture_tells_is_a_profile(monkeypatch, tmp_path, name, target):
    """It may contradict the estimate, of which no number is another device's."""
    machine = recorded(name)
    play(monkeypatch, machine | {"target": [machine["target"][0], target, machine["target"][2]]})
    before = current_device()
    assert before.profile.estimated
    assert main(["profiles", "new", str(tmp_path)]) == 0
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    detect._device.cache_clear()
    after = current_device()
    assert (after.profile.estimated, after.hardware) == (False, before.hardware)
