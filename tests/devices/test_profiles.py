"""Profiles are validated with file, key and reason; users add their own."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from offline import light
from profile_text import MISSING, TEXT, edited, read, written

from portable_softmax import Device, ProfileError, profiles
from portable_softmax.devices.profiles import match_profile, read_profiles
from portable_softmax.planning.planner import choose
from portable_softmax.planning.request import contiguous_problem

SHIPPED = Path(__file__).parents[2] / "device_profiles"


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_preferences_for_launches_may_be_another_architectures(tmp_path, monkeypatch, vendor):
    written(tmp_path, edited("launch", {"extends": f"{vendor}/estimated"}))
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    (estimate,) = (each for each in read_profiles(SHIPPED / vendor / "estimated.yaml") if each.estimated)
    assert profiles()["nvidia/card"].launch == estimate.launch


@pytest.mark.parametrize("name", sorted(profiles()))
def test_every_product_knows_the_sources_of_its_launches(name):
    profile = profiles()[name]
    assert {row.source for row in profile.launch.numbers} <= profile.sources.keys()
    assert profile.grid.source in profile.sources


def test_what_a_file_says_of_launches_goes_before_what_it_extends(tmp_path):
    mine = read(tmp_path, edited("launch.polls.value", 9))[0].launch
    (estimate,) = read_profiles(SHIPPED / "nvidia" / "estimated.yaml")
    assert mine.polls.value == 9
    assert (mine.grid, mine.line_elements) == (estimate.launch.grid, estimate.launch.line_elements)
    assert mine.numbers[0].given == {"row_share": 0.2}
    assert mine.numbers[1:] == estimate.launch.numbers


NVL = """extends: nvidia/h200
matches: [NVIDIA H200 NVL]
sources:
  nvl: {verified: third-party, title: a product brief}
hardware:
  memory_bandwidth_gb_per_s: {value: 4801, source: nvl}
numbers:
  - {layout: rows, to_cols: 1024, words_forward: 3, gain: 1.06, source: nvl}
"""


@pytest.fixture
def extending(tmp_path, monkeypatch):
    """Writes nvidia/NAME.yaml files of a user's and has them read."""

    def write(**files):
        for name, text in files.items():
            file = tmp_path / "nvidia" / f"{name}.yaml"
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))

    return write


def test_a_product_of_eight_lines_extends_another_and_nothing_else_changes(extending):
    before = dict(profiles())
    extending(nvl=NVL)
    mine, h200 = profiles()["nvidia/nvl"], before["nvidia/h200"]
    assert set(profiles()) == {*before, "nvidia/nvl"}
    assert mine.hardware == msgspec.structs.replace(h200.hardware, memory_bandwidth_gb_per_s=4801)
    assert mine.launch.numbers[1:] == h200.launch.numbers
    assert mine.origins["memory_bandwidth_gb_per_s"].title == "a product brief"
    assert match_profile("cuda", "90", "NVIDIA H200 NVL").name == "nvidia/nvl"
    for name in ("NVIDIA H200", "NVIDIA H299", "NVIDIA H100 80GB HBM3"):
        assert match_profile("cuda", "90", name).name in {*before, "nvidia/sm90"}
    device = Device.from_profile("nvidia/nvl")
    plan = choose(contiguous_problem(4096, 256, "float32"), device, light)
    assert "words_forward 3.0 for layout rows, to_cols 1024: 1.06 times as fast (a product brief)" in plan.reasons


def test_an_extension_of_an_architecture_or_of_an_extension(extending):
    extending(a="extends: nvidia/sm90\n", b="extends: nvidia/a\nmatches: [B]\n")
    assert profiles()["nvidia/a"].hardware == match_profile("cuda", "90", "NVIDIA H299").hardware
    assert profiles()["nvidia/b"].product.matches == ["B"]
    assert match_profile("cuda", "90", "NVIDIA H299").name == "nvidia/sm90", "no device is taken for one with no names"


def test_users_add_and_replace_products(tmp_path, monkeypatch):
    written(tmp_path, edited("products.card.matches", ["NVIDIA H200"]))
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    assert Device.from_profile("nvidia/card").hardware.multiprocessor_count == 132
    assert match_profile("cuda", "90", "NVIDIA H200").name == "nvidia/card", "the user's file comes first"


def test_a_directory_of_profiles_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path / "nowhere"))
    with pytest.raises(ProfileError, match=r"nowhere is not a directory; is PORTABLE_SOFTMAX_PROFILES right"):
        profiles()


def test_a_product_that_lacks_a_number_which_plans_need(tmp_path, monkeypatch):
    written(tmp_path, edited("hardware.register_granule", MISSING))
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    with pytest.raises(ProfileError, match=r"nvidia/card: neither the profile nor the runtime gives register_granule"):
        Device.from_profile("nvidia/card")


def test_a_product_called_estimated_is_no_estimate(tmp_path, monkeypatch):
    written(tmp_path, TEXT.replace("  card:", "  estimated:"))
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    assert not match_profile("cuda", "90", "NVIDIA Card").estimated


def test_live_devices_match_product_then_architecture_then_estimate():
    assert match_profile("cuda", "90", "NVIDIA H200").name == "nvidia/h200"
    assert match_profile("cuda", "90", "NVIDIA H299").name == "nvidia/sm90"
    assert match_profile("cuda", "200", "NVIDIA Z1").estimated
    assert match_profile("hip", "gfx1599", "AMD Radeon Z").name == "amd/estimated"


def test_a_backend_without_any_profile(tmp_path, monkeypatch):
    shutil.copytree(SHIPPED / "nvidia", tmp_path / "nvidia")
    with pytest.raises(ProfileError, match=r"no profile and no estimate for backend 'tpu'"):
        match_profile("tpu", "v6", "TPU v6")


def test_threads_whose_first_calls_come_at_once_read_the_files_once(monkeypatch):
    from portable_softmax.devices import profiles as room

    reads, barrier = [], threading.Barrier(8, timeout=60)

    def read(paths, _profiles=room._profiles):
        reads.append(paths)
        return _profiles(paths)

    def first_call(_):
        barrier.wait()
        return room.profiles()

    monkeypatch.setattr(room, "_profiles", read)
    room._read.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(first_call, range(8)))
    room._read.cache_clear()
    assert len(reads) == 1
    assert all(each == found[0] for each in found)
