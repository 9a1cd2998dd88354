"""The numbers in device_profiles/: complete, sourced, found by the names devices report, and physically possible."""

import itertools
import re
from pathlib import Path

import msgspec
import pytest
import yaml

from portable_softmax import DtypeError, plan
from portable_softmax.devices.policy import NumberRow
from portable_softmax.devices.profiles import find_profile, match_profile, profiles, read_profiles
from portable_softmax.errors import ProfileError

FILES = sorted((Path(__file__).parents[2] / "device_profiles").glob("*/*.yaml"))
ALL = [profile for path in FILES for profile in read_profiles(path)]
PRODUCTS = [profile for profile in ALL if profile.product]
GPUS = [profile for profile in ALL if profile.backend in ("cuda", "hip", "xpu")]

REQUIRED = {
    "nvidia": """v100 t4 a100-40gb a100-80gb-sxm a100-80gb-pcie a10 rtx-3090 l4 l40s rtx-4090 h100-sxm h100-pcie h200
        gh200 b200 rtx-5090 jetson-agx-orin jetson-agx-thor""",
    "amd": """mi100 mi210 mi250x mi300a mi300x mi325x mi350x mi355x
        rx-6900-xt rx-7900-xtx pro-w7900 rx-9070-xt strix-halo""",
    "ascend": """910b1 910b2 910b2c 910b3 910b4 910_9391 910_9392 910_9381 910_9382 910_9372 910_9362
        950pr_957x 950pr_958x 950pr_959x""",
    "intel": "max-1550 max-1100 arc-a770 arc-b580 arc-140v arc-b390",
    "triton": "interpreter",
}

