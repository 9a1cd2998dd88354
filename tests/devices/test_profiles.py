"""Profiles are validated with file, key and reason; users add their own."""

import json
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from offline import light

from portable_softmax import Device, ProfileError, profiles
from portable_softmax.devices.file_schema import ProfileFile
from portable_softmax.devices.profiles import match_profile, read_profiles
from portable_softmax.planning.planner import choose
from portable_softmax.planning.request import contiguous_problem

SHIPPED = Path(__file__).parents[2] / "device_profiles"
H200 = (SHIPPED / "nvidia" / "sm90.yaml").read_text()


def written(directory, text, name="nvidia/bad.yaml"):
    """The path of a file with that text."""
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


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
        ("register_granule:", "register_granul:", r"unknown field `register_granul` - at .*; did you mean register_granule\?"),
        ("backend: cuda", "backend: cuda\nbackend: hip", r"found the key 'backend' twice"),
        ("architecture: Hopper", "architecture: !!python/object/apply:os.getcwd []", r"could not determine a constructor"),
        (
            "verified: measured",
            "verified: surely",
            r"Invalid enum value 'surely'.*; it is one of measured, vendor, third-party",
        ),
        (
            "grid: {value: tile",
            "grid: {value: persistent",
            r"Invalid enum value 'persistent'.*launch.grid.*; it is one of tile, resident",
        ),
        (
            "warp_size: {value: 32, source: arch_traits}",
            "warp_size: 32",
            r"got `int` .*warp_size`; a fact is {value: ..., source: NAME}",
        ),
        ("backend: cuda", "backend: cudda", r"backend: 'cudda' is none of cuda, hip, npu, xpu, interpreter"),
        ("warp_size: {value: 32", "warp_size: {value: 33", r"33 is not a power of two - at `\$.hardware.warp_size`"),
        ("  polls: {value: 256", "  polls: {value: 0", r">= 1 - at `\$.launch.polls"),
        ("  polls: {value: 256", "  pols: {value: 256", r"unknown field `pols`"),
        ("  extends: nvidia/estimated", "  extends: nvidia/estimate", r"launch.extends: 'nvidia/estimate' is none of "),
        ("max_programs: {value: 2147483647", "max_programs: {value: 0", r">= 1.*hardware.max_programs"),
        (
            "max_threads_per_program: {value: 1024",
            "max_threads_per_program: {value: 1000",
            r"power of two.*max_threads_per_pro",
        ),
        ("granule: {value: 8", f"granule: {{value: {2**63}", r"Expected `int` <= 9223372036854775807.*register_granule"),
        ("first_triton: 3.2.0", "first_triton: 3.x", r"Expected `str` matching regex.*\$.first_triton"),
        (
            "first_triton: 3.2.0",
            "first_triton: 3.5",
            r"Expected `str`, got `float` - at `\$.first_triton`; in quotes it is text",
        ),
        ("first_triton: 3.2.0", "first_triton: 2026-11-21", r"Expected `str`, got `date` - at `\$.first_triton`; in quotes"),
        ("first_triton: 3.2.0", "first_triton: 2026-13-45", r"line 6: cannot be read as timestamp: month must be in 1..12"),
        ("first_triton: 3.2.0", "first_triton: 0x_", r"line 6: cannot be read as int: invalid literal"),
        ("first_triton: 3.2.0", "first_triton: !!bool maybe", r"line 6: cannot be read as bool: 'maybe'"),
        ("first_triton: 3.2.0", "first_triton: !!map maybe", r"line 6: expected a mapping node, but found scalar"),
        ("first_triton: 3.2.0", "first_triton: !!timestamp soon", r"line 6: cannot be read as timestamp: "),
        ("first_triton: 3.2.0", f"first_triton: 0{':1' * 200}.5", r"line 6: cannot be read as float: int too large"),
        ("first_triton: 3.2.0", "1: 2", r"line 6: the key '1' is not text to YAML; put it in quotes"),
        ("first_triton: 3.2.0", "[a, b]: 2", r"line 6: the key .* is not text"),
        ("first_triton: 3.2.0", 'first_triton: "3.2', r"line \d+: (expected <block end>|found unexpected)"),
        ("first_triton: 3.2.0", '"\\ud800": 3', r"surrogates not allowed"),
        ('arch: "90"', "arch: 90", r"Expected `str`, got `int` - at `\$.arch`; in quotes it is text"),
        ('arch: "90"', 'arch: "9(0"', r"arch: '9\(0' is not a regular expression: missing \)"),
        ('arch: "90"', "arch: a{99999999999999999999}", r"arch: .* is not a regular expression: the repetition number"),
        ('arch: "90"', f"arch: {'(' * 5000}", r"arch: .* is not a regular expression: maximum recursion depth exceeded"),
        ('arch: "90"', 'arch: "9[0]"', r"products.h200.arch: '9\[0\]' is not a target that the file's arch '9\[0\]' matches"),
        ("multiprocessor: SM", "multiprocessor: ''", r"Expected `str` of length >= 1 - at `\$.multiprocessor`"),
        (
            "[NVIDIA H200]",
            "['NVIDIA (H200']",
            r"products.h200.matches\[0\]: 'NVIDIA \(H200' is not a regular expression: missing \)",
        ),
        (
            "[NVIDIA H200]",
            "[NVIDIA H100, 200]",
            r"Expected `str`, got `int` - at `\$.products.h200.matches\[1\]`; in quotes it is",
        ),
        ("  h100-pcie:", "  my/h200:", r"products.my/h200: 'my/h200' should have neither slashes nor spaces"),
        ("  h200:", "  200:", r"line \d+: the key '200' is not text to YAML"),
        (
            "{value: 132, source: h200}",
            "{value: 0, source: h200}",
            r">= 1 - at `\$.products.h200.hardware.multiprocessor_count.val",
        ),
        ("driver 580.159, 2026-11-21", "driver 580.159, 2026-13-45", r"sources.h200.title: 2026-13-45 is no date: month must"),
        ("title: sweep on an H200", "titel: sweep on an H200", r"unknown field `titel` - at `\$.sources.h200_sweep`"),
    ],
)
def test_a_bad_file_is_refused_with_file_key_and_reason(tmp_path, old, new, complaint):
    file = tmp_path / "nvidia" / "bad.yaml"
    file.parent.mkdir()
    assert old in H200
    line = next(line for line in H200.splitlines() if old in line and ("register_granule" in line or "value: 8," not in old))
    file.write_text(H200.replace(line, line.replace(old, new), 1))
    with pytest.raises(ProfileError, match=rf"(?s)nvidia/bad\.yaml.*{complaint}"):
        read_profiles(file)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("row_share: 0.2", None),
        ("elements_per_thread: 65", r"elements_per_thread 65 is not a power of two - at `\$.launch.numbers\[0\]`"),
        ("elements_per_thread: 2048", r"Expected `int` <= 1024 - at `\$.launch.numbers\[0\].elements_per_thread"),
        ("elements_per_part: 2097152", r"<= 1048576.*elements_per_part"),
        ("part_warps: 3", r"part_warps 3 is not a power of two"),
        ("row_share: 1.5", r"Expected `float` <= 1.0 - at .*row_share"),
        ("bytes_per_piece: 12", r"Invalid enum value 12 - at .*bytes_per_piece"),
        ("word_forward: 5", r"unknown field `word_forward`"),
        ("row_share: 0.2, to_cols: 5", r"a row with conditions needs its gain, which is at least 1.03"),
        ("row_share: 0.2, to_cols: 5, gain: 1.02", r"Expected `float` >= 1.03 - at .*gain"),
        ("to_cols: 5, gain: 1.5", r"a row gives at least one number: ragged_cols, "),
        ("row_share: 0.2, gain: 1.5, from_cols: 9, to_cols: 8", r"from_cols 9 is above to_cols 8"),
        ("row_share: 0.2, gain: 1.5, from_load: 9, to_load: 8", r"from_load 9 is above to_load 8"),
        ("row_share: 0.2, gain: 1.5, direction: sideways", r"Invalid enum value 'sideways'"),
        ("row_share: 0.2, gain: 1.5, step: reduce", r"unknown field `step`"),
        ("part_registers: 256", r"launch.numbers\[0\].part_registers 256, hardware.max_registers_per_thread 255: a thread has"),
        ("registers: [64, 256]", r"launch.numbers\[0\].registers \[64, 256\], hardware.max_registers_per_thread 255: a thread"),
    ],
)
def test_a_bad_row_of_numbers_is_refused(tmp_path, row, complaint):
    file = written(tmp_path, H200.replace("  numbers:\n", f"  numbers:\n    - {{{row}, source: h200_sweep}}\n"))
    if complaint is None:
        assert read_profiles(file)[0].launch.numbers[0].row_share == 0.2
        return
    with pytest.raises(ProfileError, match=rf"(?s)nvidia/bad\.yaml: .*{complaint}"):
        read_profiles(file)


