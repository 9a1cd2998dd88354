"""The numbers in device_profiles/ are complete, sourced and possible; reported and written names select them."""

import re
from pathlib import Path

import pytest

from portable_softmax import Device, ProfileError
from portable_softmax.devices.detect import chosen
from portable_softmax.devices.names import find_profile, find_profiles
from portable_softmax.devices.profiles import SHIPPED, every_profile, match_profile, profiles, read_profiles

ALL = read_profiles(sorted(SHIPPED.glob("*/*.yaml")))
PRODUCTS = [profile for profile in ALL if profile.is_product]

# Triton's architecture, the name that torch reports, the profile: a product, else the architecture, else the estimate.
REPORTED = Path(__file__).with_name("reported_names.txt").read_text().splitlines()[1:]
DEVICES = [tuple(part.strip() for part in line.split("|")) for line in REPORTED]
NAMELESS = {  # products whose name is others' too
    *("nvidia/jetson-agx-orin", "nvidia/jetson-agx-orin-32gb", "nvidia/jetson-orin-nx-16gb", "nvidia/jetson-orin-nx-8gb"),
    *("nvidia/jetson-orin-nano-8gb", "nvidia/jetson-orin-nano-4gb", "amd/mi50", "amd/mi250"),
}
BACKENDS = {profile.name: profile.backend for profile in ALL}

OCCUPANCY = [
    *("registers_per_multiprocessor", "register_granule", "max_registers_per_thread", "max_threads_per_program"),
    *("max_warps_per_multiprocessor", "shared_memory_per_program_max", "shared_memory_per_multiprocessor"),
]
PROGRAM_LIMIT = {"cuda": "max_programs_per_multiprocessor"} | dict.fromkeys(("hip", "xpu"), "barriers_per_multiprocessor")
LAUNCH_LIMITS = {"cuda": (2**31 - 1, 65535, None)} | dict.fromkeys(("hip", "xpu"), (None, None, 2**32 - 1))


def test_each_product_has_a_name_of_its_own_that_is_reported():
    names = {profile.name for profile in PRODUCTS}
    assert len(PRODUCTS) == len(names) == len(profiles()), "no name twice"
    assert names - {expected for _, _, expected in DEVICES} == NAMELESS
    assert {profile.name for profile in PRODUCTS if not profile.matches} == NAMELESS


def test_reported_names_find_their_product():
    for arch, name, expected in DEVICES:
        assert match_profile(BACKENDS[expected], arch, name).name == expected
        claiming = [p.name for p in PRODUCTS if any(re.fullmatch(pattern, name) for pattern in p.matches)]
        assert claiming == ([expected] if expected in profiles() else []), name


@pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.name)
def test_numbers_of_a_profile_are_complete_and_possible(profile):
    hw, backend = profile.hardware, profile.backend
    known = [size for size in (hw.l2_cache_bytes, hw.last_level_cache_bytes, hw.memory_bytes) if size]
    assert known == sorted(known)
    if backend == "npu":  # fp32 in, out and work, with one buffer each
        assert 0 < profile.launch.tile_elements.value * 14 <= hw.shared_memory_per_program_max
        assert hw.warp_size is hw.registers_per_multiprocessor is None
    if backend not in PROGRAM_LIMIT:
        return
    assert getattr(hw, PROGRAM_LIMIT[backend])
    assert not profile.is_product or (hw.warp_size and hw.multiprocessor_count and hw.memory_bandwidth_gb_per_s)
    assert getattr(hw, PROGRAM_LIMIT["cuda" if backend != "cuda" else "hip"]) is None
    assert (hw.max_programs, hw.max_programs_y_z, hw.max_threads) == LAUNCH_LIMITS[backend]
    has_tensor_memory = backend == "cuda" and (profile.estimated or profile.arch in ("100", "103", "110"))
    assert hw.tensor_memory_columns == (512 if has_tensor_memory else None)
    warp = hw.warp_size or 32  # the case with more warps
    partition = hw.registers_per_multiprocessor // hw.partitions_per_multiprocessor
    assert hw.max_registers_per_thread * warp <= partition
    assert hw.max_threads_per_program // warp <= hw.max_warps_per_multiprocessor
    assert hw.max_warps_per_multiprocessor % hw.partitions_per_multiprocessor == 0
    reserved = hw.shared_memory_reserved_per_program or 0
    assert hw.shared_memory_per_program_max + reserved <= hw.shared_memory_per_multiprocessor
    if not profile.estimated:  # an estimate pairs the coarsest granule with the smallest memory
        assert partition % (warp * hw.register_granule) == 0
        assert hw.shared_memory_per_multiprocessor % (hw.shared_memory_granule or hw.shared_memory_sizes[0]) == 0


