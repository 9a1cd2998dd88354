"""A file that is wrong is refused with its name, the key and the reason: one case for each check of this package."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from profile_text import MISSING, TEXT, edited, fact, read, written

from portable_softmax import ProfileError, profiles
from portable_softmax.devices.file_schema import ProfileFile
from portable_softmax.devices.profile_checks import RELATIONS
from portable_softmax.devices.profiles import read_profiles

SHIPPED = Path(__file__).parents[2] / "device_profiles"
HW, CARD = "hardware.", "products.card."


def refused(folder, text, complaint):
    with pytest.raises(ProfileError, match=rf"(?s)nvidia/example\.yaml: .*{complaint}") as error:
        read(folder, text)
    return str(error.value)


def test_the_example_is_a_profile(tmp_path):
    assert [each.name for each in read(tmp_path, TEXT)] == ["nvidia/example", "nvidia/card"]


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("backend", "cudda", r"backend: 'cudda' is none of cuda, hip, npu, xpu, interpreter"),
        ("arch", 90, r"Expected `str`, got `int` - at `\$.arch`; in quotes it is text"),
        ("arch", "9(0", r"arch: '9\(0' is not a regular expression: missing \)"),
        ("arch", "a{99999999999999999999}", r"arch: .* is not a regular expression: the repetition number"),
        ("arch", "(" * 5000, r"arch: .* is not a regular expression: maximum recursion depth exceeded"),
        ("arch", "9[0]", r"products.card.arch: '9\[0\]' is not a target that the file's arch '9\[0\]' matches"),
        ("multiprocessor", "", r"Expected `str` of length >= 1 - at `\$.multiprocessor`"),
        ("dtypes", ["fp8"], r"Invalid enum value 'fp8' - at `\$.dtypes"),
        ("first_triton", "3.x", r"Expected `str` matching regex.*\$.first_triton"),
        ("first_triton", 3.5, r"Expected `str`, got `float` - at `\$.first_triton`; in quotes it is text"),
        ("sources.mine.verified", "surely", r"Invalid enum value 'surely'.*; it is one of measured, vendor, third-party"),
        ("sources.mine.title", "on 2026-13-45", r"sources.mine.title: 2026-13-45 is no date: month must"),
        ("sources.mine.titel", "x", r"unknown field `titel` - at `\$.sources.mine`"),
        (
            "sources.assumed_from_h200",
            {"verified": "vendor", "title": "x"},
            "nvidia/estimated has another assumed_from_h200; choose",
        ),
        (HW + "warp_size", 32, r"got `int` .*warp_size`; a fact is {value: ..., source: NAME}"),
        (HW + "warp_size", fact(33), r"33 is not a power of two - at `\$.hardware.warp_size`"),
        (HW + "register_granule", fact(0), r">= 1.*register_granule"),
        (HW + "register_granule", fact(2**63), r"Expected `int` <= 9223372036854775807.*register_granule"),
        (HW + "register_granule", fact(8, "hearsay"), r"hardware.register_granule.*'hearsay' is not among"),
        (HW + "register_granul", fact(8), r"unknown field `register_granul` - at .*; did you mean register_granule\?"),
        (HW + "shared_memory_sizes", fact([4096, 1024]), r"\[4096, 1024\] are not in ascending order.*shared_memory_sizes"),
        (HW + "shared_memory_sizes", fact([]), r"length >= 1.*shared_memory_sizes"),
        ("launch.polls", fact(0), r">= 1 - at `\$.launch.polls"),
        ("launch.polls", fact(2**32), "polls"),
        ("launch.pols", fact(1), r"unknown field `pols`"),
        ("launch.extends", "nvidia/sm80", r"launch.extends: 'nvidia/sm80' is none of "),
        ("launch.grid", fact("persistent"), r"Invalid enum value 'persistent'.*launch.grid.*; it is one of tile, resident"),
        ("launch.grid", fact("tile", "nobody"), r"launch.grid: its source 'nobody' is not among"),
        ("launch.extends", MISSING, r"launch.grid: is missing; give it, or `extends`"),
        (
            "launch.extends",
            MISSING,
            r"launch.numbers: no row for all problems gives words_forward, .*; give them, or `extends`",
        ),
        (CARD + "matches", ["A (Card"], r"products.card.matches\[0\]: 'A \(Card' is not a regular expression: missing \)"),
        (CARD + "matches", ["A Card", 200], r"Expected `str`, got `int` - at `\$.products.card.matches\[1\]`; in quotes it is"),
        (CARD + "hardware.multiprocessor_count", fact(0), r">= 1 - at `\$.products.card.hardware.multiprocessor_count.val"),
        ("products.my/card", {"matches": []}, r"products.my/card: 'my/card' should have neither slashes nor spaces"),
        (CARD + "numbers", [{"split_registers": 256, "source": "mine"}], r"products.card.numbers\[0\].split_registers 256, "),
    ],
)
def test_a_value_that_is_wrong(tmp_path, path, value, complaint):
    refused(tmp_path, edited(path, value), complaint)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("backend: hip", "found the key 'backend' twice"),
        ("x: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("x: 2026-13-45", r"line \d+: cannot be read as timestamp: month must be in 1..12"),
        ("x: 0x_", r"line \d+: cannot be read as int: invalid literal"),
        ("x: !!bool maybe", r"line \d+: cannot be read as bool: 'maybe'"),
        ("x: !!map maybe", r"line \d+: expected a mapping node, but found scalar"),
        (f"x: 0{':1' * 200}.5", r"line \d+: cannot be read as float: int too large"),
        ("1: 2", r"line \d+: the key '1' is not text to YAML; put it in quotes"),
        ("[a, b]: 2", r"line \d+: the key .* is not text"),
        ('x: "3.2', r"line \d+: (expected <block end>|found unexpected)"),
        ('"\\ud800": 3', "surrogates not allowed"),
    ],
)
def test_text_that_yaml_refuses_or_takes_for_something_else(tmp_path, line, complaint):
    refused(tmp_path, f"{TEXT}{line}\n", complaint)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"elements_per_thread": 65}, r"elements_per_thread 65 is not a power of two - at `\$.launch.numbers\[0\]`"),
        ({"elements_per_thread": 2048}, r"Expected `int` <= 1024 - at `\$.launch.numbers\[0\].elements_per_thread"),
        ({"row_share": 1.5}, r"Expected `float` <= 1.0 - at .*row_share"),
        ({"bytes_per_block": 12}, r"Invalid enum value 12 - at .*bytes_per_block"),
        ({"word_forward": 5}, r"unknown field `word_forward`.*; did you mean words_forward\?"),
        ({"line_elements": 1}, r"unknown field `line_elements`.*; it is a key of `launch`"),
        ({"row_share": 0.2, "to_cols": 5}, r"a row with conditions that was measured needs its gain, which is at least 1.03"),
        ({"row_share": 0.2, "to_cols": 5, "gain": 1.02}, r"Expected `float` >= 1.03 - at .*gain"),
        ({"to_cols": 5, "gain": 1.5}, r"a row gives at least one number: unaligned_cols, "),
        ({"row_share": 0.2, "gain": 1.5, "from_cols": 9, "to_cols": 8}, r"from_cols 9 is above to_cols 8"),
        ({"row_share": 0.2, "gain": 1.5, "from_load": 9, "to_load": 8}, r"from_load 9 is above to_load 8"),
        ({"row_share": 0.2, "gain": 1.5, "direction": "sideways"}, r"Invalid enum value 'sideways'"),
        ({"registers": [64, 256]}, r"launch.numbers\[0\].registers \[64, 256\], hardware.max_registers_per_thread 255: a th"),
    ],
)
def test_a_row_of_numbers_that_is_wrong(tmp_path, row, complaint):
    refused(tmp_path, edited("launch.numbers.0", row | {"source": "mine"}), complaint)


CONTRADICTIONS = {
    "shared_memory_per_program_max": 8193,
    "shared_memory_granule": 8193,
    "shared_memory_sizes": (1024, 2048),
    "warp_size": 2048,
    "max_threads_per_program": 4096,
    "registers_per_multiprocessor": 65537,
    "register_granule": 7,
    "max_registers_per_thread": 513,
    "max_threads": 100,
    "l2_cache_bytes": 5,
    "last_level_cache_bytes": 5,
}


def test_numbers_that_contradict_each_other(tmp_path):
    """Each relation is told of its keys and values, once and not again of each product."""
    told = []
    for key, value in CONTRADICTIONS.items():
        text = edited(f"{HW}memory_bytes", fact(4), f"{HW}{key}", fact(list(value) if isinstance(value, tuple) else value))
        message = refused(tmp_path, text, rf"hardware.*{key} {re.escape(str(value))}.*: ")
        lines = [line.rpartition(": ")[2] for line in message.splitlines()]
        assert len(lines) == len(set(lines))
        told += lines
    assert set(told) == {relation.reason for relation in RELATIONS}


def test_a_product_that_contradicts_its_architecture_is_named(tmp_path):
    complaint = (
        "max_threads_per_program 1024, hardware.max_warps_per_multiprocessor 64, products.card.hardware.warp_size 8: all "
    )
    assert refused(tmp_path, edited(f"{CARD}hardware.warp_size", fact(8)), complaint).count("\n") == 0


def test_a_file_that_is_no_mapping(tmp_path):
    refused(tmp_path, "just words", "Expected `object`, got `str`")


def test_the_name_of_a_product_is_told_whatever_else_is_wrong(tmp_path):
    text = "products: {mine: {matches: 5}}\nsources: 5\n"
    refused(tmp_path, text, r"Expected `array`, got `int` - at `\$.products.mine.matches`")


EXTENSION = {"extends": "nvidia/h200", "matches": ["X"], "sources": {"nvl": {"verified": "vendor", "title": "a brief"}}}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"extends": "nvidia/h2000"}, r"extends: there is no 'nvidia/h2000'; there are .*nvidia/h200\b"),
        ({"sources": {"h200": {"verified": "vendor", "title": "a brief"}}}, r"sources: .* has h200 too"),
        ({"hardware": {"memory_bandwidth_gb_per_s": fact(1, "other")}}, r"its source 'other' is not among `sources`"),
        ({"match": ["X"]}, r"unknown field `match`"),
        ({"matches": ["("]}, r"is not a regular expression"),
        ({"numbers": [{"split_registers": 300, "source": "nvl"}]}, r"numbers\[0\].split_registers 300, .* a thread has no"),
        ({"extends": "nvidia/mine"}, r"extends: there is no 'nvidia/mine'"),
        ({"extends": 5}, r"Expected `str`, got `int` - at `\$.extends`"),
    ],
)
def test_a_bad_extension_is_refused(tmp_path, monkeypatch, changes, complaint):
    written(tmp_path, json.dumps(EXTENSION | changes), "nvidia/mine.yaml")
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    with pytest.raises(ProfileError, match=rf"(?s)nvidia/mine\.yaml: .*{complaint}"):
        profiles()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"a: b\n---\na: b\n", "line 2: but found another document"),
        (b"\xff\xfe\x00", "codec can't decode"),
        (b"a: \x00", "special characters are not allowed"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"a: &a\n  b: *a\n", "unknown field `a`"),
    ],
)
def test_a_file_that_is_no_profile(tmp_path, content, reason):
    (tmp_path / "bad.yaml").write_bytes(content)
    with pytest.raises(ProfileError, match=rf"bad\.yaml: .*({reason})"):
        read_profiles(tmp_path / "bad.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0132", 90),
        ("1:30", 90),
        ("1_3_2", 132),
        ("0x84", 132),
        ("0b1000", 8),
        ("1:30.0", "90.0"),
        ("+0_1.5", 1.5),
        (".inf", "inf"),
    ],
)
def test_numbers_that_yaml_reads_as_others_than_they_look(tmp_path, text, value):
    complaint = rf"line \d+: {re.escape(repr(text))} is {value} to YAML; write the number in decimal digits, or text in quotes"
    with pytest.raises(ProfileError, match=complaint):
        read(tmp_path, TEXT.replace("value: 132", f"value: {text}"))


def test_the_json_schema_is_that_of_the_struct():
    schema = json.loads((SHIPPED / "schema.json").read_text())
    assert schema == msgspec.json.schema(ProfileFile), (
        "run: python -c 'import json, msgspec; from portable_softmax.devices.file_schema import ProfileFile; "
        "print(json.dumps(msgspec.json.schema(ProfileFile), indent=2))' > device_profiles/schema.json"
    )