HEAD, _, LAUNCH = H200.partition("launch:\n")
PRODUCTS = "products:" + LAUNCH.partition("products:")[2]


@pytest.mark.parametrize(
    ("launch", "complaint"),
    [
        ("{extends: nvidia/estimated}", None),
        ("{extends: amd/estimated}", None),
        ("{extends: nvidia/sm80}", r"launch.extends: 'nvidia/sm80' is none of .*nvidia/estimated"),
        ("{}", r"launch.grid: is missing; give it, or `extends`"),
        ("{}", r"launch.numbers: no row for all problems gives words_forward, .*spilled_bytes; give them, or `extends`"),
        (
            "{numbers: [{words_forward: 5, to_cols: 9, gain: 2, source: h200}]}",
            r"launch.numbers: no row for all problems gives words_f",
        ),
        ("{extends: nvidia/estimated, grid: {value: tile, source: nobody}}", r"launch.grid: its source 'nobody' is not among"),
    ],
)
def test_preferences_for_launches_are_an_architectures_own_or_anothers(tmp_path, monkeypatch, launch, complaint):
    written(tmp_path, f"{HEAD}launch: {launch}\n{PRODUCTS}", "nvidia/mine.yaml")
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    if complaint is not None:
        with pytest.raises(ProfileError, match=rf"(?s)nvidia/mine\.yaml: {complaint}|\n.*mine\.yaml: {complaint}"):
            profiles()
        return
    estimate = next(p for p in read_profiles(SHIPPED / launch.partition(": ")[2].replace("}", ".yaml")) if p.estimated)
    assert profiles()["nvidia/h200"].launch == estimate.launch


