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
        ("arch", 90, r"Expected `str`, got `int` - at `\$.arch`"),
        ("arch", "9(0", r"arch: '9\(0' is not a regular expression"),
        ("arch", "a{99999999999999999999}", r"arch: .* is not a regular expression"),
        ("arch", "(" * 5000, r"arch: .* is not a regular expression"),
        ("arch", "9[0]", r"products.card.arch: '9\[0\]' is not a target that the file's arch '9\[0\]' matches"),
        ("multiprocessor", "", r"Expected `str` of length >= 1 - at `\$.multiprocessor`"),
        ("first_triton", "3.x", r"Expected `str` matching regex.*\$.first_triton"),
        ("first_triton", 3.5, r"Expected `str`, got `float` - at `\$.first_triton`"),
        ("sources.mine.verified", "surely", r"Invalid enum value 'surely'"),
        ("sources.mine.titel", "x", r"unknown field `titel`"),
        ("sources.assumed_from_h200", {"verified": "vendor", "title": "x"}, "what it extends has another assumed_from_h200"),
        (HW + "warp_size", 32, r"got `int` .*warp_size`"),
        (HW + "warp_size", fact(33), r"33 is not a power of two - at `\$.hardware.warp_size`"),
        (HW + "register_granule", fact(0), r">= 1.*register_granule"),
        (HW + "register_granule", fact(2**63), r"Expected `int` <= 9223372036854775807.*register_granule"),
        (HW + "register_granule", fact(8, "hearsay"), r"hardware.register_granule.*'hearsay' is not among"),
        (HW + "register_granul", fact(8), r"unknown field `register_granul`"),
        (HW + "shared_memory_sizes", fact([4096, 1024]), r"\[4096, 1024\] are not in ascending order.*shared_memory_sizes"),
        (HW + "shared_memory_sizes", fact([]), r"length >= 1.*shared_memory_sizes"),
        ("launch.polls", fact(0), r">= 1 - at `\$.launch.polls"),
        ("launch.polls", fact(2**32), "polls"),
        ("extends", "nvidia/sm80", r"extends: 'nvidia/sm80' is no architecture that extends none"),
        ("launch.grid", fact("persistent"), r"Invalid enum value 'persistent'.*launch.grid"),
        ("launch.grid", fact("tile", "nobody"), r"launch.grid: its source 'nobody' is not among"),
        ("extends", MISSING, r"launch: grid, cost is missing; give it, or `extends`"),
        ("launch.tile_elements", fact(24), r"24 is not a power of two - at `\$.launch.tile_elements"),
        ("launch.cost", COST | {"source": "nobody"}, r"launch.cost: its source 'nobody' is not among"),
        ("launch.cost", COST | {"start_us": 0}, r"Expected `float` > 0.0 - at `\$.launch.cost.start_us"),
        ("launch.cost", COST | {"errors": {"start": 0.1}}, r"errors of start; the numbers are start_us, .* at `\$.launch.cost"),
        ("launch.cost", {"source": "mine", "start_us": 4.0}, r"missing required field `bandwidth` - at `\$.launch.cost"),
        (CARD + "cost", COST | {"source": "nobody"}, r"products.card.cost: its source 'nobody' is not among"),
        (CARD + "matches", ["A (Card"], r"products.card.matches: 'A \(Card' is not a regular expression"),
        (CARD + "hardware.multiprocessor_count", fact(0), r">= 1 - at `\$.products\[...\].hardware.multiprocessor_count.val"),
    ],
)
def test_a_value_that_is_wrong(tmp_path, path, value, complaint):
    refused(tmp_path, edited(path, value), complaint)


@pytest.mark.parametrize(
    "content",
    [
        f"{TEXT}x: !!python/object/apply:os.getcwd []\n",
        f"{TEXT}x: 2026-13-45\n",
        f"{TEXT}x: 0x_\n",
        f"{TEXT}x: !!bool maybe\n",
        f"{TEXT}1: 2\n",
        f"{TEXT}[a, b]: 2\n",
        "just words",
        "",
        "a: b\n---\na: b\n",
        b"\xff\xfe\x00",
        "a: &a\n  b: *a\n",
    ],
)
def test_text_that_is_refused(tmp_path, content):
    path = written(tmp_path, "")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ProfileError, match=r"nvidia/example\.yaml: ."):
        read_profiles([path])


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
        message = refused(tmp_path, text, rf"hardware: .*{key} {re.escape(str(value))}.*: ")
        lines = [line.rpartition(": ")[2] for line in message.splitlines()]
        assert len(lines) == len(set(lines))
        told += lines
    assert set(told) == {reason for _, _, reason in RELATIONS}


def test_a_product_that_contradicts_its_architecture_is_named(tmp_path):
    complaint = "products.card.hardware: max_threads_per_program 1024, max_warps_per_multiprocessor 64, warp_size 8"
    assert refused(tmp_path, edited(f"{CARD}hardware.warp_size", fact(8)), complaint).count("\n") == 0


EXTENSION = {"extends": "nvidia/h200", "matches": ["X"], "sources": {"nvl": {"verified": "vendor", "title": "a brief"}}}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"extends": "nvidia/h2000"}, r"extends: there is no 'nvidia/h2000'"),
        ({"sources": {"h200": {"verified": "vendor", "title": "a brief"}}}, r"sources: what it extends has another h200"),
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