@pytest.mark.parametrize(("backend", "arch"), [("cuda", "999"), ("hip", "gfx9999"), ("xpu", "99.9.9")])
def test_estimates_never_promise_more_than_a_described_gpu(backend, arch):
    estimate = match_profile(backend, arch, None)
    assert estimate.estimated
    cautious = estimate.hardware
    for described in (profile.hardware for profile in ALL if profile.backend == backend):
        for key in (*OCCUPANCY, PROGRAM_LIMIT[backend]):
            pair = getattr(cautious, key), getattr(described, key)
            assert pair == tuple(sorted(pair, reverse="granule" in key)), key
        slices = [facts.registers_per_multiprocessor // facts.partitions_per_multiprocessor for facts in (cautious, described)]
        assert slices == sorted(slices)
        assert set(cautious.shared_memory_sizes or ()) <= set(described.shared_memory_sizes or ())


MEANT = """
nvidia/h200 | h200, nvidia/H200, nvidia h200, NVIDIA H200
amd/rx-7900-xtx | amd/rx7900xtx, gfx1100
nvidia/rtx-2080-ti | RTX 2080 Ti, rtx_2080_ti
nvidia/h100-sxm | nvidia h100 80gb hbm3, sm_90, sm90, nvidia/sm_90a
amd/gfx1153 | gfx1153, GFX1153, amd/gfx1153:sramecc-, hip:gfx1153
amd/mi300x | MI300X, amd_mi300x, amd/gfx942, gfx942:sramecc+:xnack-
nvidia/b300 | sm_103, cuda/103, cuda:103, compute_103, sm_103f
ascend/910b3 | Ascend910B3
ascend/910_9391 | 910_9391
intel/max-1550 | pvc
did you mean nvidia/h200? | nvidia/h200x
did you mean mi300x? | MI300Y
did you mean a100-40gb or a100-80gb-pcie or a100-80gb-sxm? | a100
did you mean rtx-a6000? | a6000
'; `portable-softmax profiles` lists all | qwertz, gfx1250, MetaX C550, nvidia/vr200, RTX 5050, gfx90
"""


@pytest.mark.parametrize(("expected", "names"), [line.split(" | ") for line in MEANT.strip().splitlines()])
def test_a_name_means_a_product_or_is_refused(expected, names):
    for name in names.split(", "):
        if expected[:3] in ("did", "'; "):
            with pytest.raises(ProfileError, match=f"no profile named '{name}.*{re.escape(expected)}"):
                find_profile(name)
        else:
            assert Device.from_profile(name) is chosen(name) is Device.from_profile(expected)
            assert Device.from_profile(name).name == expected


def test_every_name_is_found_in_any_spelling():
    for at, name in enumerate(profiles()):
        product = name.partition("/")[2]
        spellings = name, product, product.upper(), name.replace("/", " "), product.replace("-", "_")
        assert find_profile(spellings[at % 5]).name == name
        assert find_profile(profiles()[name].arch).arch == profiles()[name].arch
    for _, reported, name in DEVICES:
        assert name not in profiles() or find_profile(reported).name == name
    for family in every_profile():
        if not family.is_product and not family.estimated and family.backend != "interpreter":
            assert find_profile(family.name).target_pattern == family.target_pattern


def test_globs_mean_several_and_each_once():
    names = [profile.name for profile in find_profiles(["h200", "MI300X", "amd/mi3*", "sm_90", "h200"])]
    assert names == ["nvidia/h200", "amd/mi300x", "amd/mi350x", "nvidia/h100-sxm"]
    every = find_profiles(["*/*"])
    assert len({(p.backend, p.target_pattern) for p in profiles().values()}) == len(every)
    with pytest.raises(ProfileError, match="no profile matches 'ibm/"):
        find_profiles(["ibm/*"])
