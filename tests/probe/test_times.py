"""Expected times: the terms of the plan, how sure they are, and the memory's floor."""

import pytest

from portable_probe.times import time_of
from portable_softmax import Device, plan


def times(product, dtype="float32", **kind):
    """Returns a plan of 4096 x 8192 on a product, and its time."""
    device = Device.from_profile(product)
    found = plan(4096, 8192, dtype, device, **kind)
    return found, time_of(found, device)


@pytest.mark.parametrize(("product", "measured"), [("nvidia/h200", True), ("amd/mi300x", False), ("nvidia/p100", False)])
def test_the_expected_time_is_the_plans_and_an_error_is_told_where_it_was_measured(product, measured):
    found, time = times(product)
    assert time.expected_us == pytest.approx(sum(time.terms.values())) == found.terms.total
    assert bool(time.error) == measured
    assert f"expected {found.terms.total:.1f} us: memory" in str(found)


def test_the_floor_the_waves_and_the_bytes_in_flight():
    found, time = times("amd/mi300x")
    resident = 304 * found.occupancy.programs_per_multiprocessor
    assert time.bytes == 2 * 4096 * 8192 * 4
    assert time.floor_us == pytest.approx(time.bytes / 5.3e6)
    assert time.waves == pytest.approx(4096 / resident)
    assert time.covered_us == pytest.approx(resident * 8192 * 4 / 5.3e6)
    assert 0 <= time.tail < 1
    assert time.floor_us < time.expected_us
    _, gradient = times("amd/mi300x", backward=True)
    assert gradient.bytes == 3 * 4096 * 8192 * 4


def test_a_device_without_numbers_or_bandwidth_has_no_expected_time():
    found, time = times("ascend/910b3")
    assert (found.terms, time) == (None, None), "no bandwidth is known"
    assert "expected" not in str(found)
