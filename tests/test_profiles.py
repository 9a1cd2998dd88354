"""Profiles are validated with file, key and reason; users add their own."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from portable_softmax import Device, ProfileError, profiles
from portable_softmax.profiles import match_profile, read_profiles
from portable_softmax.schema import ProfileFile

SHIPPED = Path(__file__).parents[1] / "device_profiles"
H200 = (SHIPPED / "nvidia" / "sm90.yaml").read_text()
GRANULE = "register_granule: {value: 8, source: occupancy}"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("value: 8, source", "value: eight, source", r"Expected `int`, got `str` - at `\$.hardware.register_granule.value`"),
        ("value: 8, source", "value: -8, source", r">= 1.*register_granule"),
        ("value: 8, source", "value: 0, source", r">= 1.*register_granule"),
        ("{value: 8, source: occupancy}", "8", r"Expected `object`, got `int`.*register_granule"),
        ("{value: 8, source: occupancy}", "null", r"got `null`.*register_granule"),
        ("{value: 8, source: occupancy}", "{value: 8}", r"missing required field `source`.*register_granule"),
        ("value: 8, source: occupancy", "value: 8, source: hearsay", r"hardware.register_granule.*'hearsay' is not among"),
        ("register_granule:", "register_granul:", r"unknown field `register_granul`"),
        ("backend: cuda", "backend: cuda\nbackend: hip", r"found the key 'backend' twice"),
        ("architecture: Hopper", "architecture: !!python/object/apply:os.getcwd []", r"could not determine a constructor"),
        ("verified: measured", "verified: surely", r"Invalid enum value 'surely'"),
        ("grid: {value: tile", "grid: {value: persistent", r"Invalid enum value 'persistent'.*launch.grid"),
    ],
)
def test_a_bad_file_is_refused_with_file_key_and_reason(tmp_path, old, new, complaint):
    file = tmp_path / "nvidia" / "bad.yaml"
    file.parent.mkdir()
    assert old in H200
    line = next(line for line in H200.splitlines() if old in line and ("register_granule" in line or "value: 8" not in old))
    file.write_text(H200.replace(line, line.replace(old, new), 1))
    with pytest.raises(ProfileError, match=rf"(?s)nvidia/bad\.yaml.*{complaint}"):
        read_profiles(file)


def test_a_file_that_is_no_mapping_is_refused(tmp_path):
    (tmp_path / "bad.yaml").write_text("just words")
    with pytest.raises(ProfileError, match=r"bad\.yaml: Expected `object`, got `str`"):
        read_profiles(tmp_path / "bad.yaml")


def test_the_json_schema_is_that_of_the_struct():
    written = json.loads((SHIPPED / "schema.json").read_text())
    assert written == msgspec.json.schema(ProfileFile), (
        "run: python -c 'import json, msgspec; from portable_softmax.schema import ProfileFile; "
        "print(json.dumps(msgspec.json.schema(ProfileFile), indent=2))' > device_profiles/schema.json"
    )


def test_users_add_and_replace_products(tmp_path, monkeypatch):
    own = tmp_path / "nvidia" / "mine.yaml"
    own.parent.mkdir()
    own.write_text(
        H200.replace("  h200:\n    m", "  my-h200:\n    m").replace("value: 132, source: h200}", "value: 100, source: h200}")
    )
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    assert "nvidia/my-h200" in profiles()
    assert Device.from_profile("nvidia/my-h200").hardware.multiprocessor_count == 100
    assert match_profile("cuda", "90", "NVIDIA H200").name == "nvidia/my-h200", "the user's file comes first"


def test_a_directory_of_profiles_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path / "nowhere"))
    with pytest.raises(ProfileError, match=r"nowhere is not a directory; is PORTABLE_SOFTMAX_PROFILES right"):
        profiles()


def test_a_product_that_lacks_a_number_which_plans_need(tmp_path, monkeypatch):
    own = tmp_path / "nvidia" / "mine.yaml"
    own.parent.mkdir()
    own.write_text(H200.replace("  h200:\n    m", "  incomplete:\n    m").replace("  " + GRANULE, "  # none"))
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    with pytest.raises(ProfileError, match=r"nvidia/incomplete: neither the profile nor the runtime tells register_granule"):
        Device.from_profile("nvidia/incomplete")


def test_an_unknown_name_lists_near_ones():
    with pytest.raises(ProfileError, match=r"no profile named 'h100'; did you mean nvidia/h100-pcie, nvidia/h100-sxm\?"):
        Device.from_profile("h100")


def test_live_devices_match_product_then_architecture_then_estimate():
    assert match_profile("cuda", "90", "NVIDIA H200").name == "nvidia/h200"
    assert match_profile("cuda", "90", "NVIDIA H20").name == "nvidia/sm90"
    assert match_profile("cuda", "200", "NVIDIA Z1").estimated
    assert match_profile("hip", "gfx1599", "AMD Radeon Z").name == "amd/estimated"


def test_a_backend_without_any_profile(tmp_path, monkeypatch):
    shutil.copytree(SHIPPED / "nvidia", tmp_path / "nvidia")
    with pytest.raises(ProfileError, match=r"no profile and no estimate for backend 'xpu'"):
        match_profile("xpu", "pvc", "Max 1550")
