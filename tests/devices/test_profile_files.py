"""Directories of profiles: nothing in them is ignored in silence, and whatever a file holds, loading works or says why not."""

import copy
import functools
import json
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offline import every_launch
from profile_text import MISSING, TEXT, edited, read, written

from portable_probe.program import main
from portable_softmax import Device, ProfileError, profiles
from portable_softmax.devices import profiles as room
from portable_softmax.devices.device import merge
from portable_softmax.devices.policy import COST_NUMBERS, FACTS
from portable_softmax.devices.profiles import match_profile, read_profiles
from portable_softmax.planning.problem import FORMS, Problem

SHIPPED = Path(__file__).parents[2] / "device_profiles"
H200 = (SHIPPED / "nvidia" / "sm90.yaml").read_text()
HEAD = H200.partition("products:")[0]
MINE = H200.replace("  h200:\n    m", "  mine:\n    m")
AMD = (SHIPPED / "amd" / "gfx942.yaml").read_text()
NVL = """extends: nvidia/h200
matches: [NVIDIA H200 NVL]
sources:
  nvl: {verified: third-party, title: a product brief}
hardware:
  memory_bandwidth_gb_per_s: {value: 4801, source: nvl}
"""


@pytest.fixture
def use(tmp_path, monkeypatch):
    """Writes files of a user's, by name, and has them read."""

    def use(files=(), folders=(tmp_path,)):
        for name, text in dict(files).items():
            written(tmp_path, text, name)
        monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", os.pathsep.join(map(str, folders)))
        return dict(profiles())

    return use


@pytest.mark.parametrize(
    ("make", "complaint"),
    [(Path.mkdir, "Is a directory"), (lambda path: path.symlink_to("nowhere"), "No such file")],
)
def test_a_file_that_cannot_be_read(tmp_path, use, make, complaint):
    (tmp_path / "nvidia").mkdir()
    make(tmp_path / "nvidia" / "mine.yaml")
    with pytest.raises(ProfileError, match=rf"nvidia/mine\.yaml: .*{complaint}"):
        use()


