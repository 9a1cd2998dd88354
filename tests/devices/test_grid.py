"""Grids that a device takes, and what is said of those that it does not, by its vendor's rule."""

import re

import pytest

from portable_softmax import Device, profiles
from portable_softmax.devices.grid import refusal

ALL_BLOCKS = "TRITON_ALL_BLOCKS_PARALLEL"


@pytest.fixture(autouse=True)
def _as_shipped(monkeypatch):
    monkeypatch.delenv(ALL_BLOCKS, raising=False)


@pytest.mark.parametrize(
    ("profile", "grid", "launch", "refused"),
    [
        ("nvidia/h200", (2**31 - 1, 65535, 65535), {}, None),
        ("nvidia/h200", (2**31, 1, 1), {}, "2,147,483,648 programs along x, and nvidia/h200 launches at most 2,147,483,647"),
        ("nvidia/h200", (1, 65536, 1), {}, "65,536 programs along y, and nvidia/h200 launches at most 65,535"),
        ("nvidia/t4", (1, 1, 65536), {}, "65,536 programs along z"),
        ("nvidia/h200", (2**30 - 1, 1, 1), {"num_ctas": 2}, None),
        ("nvidia/h200", (2**30, 1, 1), {"num_ctas": 2}, "2,147,483,648 blocks, 2 for each program, along x"),
        ("amd/mi300x", (2**24 - 1, 1, 1), {"num_warps": 4}, None),
        ("amd/mi300x", (2**24, 1, 1), {"num_warps": 4}, "4,294,967,296 threads, and amd/mi300x launches at most 4,294,967,295"),
        ("amd/mi300x", (513, 65535, 1), {"num_warps": 2}, f"{513 * 65535 * 128:,} threads"),  # pytorch/FBGEMM pull request 5973
        ("amd/rx-7900-xtx", (2**24, 1, 1), {"num_warps": 4}, None),  # warps of 32 threads
        ("amd/mi300x", (1, 65536, 1), {"num_warps": 4}, None),
        ("ascend/910b3", (257, 255, 1), {}, None),
        ("ascend/910b3", (256, 256, 1), {}, f"65,536 programs, .* or set {ALL_BLOCKS}=1$"),
        ("intel/max-1550", (2**25, 1, 1), {"num_warps": 4}, "4,294,967,296 threads"),
        ("nvidia/h200", (0, 1, 1), {}, None),  # Triton launches nothing
    ],
)
def test_the_vendors_limits(profile, grid, launch, refused):
    found = refusal(Device.from_profile(profile), grid, **launch)
    if refused is None:
        assert found is None
    else:
        assert re.search(refused, found), found


def test_an_option_lifts_the_limit_of_a_launch(monkeypatch):
    device = Device.from_profile("ascend/910b3")
    for value, lifted in (("0", False), ("1", True)):
        monkeypatch.setenv(ALL_BLOCKS, value)
        assert (refusal(device, (65536, 1, 1)) is None) == lifted
    assert refusal(Device.from_profile("nvidia/h200"), (1, 65536, 1))


def test_a_refusal_names_its_source():
    for device in map(Device.from_profile, (name for name in profiles() if not name.startswith("triton/"))):
        found = refusal(device, (2**40, 1, 1), num_warps=1)
        assert any(source.title in found for source in device.profile.origins.values()), device.name