@pytest.mark.parametrize("name", sorted(profiles()))
def test_every_product_knows_the_sources_of_its_launches(name):
    profile = profiles()[name]
    assert {row.source for row in profile.launch.numbers} <= profile.sources.keys()
    assert profile.grid.source in profile.sources


def test_what_a_file_says_of_launches_goes_before_what_it_extends(tmp_path):
    own = "{extends: nvidia/estimated, polls: {value: 9, source: h200}, numbers: [{row_share: 0.2, source: h200}]}"
    mine = read_profiles(written(tmp_path, f"{HEAD}launch: {own}\n{PRODUCTS}"))[0].launch
    (estimate,) = read_profiles(SHIPPED / "nvidia" / "estimated.yaml")
    assert mine.polls.value == 9
    assert (mine.grid, mine.line_elements) == (estimate.launch.grid, estimate.launch.line_elements)
    assert mine.numbers[0].given == {"row_share": 0.2}
    assert mine.numbers[1:] == estimate.launch.numbers


def test_one_name_does_not_stand_for_two_sources(tmp_path):
    text = H200.replace("  h200_sweep:\n", "  assumed_from_h200: {verified: vendor, title: mine}\n  h200_sweep:\n")
    with pytest.raises(ProfileError, match=r"sources: nvidia/estimated has another assumed_from_h200; choose other names"):
        read_profiles(written(tmp_path, text))


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("shared_memory_per_program_max", 233473, "shared_memory_per_multiprocessor 233472: a program's shared memory is part"),
        ("shared_memory_granule", 233473, "shared_memory_per_multiprocessor 233472: no program that uses shared memory"),
        ("warp_size", 2048, "hardware.max_threads_per_program 1024: a program has at least one warp"),
        ("max_threads_per_program", 4096, "max_warps_per_multiprocessor 64, hardware.warp_size 32: all threads of a program"),
        ("registers_per_multiprocessor", 65537, "partitions_per_multiprocessor 4: each partition owns an equal slice"),
        ("register_granule", 7, "given to whole warps in whole granules"),
        ("max_registers_per_thread", 513, "a warp's registers are in one partition"),
    ],
)
def test_numbers_that_contradict_each_other(tmp_path, key, value, complaint):
    text, changed = re.subn(rf"\b{key}: {{value: (\d+|\[.*\])", f"{key}: {{value: {value}", H200)
    assert changed == 1
    with pytest.raises(
        ProfileError, match=rf"nvidia/bad.yaml: (hardware|launch).*{key} {re.escape(str(value))}.*{complaint}"
    ) as refused:
        read_profiles(written(tmp_path, text))
    lines = str(refused.value).splitlines()
    assert len(lines) == len(set(lines)), "told once, not again of each product"


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [
        ("[1024, 65536]", "shared_memory_per_program_max 232448.*the largest size is the most that a program can be given"),
        ("[232448, 1024]", r"\[232448, 1024\] are not in ascending order.*hardware.shared_memory_sizes"),
        ("[]", "length >= 1.*shared_memory_sizes"),
        ("1024", "Expected `array`, got `int`.*shared_memory_sizes"),
    ],
)
def test_sizes_that_cannot_be(tmp_path, sizes, complaint):
    text = H200.replace(
        "  shared_memory_granule", f"  shared_memory_sizes: {{value: {sizes}, source: occupancy}}\n  shared_memory_granule"
    )
    with pytest.raises(ProfileError, match=complaint):
        read_profiles(written(tmp_path, text))