def test_a_directory_that_is_not_there(tmp_path, use):
    with pytest.raises(ProfileError, match=r"nowhere is not a directory; is the package installed"):
        use(folders=[tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("files", "more"),
    [
        *(({name: MINE}, {f"{name.partition('/')[0]}/mine"}) for name in ("nvidia/m.yaml", "cluster/m.yaml")),
        ({"nvidia/a.yaml": MINE, "cluster/a.yaml": MINE}, {"nvidia/mine", "cluster/mine"}),
        (dict.fromkeys((".git/x.yaml", "nvidia/.m.yaml", "nvidia/README.md"), "a"), set()),
        ({"nvidia/nvl.yaml": NVL}, {"nvidia/nvl"}),
    ],
)
def test_what_is_read(use, files, more):
    before = set(profiles())
    found = set(use(files))
    assert before <= found
    assert more <= found - before
    assert more or found == before


def test_of_several_directories_the_last_one_wins(tmp_path, use):
    before = set(profiles())
    for count in (1, 2):
        written(tmp_path / str(count), H200.replace("{value: 132, source: h200}", f"{{value: {count}, source: h200}}"))
    one, two = tmp_path / "1", tmp_path / "2"
    for order, count in (((one, two), 2), ((two, one), 1), ((one, "", one), 1)):
        use(folders=order)
        assert match_profile("cuda", "90", "NVIDIA H200").hardware.multiprocessor_count == count
        assert Device.from_profile("nvidia/h200").hardware.multiprocessor_count == count
    assert set(use(folders=[SHIPPED])) == before, "the shipped directory may be named again"


def test_a_product_of_eight_lines_extends_another_and_nothing_else_changes(use):
    before = dict(profiles())
    mine, h200 = use({"nvidia/nvl.yaml": NVL})["nvidia/nvl"], before["nvidia/h200"]
    assert mine.hardware == msgspec.structs.replace(h200.hardware, memory_bandwidth_gb_per_s=4801)
    assert mine.launch == h200.launch
    assert mine.origins["memory_bandwidth_gb_per_s"].title == "a product brief"
    assert match_profile("cuda", "90", "NVIDIA H200 NVL").name == "nvidia/nvl"
    for name in ("NVIDIA H200", "NVIDIA H299", "NVIDIA H100 80GB HBM3"):
        assert match_profile("cuda", "90", name).name in {*before, "nvidia/sm90"}


def test_an_extension_of_an_architecture_or_of_an_extension(use):
    found = use({"nvidia/a.yaml": "extends: nvidia/sm90\n", "nvidia/b.yaml": "extends: nvidia/a\nmatches: [B]\n"})
    assert found["nvidia/a"].hardware == match_profile("cuda", "90", "NVIDIA H299").hardware
    assert found["nvidia/b"].product.matches == ["B"]
    assert match_profile("cuda", "90", "NVIDIA H299").name == "nvidia/sm90", "no device is taken for one with no names"


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_preferences_for_launches_may_be_another_architectures(use, vendor):
    (estimate,) = (each for each in read_profiles([SHIPPED / vendor / "estimated.yaml"]) if each.estimated)
    found = use({"nvidia/x.yaml": edited("launch", MISSING, "extends", f"{vendor}/estimated")})
    assert found["nvidia/card"].launch == estimate.launch


def test_what_a_file_says_of_launches_goes_before_what_it_extends(tmp_path):
    mine = read(tmp_path, edited("launch.polls.value", 9))[0].launch
    (estimate,) = read_profiles([SHIPPED / "nvidia" / "estimated.yaml"])
    assert mine.polls.value == 9
    assert (mine.grid, mine.line_elements) == (estimate.launch.grid, estimate.launch.line_elements)
    assert mine.cost == estimate.launch.cost


def test_every_product_knows_the_sources_of_its_launches():
    for profile in profiles().values():
        named = [getattr(profile.launch, key).source for key in FACTS if getattr(profile.launch, key)]
        assert set(named) <= profile.sources.keys()


def test_numbers_of_cost_are_the_products_else_the_architectures(use):
    mine = dict.fromkeys(COST_NUMBERS, 2.0)
    cost = json.dumps({**mine, "errors": {"start_us": 0.1}, "error_90": 0.2, "source": "nvl"})
    found = use({"nvidia/nvl.yaml": f"{NVL}cost: {cost}\n", "nvidia/z.yaml": "extends: nvidia/nvl\n"})
    for name in ("nvidia/nvl", "nvidia/z"):
        told = found[name].launch.cost
        assert {key: getattr(told, key) for key in COST_NUMBERS} == mine
        assert (told.errors, told.error_90, told.source) == ({"start_us": 0.1}, 0.2, "nvl")
    assert found["nvidia/h200"].launch.cost.source == "h100_launches"
    assert {profile.backend for profile in found.values() if not profile.launch.cost} == {"npu", "interpreter"}


def test_a_product_that_lacks_a_number_which_plans_need(use):
    use({"nvidia/x.yaml": edited("hardware.register_granule", MISSING)})
    with pytest.raises(ProfileError, match=r"nvidia/card: neither the profile nor the runtime gives register_granule"):
        Device.from_profile("nvidia/card")


def test_live_devices_match_product_then_architecture_then_estimate(use):
    assert match_profile("cuda", "90", "NVIDIA H200").name == "nvidia/h200"
    assert match_profile("cuda", "90", "NVIDIA H299").name == "nvidia/sm90"
    assert match_profile("cuda", "200", "NVIDIA Z1").estimated
    assert match_profile("hip", "gfx1599", "AMD Radeon Z").name == "amd/estimated"
    with pytest.raises(ProfileError, match=r"no profile and no estimate for backend 'tpu'"):
        match_profile("tpu", "v6", "TPU v6")
    use({"nvidia/x.yaml": TEXT.replace("  card:", "  estimated:")})
    assert not match_profile("cuda", "90", "NVIDIA Card").estimated, "by its name alone"


def test_threads_whose_first_calls_come_at_once_read_the_files_once(monkeypatch):
    reads, barrier = [], threading.Barrier(8, timeout=60)

    def read(paths, read_profiles=room.read_profiles):
        reads.append(paths)
        return read_profiles(paths)

    def first_call(_):
        barrier.wait()
        return room.every_profile()

    monkeypatch.setattr(room, "read_profiles", read)
    room._read.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(first_call, range(8)))
    room._read.cache_clear()
    assert len(reads) == 1
    assert all(each is found[0] for each in found)