# Triton's architecture, the name that torch reports, the profile: a product, else the architecture, else the estimate.
DEVICES = [
    ("70", "Tesla V100-SXM2-16GB", "nvidia/v100"),
    ("70", "Tesla V100-PCIE-32GB", "nvidia/v100"),
    ("70", "Tesla V100S-PCIE-32GB", "nvidia/sm70"),
    ("75", "Tesla T4", "nvidia/t4"),
    ("75", "NVIDIA T4", "nvidia/t4"),
    ("75", "NVIDIA GeForce RTX 2080 Ti", "nvidia/sm75"),
    ("80", "NVIDIA A100-SXM4-40GB", "nvidia/a100-40gb"),
    ("80", "NVIDIA A100-PCIE-40GB", "nvidia/a100-40gb"),
    ("80", "A100-SXM4-40GB", "nvidia/a100-40gb"),
    ("80", "NVIDIA A100-SXM4-80GB", "nvidia/a100-80gb-sxm"),
    ("80", "NVIDIA A100 80GB PCIe", "nvidia/a100-80gb-pcie"),
    ("80", "NVIDIA A30", "nvidia/sm80"),
    ("86", "NVIDIA A10", "nvidia/a10"),
    ("86", "NVIDIA A10G", "nvidia/sm86"),
    ("86", "NVIDIA GeForce RTX 3090", "nvidia/rtx-3090"),
    ("86", "NVIDIA GeForce RTX 3090 Ti", "nvidia/sm86"),
    ("87", "Orin", "nvidia/sm87"),
    ("89", "NVIDIA L4", "nvidia/l4"),
    ("89", "NVIDIA L40", "nvidia/sm89"),
    ("89", "NVIDIA L40S", "nvidia/l40s"),
    ("89", "NVIDIA GeForce RTX 4090", "nvidia/rtx-4090"),
    ("89", "NVIDIA GeForce RTX 4090 Laptop GPU", "nvidia/sm89"),
    ("90", "NVIDIA H100 80GB HBM3", "nvidia/h100-sxm"),
    ("90", "NVIDIA H100 PCIe", "nvidia/h100-pcie"),
    ("90", "NVIDIA H200", "nvidia/h200"),
    ("90", "NVIDIA GH200 480GB", "nvidia/gh200"),
    ("90", "NVIDIA H299", "nvidia/sm90"),
    ("100", "NVIDIA B200", "nvidia/b200"),
    ("103", "NVIDIA B300", "nvidia/estimated"),
    ("110", "NVIDIA Thor", "nvidia/jetson-agx-thor"),
    ("120", "NVIDIA GeForce RTX 5090", "nvidia/rtx-5090"),
    ("121", "NVIDIA GB10", "nvidia/estimated"),
    ("gfx908", "AMD Instinct MI100", "amd/mi100"),
    ("gfx90a", "AMD Instinct MI210", "amd/mi210"),
    ("gfx90a", "AMD Instinct MI250X / MI250", "amd/mi250x"),
    ("gfx90a", "AMD Instinct MI250X", "amd/mi250x"),
    ("gfx942", "AMD Instinct MI300A", "amd/mi300a"),
    ("gfx942", "AMD Instinct MI300X", "amd/mi300x"),
    ("gfx942", "AMD Instinct MI300X VF", "amd/mi300x"),
    ("gfx942", "AMD Instinct MI325X", "amd/mi325x"),
    ("gfx950", "AMD Instinct MI350X", "amd/mi350x"),
    ("gfx950", "AMD Instinct MI355X", "amd/mi355x"),
    ("gfx1030", "AMD Radeon RX 6900 XT", "amd/rx-6900-xt"),
    ("gfx1100", "AMD Radeon RX 7900 XTX", "amd/rx-7900-xtx"),
    ("gfx1100", "AMD Radeon RX 7900 XT", "amd/gfx1100"),
    ("gfx1100", "AMD Radeon PRO W7900", "amd/pro-w7900"),
    ("gfx1100", "AMD Radeon Graphics", "amd/gfx1100"),
    ("gfx1151", "AMD Radeon(TM) 8060S Graphics", "amd/strix-halo"),
    ("gfx1151", "Radeon 8060S Graphics", "amd/strix-halo"),
    ("gfx1201", "AMD Radeon RX 9070 XT", "amd/rx-9070-xt"),
    ("gfx1250", "AMD Radeon Graphics", "amd/estimated"),
    ("Ascend910B1", "Ascend910B1", "ascend/910b1"),
    ("Ascend910B2", "Ascend910B2", "ascend/910b2"),
    ("Ascend910B2C", "Ascend910B2C", "ascend/910b2c"),
    ("Ascend910B3", "Ascend910B3", "ascend/910b3"),
    ("Ascend910B4", "Ascend910B4", "ascend/910b4"),
    ("Ascend910B4-1", "Ascend910B4-1", "ascend/910b"),
    ("Ascend910_9382", "Ascend910_9382", "ascend/910_9382"),
    ("Ascend910_9391", "Ascend910_9391", "ascend/910_9391"),
    ("Ascend910_9363", "Ascend910_9363", "ascend/910_93"),
    ("Ascend950PR_9579", "Ascend950PR_9579", "ascend/950pr_957x"),
    ("Ascend950PR_9599", "Ascend950PR_9599", "ascend/950pr_959x"),
    ("Ascend310B4", "Ascend310B4", "ascend/estimated"),
    ("12.60.7", "Intel(R) Data Center GPU Max 1550", "intel/max-1550"),
    ("12.60.7", "Intel(R) Data Center GPU Max 1100", "intel/max-1100"),
    ("12.61.7", "Intel(R) Data Center GPU Max 1550VG", "intel/pvc"),
    ("12.55.8", "Intel(R) Arc(TM) A770 Graphics", "intel/arc-a770"),
    ("12.56.5", "Intel(R) Arc(TM) A380 Graphics", "intel/dg2"),
    ("20.1.0", "Intel(R) Arc(TM) B580 Graphics", "intel/arc-b580"),
    ("20.1.4", "Intel(R) Arc(TM) B570 Graphics", "intel/bmg"),
    ("20.4.4", "Intel(R) Arc(TM) Graphics", "intel/arc-140v"),
    ("20.4.4", "Intel(R) Arc(TM) 140V GPU (16GB)", "intel/arc-140v"),
    ("30.0.4", "Intel(R) Arc(TM) B390 GPU", "intel/arc-b390"),
    ("30.1.0", "Intel(R) Graphics", "intel/ptl"),
    ("12.70.4", "Intel(R) Graphics", "intel/estimated"),
    ("interpreter", "interpreter", "triton/interpreter"),
]
BACKENDS = {"nvidia": "cuda", "amd": "hip", "ascend": "npu", "intel": "xpu", "triton": "interpreter"}

