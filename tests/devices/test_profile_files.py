"""Files of profiles: what is read and merged, and what is refused with the file's name, the key and the reason."""

import json
import os

import msgspec
import pytest

from portable_softmax import Device, ProfileError, profiles
from portable_softmax.devices import profiles as loader
from portable_softmax.devices.profiles import SHIPPED, match_profile
from portable_softmax.devices.schema import COST_NUMBERS

NVL = """extends: nvidia/h200
matches: [NVIDIA H200 NVL]
sources:
  nvl: {verified: third-party, title: a product brief}
hardware:
  memory_bandwidth_gb_per_s: {value: 4801, source: nvl}
"""
ADA = (SHIPPED / "nvidia" / "sm89.yaml").read_text()
COST = json.dumps(dict.fromkeys(COST_NUMBERS, 2.0) | {"source": "nvl", "error_90": 0.2})


@pytest.fixture
def use(tmp_path, monkeypatch):
    """Writes files of a user, by name, in the current directory, and reads them."""
    monkeypatch.chdir(tmp_path)

    def use(files, folders=(tmp_path,)):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / name).write_text(text)
        monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", os.pathsep.join(map(str, folders)))
        loader._read.cache_clear()
        return dict(profiles())

    return use


def test_the_last_of_several_directories_wins(tmp_path, use):
    before = set(profiles())
    with pytest.warns(UserWarning, match="no profile was found in"):
        assert set(use(dict.fromkeys((".git/x.yaml", "nvidia/.m.yaml", "nvidia/README.md"), "a"))) == before
    mine = ADA.replace("  l4:\n    m", "  mine:\n    m")
    files = dict.fromkeys(("nvidia/m.yaml", "cluster/m.yml", "more/rack/m.yaml"), mine)
    assert set(use(files)) - before >= {"nvidia/mine", "cluster/mine", "rack/mine"}
    use({"nvidia/m.yaml": ADA.replace("  register_granule:", "#")})
    with pytest.raises(ProfileError, match=r"nvidia/l4: neither the profile nor the runtime reports register_granule"):
        Device.from_profile("nvidia/l4")
    fact = "{value: %d, source: l40}"
    files = {f"{count}/nvidia/m.yaml": ADA.replace(fact % 142, fact % count) for count in (1, 2)}
    for order, count in ((("1", "2"), 2), (("2", "1"), 1), (("1", ""), 1)):
        use(files, order)
        assert match_profile("cuda", "89", "NVIDIA L40").hardware.multiprocessor_count == count
    with pytest.raises(ProfileError, match=r"nowhere is not a directory"):
        use({}, [tmp_path / "nowhere"])
    with pytest.raises(ProfileError, match=r"nvida/m.yaml: .* is the vendor's, and 'nvida' is none; did you mean nvidia\?"):
        use({"3/nvida/m.yaml": "extends: nvidia/h200"}, ["3"])


def test_a_product_extends_another_and_nothing_else_changes(use):
    before = dict(profiles())
    profile_of = use(
        {"nvidia/nvl.yaml": f"{NVL}launch: {{cost: {COST}}}\n", "nvidia/z.yaml": "extends: nvidia/nvl\nmatches: [Z]\n"}
    )
    mine, h200 = profile_of["nvidia/nvl"], before["nvidia/h200"]
    assert mine.hardware == msgspec.structs.replace(h200.hardware, memory_bandwidth_gb_per_s=4801)
    assert mine.origins["memory_bandwidth_gb_per_s"].title == "a product brief"
    assert match_profile("cuda", "90", "NVIDIA H200 NVL").name == "nvidia/nvl"
    assert (profile_of["nvidia/z"].hardware, profile_of["nvidia/z"].matches) == (mine.hardware, ("Z",))
    for name in ("nvidia/nvl", "nvidia/z"):
        assert (profile_of[name].launch.cost.start_us, profile_of[name].launch.cost.error_90) == (2.0, 0.2)
    assert profile_of["nvidia/h200"].launch == h200.launch
    profile_of = use({"nvidia/a.yaml": "extends: nvidia/sm90\n", "nvidia/b.yaml": "extends: nvidia/h200\n"})
    assert profile_of["nvidia/a"].hardware.register_granule == 8
    assert match_profile("cuda", "90", "NVIDIA H200").name == "nvidia/h200"
    assert match_profile("cuda", "90", "NVIDIA H299").name == "nvidia/sm90", "no device matches one without names"


UNKNOWN = ("backend:", "new: 1\n"), ("  warp_size:", "  new: {value: 1, source: occupancy}\n"), ("    title: ", "    new: 1\n")
REFUSED = [
    ("backend: cuda", "backend: cudda", r"matching regex '\^\(cuda\|hip\|npu\|xpu\|interpreter\)\$' - at `\$.backend`"),
    ("warp_size: {value: 32", "warp_size: {value: 33", r"warp_size: 33 is not a power of two"),
    ("{value: 142,", "{value: 120000,", r"l40s: Expected `int` <= 65536 - at `\$.hardware"),
    ('arch: "89"', "arch: 89", r"Expected `str`, got `int` - at `\$.arch`"),
    ('arch: "89"', 'arch: "8(9"', r"'8\(9' is not a regular expression"),
    ('arch: "89"', 'arch: "8[9]"', r"l4: arch: '8\[9\]' is not a target that the architecture's '8\[9\]' matches"),
    *((there, f"{key}{there}", "unknown field `new`") for there, key in UNKNOWN),
    ("e: {value: 8, source: occupancy", "e: {value: 8, source: hearsay", r"register_granule: its source 'hearsay' is not"),
    ("extends: nvidia/estimated", "extends: nvidia/none", r"extends: no profile named 'nvidia/none' is read before this one"),
    ("extends: nvidia/estimated", "", r"missing required field `grid` - at `\$.launch`"),
    ("\nproducts:", f"\nlaunch: {{cost: {COST}}}\nproducts:", r"cost: its source 'nvl' is not among"),
    ("matches: [NVIDIA L4]", "matches: [A (Card]", r"l4: 'A \(Card' is not a regular expression"),
    pytest.param(ADA, "[[extends, nvidia/h200]]", r"Expected `object`, got `array`", id="a list"),
]


@pytest.mark.parametrize(("there", "instead", "complaint"), REFUSED)
def test_a_wrong_value(use, there, instead, complaint):
    assert there in ADA
    with pytest.raises(ProfileError, match=rf"(?s)nvidia/example\.yaml: .*{complaint}"):
        use({"nvidia/example.yaml": ADA.replace(there, instead, 1)})
