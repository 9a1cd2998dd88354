"""A file that is wrong is refused with its name, the key and the reason: one case for each check of this package."""

import json
import re

import pytest
from profile_text import MISSING, TEXT, edited, fact, read, written

from portable_softmax import ProfileError, profiles
from portable_softmax.devices.policy import COST_NUMBERS
from portable_softmax.devices.profile_checks import RELATIONS
from portable_softmax.devices.profiles import read_profiles

HW, CARD = "hardware.", "products.card."


COST = dict.fromkeys(COST_NUMBERS, 2.0) | {"source": "mine"}


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
        ("first_triton", "3.x", r"Expected `str` matching regex.*\$.first_triton"),
        ("first_triton", 3.5, r"Expected `str`, got `float` - at `\$.first_triton`; in quotes it is text"),
        ("sources.mine.verified", "surely", r"Invalid enum value 'surely'.*; it is one of measured, vendor, third-party"),
        ("sources.mine.title", "on 2026-13-45", r"sources.mine.title: 2026-13-45 is no date: month must"),
        ("sources.mine.titel", "x", r"unknown field `titel` - at `\$.sources.mine`"),
        ("sources.assumed_from_h200", {"verified": "vendor", "title": "x"}, "nvidia/estimated has another assumed_from_h200"),
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
        ("launch.extends", "nvidia/sm80", r"launch.extends: 'nvidia/sm80' is none of "),
        ("launch.grid", fact("persistent"), r"Invalid enum value 'persistent'.*launch.grid.*; it is one of tile, resident"),
        ("launch.grid", fact("tile", "nobody"), r"launch.grid: its source 'nobody' is not among"),
        ("launch.extends", MISSING, r"launch.grid: is missing; give it, or `extends`"),
        ("launch.extends", MISSING, r"launch: cost is missing; give it, or `extends`"),
        ("launch.tile_elements", fact(24), r"24 is not a power of two - at `\$.launch.tile_elements"),
        ("launch.registers", fact([64, 256]), r"launch.registers \[64, 256\], hardware.max_registers_per_thread 255: a thread"),
        ("launch.cost", COST | {"source": "nobody"}, r"launch.cost: its source 'nobody' is not among"),
        ("launch.cost", COST | {"start_us": 0}, r"Expected `float` > 0.0 - at `\$.launch.cost.start_us"),
        ("launch.cost", COST | {"errors": {"start": 0.1}}, r"errors of start; the numbers are start_us, .* at `\$.launch.cost"),
        ("launch.cost", {"source": "mine", "start_us": 4.0}, r"missing required field `bandwidth` - at `\$.launch.cost"),
        (CARD + "cost", COST | {"source": "nobody"}, r"products.card.cost: its source 'nobody' is not among"),
        (CARD + "matches", ["A (Card"], r"products.card.matches\[0\]: 'A \(Card' is not a regular expression: missing \)"),
        (CARD + "hardware.multiprocessor_count", fact(0), r">= 1 - at `\$.products.card.hardware.multiprocessor_count.val"),
        ("products.my/card", {"matches": []}, r"products.my/card: 'my/card' should have neither slashes nor spaces"),
    ],
)
def test_a_value_that_is_wrong(tmp_path, path, value, complaint):
    refused(tmp_path, edited(path, value), complaint)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (f"{TEXT}backend: hip\n", "found the key 'backend' twice"),
        (f"{TEXT}x: !!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
        (f"{TEXT}x: 2026-13-45\n", r"line \d+: cannot be read as timestamp: month must be in 1..12"),
        (f"{TEXT}x: 0x_\n", r"line \d+: cannot be read as int: invalid literal"),
        (f"{TEXT}x: !!bool maybe\n", r"line \d+: cannot be read as bool: 'maybe'"),
        (f"{TEXT}x: !!map maybe\n", r"line \d+: expected a mapping node, but found scalar"),
        (f"{TEXT}x: 0{':1' * 200}.5\n", r"line \d+: cannot be read as float: int too large"),
        (f"{TEXT}1: 2\n", r"line \d+: the key '1' is not text to YAML; put it in quotes"),
        (f"{TEXT}[a, b]: 2\n", r"line \d+: the key .* is not text"),
        (f'{TEXT}"\\ud800": 3\n', "surrogates not allowed"),
        ("just words", "Expected `object`, got `str`"),
        ("products: {mine: {matches: 5}}\nsources: 5\n", r"Expected `array`, got `int` - at `\$.products.mine.matches`"),
        ("", "is empty"),
        ("a: b\n---\na: b\n", "line 2: but found another document"),
        (b"\xff\xfe\x00", "codec can't decode"),
        ("a: \x00", "special characters are not allowed"),
        ("[" * 100_000, "is nested too deeply"),
        ("a: &a\n  b: *a\n", "unknown field `a`"),
        *(
            (
                TEXT.replace("value: 132", f"value: {text}"),
                rf"line \d+: {re.escape(repr(text))} is {value} to YAML; write the number in decimal digits, or text in quotes",
            )
            for text, value in (("0132", 90), ("1:30", 90), ("1_3_2", 132), ("0x84", 132), ("0b1000", 8), ("+0_1.5", 1.5))
        ),
        (TEXT.replace("value: 132", "value: 1:30.0"), "'1:30.0' is 90.0 to YAML"),
        (TEXT.replace("value: 132", "value: .inf"), "'.inf' is inf to YAML"),
    ],
)
def test_text_that_is_refused(tmp_path, content, complaint):
    """YAML refuses it, or takes it for something else than it looks."""
    path = written(tmp_path, "")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ProfileError, match=rf"(?s)nvidia/example\.yaml: .*({complaint})"):
        read_profiles(path)


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


EXTENSION = {"extends": "nvidia/h200", "matches": ["X"], "sources": {"nvl": {"verified": "vendor", "title": "a brief"}}}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"extends": "nvidia/h2000"}, r"extends: there is no 'nvidia/h2000'; there are .*nvidia/h200\b"),
        ({"sources": {"h200": {"verified": "vendor", "title": "a brief"}}}, r"sources: .* has h200 too"),
        ({"hardware": {"memory_bandwidth_gb_per_s": fact(1, "other")}}, r"its source 'other' is not among `sources`"),
        ({"cost": COST | {"source": "other"}}, r"products.mine.cost: its source 'other' is not among `sources`"),
        ({"extends": "nvidia/mine"}, r"extends: there is no 'nvidia/mine'"),
    ],
)
def test_a_bad_extension_is_refused(tmp_path, monkeypatch, changes, complaint):
    written(tmp_path, json.dumps(EXTENSION | changes), "nvidia/mine.yaml")
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    with pytest.raises(ProfileError, match=rf"(?s)nvidia/mine\.yaml: .*{complaint}"):
        profiles()