OCCUPANCY = [
    "partitions_per_multiprocessor",
    "registers_per_multiprocessor",
    "register_granule",
    "max_registers_per_thread",
    "max_threads_per_program",
    "max_warps_per_multiprocessor",
    "shared_memory_per_program_max",
    "shared_memory_per_multiprocessor",
]
ALLOCATED = {"cuda": "shared_memory_granule", "hip": "shared_memory_granule", "xpu": "shared_memory_sizes"}
PROGRAM_LIMIT = {"cuda": "max_programs_per_multiprocessor"} | dict.fromkeys(("hip", "xpu"), "barriers_per_multiprocessor")


def ids(profile):
    return profile.name


def test_products_are_the_promised_ones():
    promised = {f"{vendor}/{name}" for vendor, names in REQUIRED.items() for name in names.split()}
    assert {profile.name for profile in PRODUCTS} == promised
    assert len(PRODUCTS) == len(promised)  # no name twice
    assert promised <= set(profiles())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_source_is_used_and_listed(path):
    content = yaml.safe_load(path.read_text())
    products = content.get("products", {}).values()
    rows = [*content["launch"].get("numbers", []), *(row for each in products for row in each.get("numbers", []))]
    groups = [content["hardware"], content["launch"], *(each["hardware"] for each in products)]
    facts = [fact for group in groups for fact in group.values() if isinstance(fact, dict)]
    assert {each["source"] for each in [*facts, *rows]} == set(content["sources"])
    assert not re.search(r"/work|/tmp|research/", path.read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_row_of_numbers_is_out_of_reach(path):
    """It would be where an earlier one takes all that it takes, and gives all that it gives."""
    rows = msgspec.convert(yaml.safe_load(path.read_text())["launch"].get("numbers", []), list[NumberRow])
    for earlier, later in itertools.combinations(rows, 2):
        assert not (earlier.conditions.items() <= later.conditions.items() and later.given.keys() <= earlier.given.keys()), (
            later
        )


@pytest.mark.parametrize(("arch", "name", "expected"), DEVICES)
def test_reported_names_find_their_product(arch, name, expected):
    backend = BACKENDS[expected.partition("/")[0]]
    assert match_profile(backend, arch, name).name == expected
    claiming = [p.name for p in PRODUCTS if any(re.fullmatch(pattern, name) for pattern in p.product.matches)]
    assert claiming == ([expected] if expected in profiles() else [])


def test_every_product_has_a_reported_name():
    nameless = {"nvidia/jetson-agx-orin"}  # its name says nothing but Orin
    for profile in PRODUCTS:
        assert bool(profile.product.matches) != (profile.name in nameless), profile.name


@pytest.mark.parametrize("arch", ["Ascend910A", "Ascend910B", "Ascend910ProB", "Ascend910PremiumA", "Ascend310P3"])
def test_chips_that_triton_ascend_cannot_compile_for_match_nothing(arch):
    with pytest.raises(ProfileError):
        match_profile("npu", arch, arch)


@pytest.mark.parametrize("profile", GPUS, ids=ids)
def test_gpus_have_what_occupancy_needs(profile):
    needed = [*OCCUPANCY, ALLOCATED[profile.backend], PROGRAM_LIMIT[profile.backend]]
    if profile.name != "amd/estimated":  # its waves have 32 or 64 lanes
        needed.append("warp_size")
    if profile.product:
        needed += ["multiprocessor_count", "memory_bandwidth_gb_per_s"]
    assert [key for key in needed if getattr(profile.hardware, key) is None] == []
    other = PROGRAM_LIMIT["cuda" if profile.backend != "cuda" else "hip"]
    assert getattr(profile.hardware, other) is None


@pytest.mark.parametrize("profile", GPUS, ids=ids)
def test_gpu_numbers_are_physically_possible(profile):
    hw = profile.hardware
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


@pytest.mark.parametrize("profile", ALL, ids=ids)
def test_caches_are_ordered_and_a_vector_core_holds_a_row(profile):
    hw = profile.hardware
    caches = [hw.l2_cache_bytes, hw.last_level_cache_bytes, hw.memory_bytes]
    known = [size for size in caches if size]
    assert known == sorted(known)
    if profile.backend == "npu":  # fp32 in, out and work, the model of the Unified Buffer with one buffer each
        most = max(row.tile_elements or 0 for row in profile.launch.numbers)
        assert 0 < most * 14 <= hw.shared_memory_per_program_max
        assert hw.warp_size is hw.registers_per_multiprocessor is None


@pytest.mark.parametrize("profile", GPUS, ids=ids)
def test_every_gpu_has_its_limit_of_a_launch(profile):
    hw = profile.hardware
    limits = {"cuda": (2**31 - 1, 65535, None), "hip": (None, None, 2**32 - 1), "xpu": (None, None, 2**32 - 1)}
    assert (hw.max_programs, hw.max_programs_y_z, hw.max_threads) == limits[profile.backend]
    has_tensor_memory = profile.backend == "cuda" and (profile.estimated or profile.arch in ("100", "103", "110"))
    assert hw.tensor_memory_columns == (512 if has_tensor_memory else None)


@pytest.mark.parametrize("profile", GPUS, ids=ids)
def test_estimates_never_promise_more_than_a_described_gpu(profile):
    estimate = match_profile(profile.backend, {"cuda": "999", "hip": "gfx9999", "xpu": "99.9.9"}[profile.backend], None)
    assert estimate.estimated
    for key in [*OCCUPANCY, PROGRAM_LIMIT[profile.backend]]:
        cautious, described = getattr(estimate.hardware, key), getattr(profile.hardware, key)
        assert cautious >= described if "granule" in key else cautious <= described, key
    if profile.backend == "xpu":  # of its sizes each is one of the others'
        assert set(estimate.hardware.shared_memory_sizes) <= set(profile.hardware.shared_memory_sizes)


@pytest.mark.parametrize(
    ("arch", "registers"),
    [
        ("gfx908", 65536),  # AGPRs not counted: nothing else can use them
        ("gfx90a", 131072),
        ("gfx942", 131072),
        ("gfx950", 131072),
        ("gfx1030", 131072),
        ("gfx1100", 196608),
    ],
)
def test_amd_register_files(arch, registers):
    assert match_profile("hip", arch, None).hardware.registers_per_multiprocessor == registers


def test_a_user_can_plan_for_a_product_by_name():
    assert find_profile("nvidia/h200").arch == "90"
    assert find_profile("ascend/950pr_957x").arch == "Ascend950PR_9579"


def test_a_profile_may_compute_fewer_types_than_its_backend():
    with pytest.raises(DtypeError, match=r"xpu/12\.55\.8 computes float16, bfloat16, float32; convert"):
        plan(64, 64, "float64", "intel/arc-a770")
    without = {profile.name for profile in ALL if profile.backend == "xpu" and "float64" not in profile.dtypes}
    assert without == {"intel/dg2", "intel/arc-a770", "intel/estimated"}
