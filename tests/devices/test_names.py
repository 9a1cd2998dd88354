"""A product is found by whatever name means it, an architecture by its first product, several by globs and commas."""

import pytest
from test_profile_data import DEVICES

from portable_softmax import Device, ProfileError, profiles
from portable_softmax.devices.detect import chosen
from portable_softmax.devices.names import find_profile, find_profiles
from portable_softmax.devices.profiles import every_profile

MEANT = {
    **dict.fromkeys(("h200", "nvidia/H200", "nvidia h200", "NVIDIA H200"), "nvidia/h200"),
    **dict.fromkeys(("amd/rx7900xtx", "gfx1100"), "amd/rx-7900-xtx"),
    **dict.fromkeys(("RTX 2080 Ti", "rtx_2080_ti"), "nvidia/rtx-2080-ti"),
    **dict.fromkeys(("nvidia h100 80gb hbm3", "sm_90", "sm90", "nvidia/sm_90a", "Hopper"), "nvidia/h100-sxm"),
    **dict.fromkeys(("MI300X", "amd_mi300x", "amd/gfx942", "gfx942:sramecc+:xnack-", "CDNA 3"), "amd/mi300x"),
    **dict.fromkeys(("sm_103", "cuda/103"), "nvidia/b300"),
    "arc-b580": "intel/arc-b580",
    "910_9391": "ascend/910_9391",
    "Ascend910B3": "ascend/910b3",
    "pvc": "intel/max-1550",
}
LISTED = "`portable-softmax profiles` lists all"
REFUSED = {
    "nvidia/h200x": r"no profile named 'nvidia/h200x'; did you mean nvidia/h200\?",
    "MI300Y": r"did you mean mi300x\?",
    "a100": r"'a100' may be nvidia/a100-40gb, nvidia/a100-80gb-pcie, nvidia/a100-80gb-sxm; write one of them",
    **dict.fromkeys(("", "qwertz"), LISTED),
}


@pytest.mark.parametrize(("name", "expected"), MEANT.items())
def test_a_name_means_a_product(name, expected):
    assert Device.from_profile(name) is chosen(name) is Device.from_profile(expected)


def test_each_product_has_its_own_name_and_each_architecture_one_of_its_products():
    for name in profiles():
        product = name.partition("/")[2]
        for spelled in (name, product, product.upper(), name.replace("/", " "), product.replace("-", "_")):
            assert find_profile(spelled).name == name
    for _, reported, name in DEVICES:
        assert name not in profiles() or find_profile(reported).name == name
    for family in every_profile():
        if not family.product and not family.estimated and family.backend != "interpreter":
            assert find_profile(family.name).arch_pattern == family.arch_pattern


@pytest.mark.parametrize(("name", "answer"), REFUSED.items())
def test_any_other_name_is_answered_with_what_could_be_meant(name, answer):
    with pytest.raises(ProfileError, match=answer):
        find_profile(name)


def test_globs_and_commas_mean_several_and_each_once():
    names = [profile.name for profile in find_profiles(["h200,MI300X", "amd/mi3*", "sm_90", "h200"])]
    assert names == ["nvidia/h200", "amd/mi300x", "amd/mi350x", "nvidia/h100-sxm"]
    every = find_profiles(["*/*"])
    assert len({(p.backend, p.arch_pattern) for p in profiles().values()}) == len(every)
    with pytest.raises(ProfileError, match="no profile matches 'ibm/"):
        find_profiles(["ibm/*"])


def test_a_product_of_two_vendors_is_named_with_its_vendor(tmp_path, monkeypatch):
    (tmp_path / "mycluster").mkdir()
    (tmp_path / "mycluster" / "h200.yaml").write_text("extends: nvidia/h200\n")
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    with pytest.raises(ProfileError, match="'H200' may be mycluster/h200, nvidia/h200; write one of them"):
        find_profile("H200")
    assert find_profile("mycluster/h200").name == "mycluster/h200"


@pytest.mark.parametrize("name", [None, 90, b"h200"])
def test_a_name_is_text(name):
    with pytest.raises(TypeError, match="text like vendor/product, not"):
        find_profile(name)
