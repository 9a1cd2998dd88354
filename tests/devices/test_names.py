"""A product is found by whatever name means it; any other name is answered with what could be meant."""

import re

import pytest
from test_profile_data import DEVICES

from portable_softmax import Device, KernelResources, ProfileError, occupancy, profiles
from portable_softmax.devices.detect import chosen
from portable_softmax.devices.profiles import described

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
ARCHITECTURES = {  # a name, its family and products
    "amd/gfx942": ("CDNA 3", "amd/mi300a, amd/mi300x, amd/mi308x, amd/mi325x"),
    "gfx942:sramecc+:xnack-": ("CDNA 3", "amd/mi300a, amd/mi300x, amd/mi308x, amd/mi325x"),
    "CDNA 4": ("CDNA 4", "amd/mi350p, amd/mi350x, amd/mi355x"),
    "gfx1031": ("RDNA 2", "amd/rx-6700, amd/rx-6700-xt, amd/rx-6750-xt"),
    "gfx1153": ("RDNA 3.5", "amd/radeon-860m, amd/radeon-890m"),
    "nvidia/sm_103": ("Blackwell Ultra", "nvidia/b300, nvidia/gb300"),
    "sm_103a": ("Blackwell Ultra", "nvidia/b300, nvidia/gb300"),
    "cuda/103": ("Blackwell Ultra", "nvidia/b300, nvidia/gb300"),
    "pvc": ("Xe-HPC", "intel/max-1100, intel/max-1450, intel/max-1550"),
}
NEAR = {  # a name, and what is meant by it
    "h100": "nvidia/h100-nvl, nvidia/h100-pcie, nvidia/h100-sxm",
    "nvidia/h200x": "nvidia/h200, ",
    "h200x": "nvidia/h200, ",
    "MI300Y": "amd/mi300x, ",
    "x/h200": "nvidia/h200, nvidia/gh200",
    "MI": "amd/mi50, amd/mi60, amd/mi100, amd/mi210, amd/mi250",
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


@pytest.mark.parametrize(("name", "family", "products"), [(name, *found) for name, found in ARCHITECTURES.items()])
def test_an_architecture_is_answered_with_its_products(name, family, products):
    answer = f"{name!r} is an architecture, {family}; name one of its products: {products}"
    with pytest.raises(ProfileError, match=f"^{re.escape(answer)}$"):
        Device.from_profile(name)


def test_every_architecture_has_such_an_answer():
    for profile in described().every:
        if profile.estimated or profile.backend in ("interpreter", "npu"):  # a target of the last is a product's name too
            continue
        vendor, _, name = profile.name.partition("/")
        for each in (profile.arch, f"{vendor}/{profile.arch}") if profile.product else (name, profile.name):
            with pytest.raises(
                ProfileError, match=r"is an architecture, .*; name (its product|one of its products): "
            ) as refused:
                Device.from_profile(each)
            assert not profile.product or profile.name in str(refused.value) or " more, which" in str(refused.value)


@pytest.mark.parametrize(("name", "meant"), NEAR.items())
def test_a_wrong_name_finds_the_nearest_of_its_vendor_first(name, meant):
    with pytest.raises(ProfileError, match=f"^no profile named '{name}'; did you mean {meant}") as refused:
        Device.from_profile(name)
    assert str(refused.value).count("/") <= 6, "a few names only"


@pytest.mark.parametrize("name", ["", "nvidia/", "qwertz", "amd/h200", "nvidia/rx-7900-xtx", "nvidia/gfx942"])
def test_a_name_that_is_like_none_lists_none(name):
    with pytest.raises(ProfileError, match=rf"no profile named '{name}'; `portable-softmax profiles` shows all"):
        Device.from_profile(name)


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
