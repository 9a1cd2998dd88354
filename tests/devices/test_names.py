"""A product is found by whatever name means it; any other name is answered with what could be meant."""

import re

import pytest
from test_profile_data import DEVICES

from portable_softmax import Device, KernelResources, ProfileError, occupancy, profiles
from portable_softmax.devices.detect import chosen
from portable_softmax.devices.profiles import every_profile

SPELT = {
    "h200": "nvidia/h200",
    "nvidia/H200": "nvidia/h200",
    "nvidia h200": "nvidia/h200",
    "MI300X": "amd/mi300x",
    "amd_mi300x": "amd/mi300x",
    "amd/rx7900xtx": "amd/rx-7900-xtx",
    "RTX 2080 Ti": "nvidia/rtx-2080-ti",
    "rtx_2080_ti": "nvidia/rtx-2080-ti",
    "nvidia h100 80gb hbm3": "nvidia/h100-sxm",
    "arc-b580": "intel/arc-b580",
    "910_9391": "ascend/910_9391",
}
CDNA3 = r"'{}' is an architecture, CDNA 3; name a product: amd/mi300a, amd/mi300x, amd/mi308x, amd/mi325x$"
ULTRA = r"'{}' is an architecture, Blackwell Ultra; name a product: nvidia/b300, nvidia/gb300$"
NONE = r"no profile named '{}'; `portable-softmax profiles` lists all"
NEAR = r"no profile named '{}'; did you mean %s\?"
ANSWERS = {  # what is said of a name that is no product's
    **dict.fromkeys(("amd/gfx942", "gfx942:sramecc+:xnack-"), CDNA3),
    **dict.fromkeys(("nvidia/sm_103", "cuda/103"), ULTRA),
    "gfx1031": r"'{}' is an architecture, RDNA 2; name a product: .*amd/rx-6700, ",
    "pvc": r"'{}' is an architecture, Xe-HPC; name a product: intel/max-1100, intel/max-1450, intel/max-1550$",
    "nvidia/h200x": NEAR % "nvidia/h200",
    "h200x": NEAR % "h200",
    "MI300Y": NEAR % "mi300x",
    **dict.fromkeys(("", "qwertz"), NONE),
}


@pytest.mark.parametrize(("name", "expected"), SPELT.items())
def test_a_product_is_found_however_it_is_spelt(name, expected):
    assert Device.from_profile(name) is chosen(name) is Device.from_profile(expected)
    used = KernelResources(4, 66, 16)
    if Device.from_profile(name).hardware.warp_size:
        assert occupancy(used, name) == occupancy(used, expected)


def test_each_product_is_found_by_itself_and_by_what_its_runtime_reports():
    for name in profiles():
        product = name.partition("/")[2]
        for each in (name, product, product.upper(), name.replace("/", " "), product.replace("-", "_")):
            assert Device.from_profile(each).profile.name == name
    for _, reported, name in DEVICES:
        if name in profiles():
            assert Device.from_profile(reported).profile.name == name


@pytest.mark.parametrize(("name", "answer"), ANSWERS.items())
def test_any_other_name_is_answered_with_what_could_be_meant(name, answer):
    with pytest.raises(ProfileError, match="^" + answer.format(re.escape(name))):
        Device.from_profile(name)


def test_every_architecture_has_such_an_answer():
    for profile in every_profile():
        if profile.estimated or profile.backend in ("interpreter", "npu"):  # a target of the last is a product's name too
            continue
        vendor, _, name = profile.name.partition("/")
        for each in (profile.arch, f"{vendor}/{profile.arch}") if profile.product else (name, profile.name):
            with pytest.raises(ProfileError, match=r"is an architecture, .*; name a product: ") as refused:
                Device.from_profile(each)
            assert not profile.product or profile.name in str(refused.value)


@pytest.mark.parametrize("name", [None, 200, ["nvidia/h200"]])
def test_a_name_is_text(name):
    with pytest.raises(TypeError, match=r"a profile's name is text like vendor/product, not "):
        Device.from_profile(name)


def test_a_product_of_two_vendors_is_named_with_its_vendor(tmp_path, monkeypatch):
    (tmp_path / "mycluster").mkdir()
    (tmp_path / "mycluster" / "h200.yaml").write_text("extends: nvidia/h200\n")
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    with pytest.raises(ProfileError, match=r"'H200' is the name of mycluster/h200 and of nvidia/h200; write one of them"):
        Device.from_profile("H200")
    assert Device.from_profile("mycluster/H200").profile.name == "mycluster/h200"


def test_products_are_listed_as_people_count():
    found = list(profiles())
    amd = ["amd/mi50", "amd/mi60", "amd/mi100", "amd/mi210", "amd/mi300x", "amd/rx-6600", "amd/rx-6600-xt", "amd/rx-7600"]
    assert [name for name in found if name in amd] == amd
    assert [name for name in found if "910_93" in name] == sorted(name for name in found if "910_93" in name)
    assert [name.partition("/")[0] for name in found] == sorted(name.partition("/")[0] for name in found)