def test_types_that_nothing_computes(tmp_path):
    with pytest.raises(ProfileError, match=r"Invalid enum value 'fp8' - at `\$.dtypes"):
        read_profiles(written(tmp_path, H200.replace("multiprocessor: SM", "multiprocessor: SM\ndtypes: [fp8]")))


@pytest.mark.parametrize("polls", [2**32, 2**62])
def test_a_number_of_polls_that_no_counter_reaches(tmp_path, polls):
    with pytest.raises(ProfileError, match="polls"):
        read_profiles(written(tmp_path, H200.replace("  polls: {value: 256", f"  polls: {{value: {polls}")))


def test_a_launch_has_at_least_the_threads_of_a_program(tmp_path):
    text = H200.replace("  max_programs: {value: 2147483647", "  max_threads: {value: 100")
    with pytest.raises(ProfileError, match="max_threads"):
        read_profiles(written(tmp_path, text))


@pytest.mark.parametrize("cache", ["l2_cache_bytes", "last_level_cache_bytes"])
def test_a_product_that_contradicts_itself_or_its_architecture_is_named(tmp_path, cache):
    own = (
        f"{cache}: {{value: 5, source: h200}}, memory_bytes: {{value: 4, source: h200}}, warp_size: {{value: 8, source: h200}}"
    )
    with pytest.raises(ProfileError) as refused:
        read_profiles(written(tmp_path, f"{H200}  odd:\n    matches: []\n    hardware: {{{own}}}\n"))
    assert [line.partition("bad.yaml: ")[2] for line in str(refused.value).splitlines()] == [
        "hardware.max_threads_per_program 1024, hardware.max_warps_per_multiprocessor 64, products.odd.hardware.warp_size 8: "
        "all threads of a program are resident on one multiprocessor",
        f"products.odd.hardware.{cache} 5, products.odd.hardware.memory_bytes 4: a cache is smaller than the memory behind it",
    ]


def test_a_file_that_is_no_mapping_is_refused(tmp_path):
    (tmp_path / "bad.yaml").write_text("just words")
    with pytest.raises(ProfileError, match=r"bad\.yaml: Expected `object`, got `str`"):
        read_profiles(tmp_path / "bad.yaml")