def test_the_probe_says_once_what_is_wrong(tmp_path, monkeypatch, capsys):
    written(tmp_path, MINE.replace("warp_size: {value: 32", "warp_size: {value: 33"), "nvidia/mine.yaml")
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    assert main(["profiles"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"ProfileError: {tmp_path}/nvidia/mine.yaml: 33 is not a power of two - at `$.hardware.warp_size`\n"


def paths(content, path=()):
    """The path of each value in a file."""
    yield path
    members = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in members:
        yield from paths(value, (*path, key))


FILES = sorted(SHIPPED.glob("*/*.yaml"))


@functools.cache
def contents():
    """What is in each file, as the plain loader reads it."""
    return {path: yaml.safe_load(path.read_text()) for path in FILES}


NUMBERS = st.one_of(st.sampled_from([-1, 0, 1, 2, 3, 32, 33, 64, 1024, 2**20, 2**21, 2**63]), st.integers())
HOSTILE = st.recursive(
    st.one_of(
        NUMBERS, st.none(), st.booleans(), st.floats(), st.text(), st.dates(), st.binary(), st.sampled_from(["(", "a{1,0}"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=3)
    ),
    max_leaves=4,
)
SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


def attempt(function, *arguments):
    """Returns (what a function returns, the words of its ProfileError); any other exception is a failure."""
    try:
        return function(*arguments), None
    except ProfileError as error:
        return None, str(error)


def load(path):
    """The devices of a file: it works, or it is said of the file why not, or of a product what it lacks."""
    found, words = attempt(read_profiles, [path])
    assert words is None or re.match(re.escape(f"{path}: ") + "...", words)
    for profile in found or ():
        device, words = attempt(merge, profile, None, None)
        assert words is None or "neither the profile nor the runtime gives" in words
        if device:
            yield device


@settings(max_examples=60, **SETTINGS)
@given(data=st.data())
def test_hostile_values(tmp_path, data):
    path = tmp_path / "mutated.yaml"
    content = copy.deepcopy(contents()[data.draw(st.sampled_from(FILES))])
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from([each for each in paths(content) if each]))
        holder = content
        for key in way:
            holder = holder[key]
        if data.draw(st.booleans()):
            holder[last] = data.draw(HOSTILE)
        else:
            del holder[last]
    path.write_text(yaml.dump(content, allow_unicode=data.draw(st.booleans())), encoding="utf-8")
    list(load(path))


@settings(max_examples=60, **SETTINGS)
@given(data=st.data())
def test_hostile_text(tmp_path, data):
    path = tmp_path / "mutated.yaml"
    text = data.draw(st.sampled_from(FILES)).read_bytes()
    start = data.draw(st.integers(0, len(text)))
    end = start + data.draw(st.integers(0, 20))
    patch = st.one_of(
        st.binary(max_size=10), st.sampled_from([b"!!set {a}", b"!!python/name:os.x", b"*a", b"&a", b"<<: [1]", b"2026-13-45"])
    )
    path.write_bytes(text[:start] + data.draw(patch) + text[end:])
    list(load(path))


def power_of_two(value):
    return value is None or value.bit_count() == 1


@settings(max_examples=60, **SETTINGS)
@given(data=st.data())
def test_what_loads_gives_launches_that_triton_has(tmp_path, data):
    """Launches of numbers that are all in range: programs of a power of two of warps, tiles of a power of two of rows."""
    path = tmp_path / "mutated.yaml"
    content = copy.deepcopy(contents()[data.draw(st.sampled_from(FILES))])
    told = [fact for group in ("hardware", "launch") for fact in content.get(group, {}).values() if isinstance(fact, dict)]
    chosen = [(holder, key) for holder in told for key in holder]
    numbers = [(holder, key) for holder, key in chosen if isinstance(holder[key], int)]
    for holder, key in data.draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=3)):
        holder[key] = data.draw(st.one_of(st.integers(0, 22).map(lambda power: 2**power), st.integers(1, 5000)))
    path.write_text(yaml.dump(content))
    sizes = st.sampled_from([1, 5, 781, 4096, 50257, 2**20])
    for device in load(path):
        problem = Problem(
            data.draw(sizes),
            data.draw(sizes),
            "float32",
            "float32",
            1,
            True,
            data.draw(st.sampled_from(FORMS)),
            data.draw(st.booleans()),
        )
        for _, tiling in every_launch(problem, device):
            assert power_of_two(tiling.num_warps), tiling
            assert power_of_two(tiling.tile_rows), tiling