def test_the_name_of_a_product_is_told_whatever_else_is_wrong(tmp_path):
    file = written(tmp_path, "products: {mine: {matches: 5}}\nsources: 5\n")
    with pytest.raises(ProfileError, match=r"bad\.yaml: Expected `array`, got `int` - at `\$.products.mine.matches`"):
        read_profiles(file)


def test_the_json_schema_is_that_of_the_struct():
    written = json.loads((SHIPPED / "schema.json").read_text())
    assert written == msgspec.json.schema(ProfileFile), (
        "run: python -c 'import json, msgspec; from portable_softmax.devices.file_schema import ProfileFile; "
        "print(json.dumps(msgspec.json.schema(ProfileFile), indent=2))' > device_profiles/schema.json"
    )


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


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (NVL.replace("nvidia/h200", "nvidia/h2000"), r"extends: there is no 'nvidia/h2000'; there are .*nvidia/h200\b"),
        (NVL.replace("nvl: {verified", "h200: {verified").replace("source: nvl", "source: h200"), r"sources: .* has h200 too"),
        (NVL.replace("source: nvl}\nnumbers", "source: other}\nnumbers"), r"its source 'other' is not among `sources`"),
        (NVL.replace("matches", "match"), r"unknown field `match`"),
        (NVL.replace("[NVIDIA H200 NVL]", "['(']"), r"is not a regular expression"),
        (
            NVL.replace("words_forward: 3", "part_registers: 300"),
            r"products.mine.numbers\[0\].part_registers 300, .* a thread has no",
        ),
        ("extends: nvidia/mine\n", r"extends: there is no 'nvidia/mine'"),
        ("extends: 5\n", r"Expected `str`, got `int` - at `\$.extends`"),
    ],
)
def test_a_bad_extension_is_refused(extending, text, complaint):
    extending(mine=text)
    with pytest.raises(ProfileError, match=rf"(?s)nvidia/mine\.yaml: .*{complaint}"):
        profiles()


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
    with pytest.raises(ProfileError, match=r"nvidia/incomplete: neither the profile nor the runtime gives register_granule"):
        Device.from_profile("nvidia/incomplete")


def test_an_unknown_name_lists_near_ones():
    with pytest.raises(ProfileError, match=r"no profile named 'h100'; did you mean nvidia/h100-pcie, nvidia/h100-sxm\?"):
        Device.from_profile("h100")


@pytest.mark.parametrize(
    ("name", "first"),
    [("nvidia/h200x", "nvidia/h200"), ("h200x", "nvidia/h200"), ("MI300Y", "amd/mi300x"), ("amd/rx7900xtx", "amd/rx-7900-xtx")],
)
def test_a_misspelt_name_finds_the_nearest_first(name, first):
    with pytest.raises(ProfileError, match=rf"no profile named '{name}'; did you mean {first}[,?]") as refused:
        Device.from_profile(name)
    assert str(refused.value).count("/") <= 7, "a few names only, and the path of the script"


def test_a_name_that_is_like_many_lists_a_few():
    with pytest.raises(ProfileError, match=r"did you mean amd/mi100, amd/mi210, amd/mi250x, amd/mi300a, amd/mi300x\?"):
        Device.from_profile("MI")


@pytest.mark.parametrize("name", ["", "nvidia/", "qwertz"])
def test_a_name_that_is_like_none_lists_none(name):
    with pytest.raises(ProfileError, match=rf"no profile named '{name}'; `portable-softmax profiles` shows all"):
        Device.from_profile(name)


@pytest.mark.parametrize("name", [None, 200, ["nvidia/h200"]])
def test_a_name_is_text(name):
    with pytest.raises(TypeError, match=r"a profile's name is text like vendor/product, not "):
        Device.from_profile(name)


def test_a_product_called_estimated_is_no_estimate(tmp_path, monkeypatch):
    written(tmp_path, H200.replace("  h200:\n    m", "  estimated:\n    m"))
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    assert not match_profile("cuda", "90", "NVIDIA H200").estimated


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


def test_the_very_product_is_the_first_that_is_meant():
    with pytest.raises(ProfileError, match="did you mean nvidia/h200, nvidia/gh200"):
        Device.from_profile("h200")
