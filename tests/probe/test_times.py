"""Expected times: what they are worth on the measured cells, as docs/probe.md says, and where there is none."""

import re
from pathlib import Path

import fit_times
import numpy as np
import pytest

from portable_probe.times import TIMES, Fitted, _fits, time_of
from portable_softmax import Device, plan

DOCUMENT = (Path(__file__).parents[2] / "docs" / "probe.md").read_text()
DEVICES = {profile: name for name, profile in fit_times.PROFILES.items()}


def told(profile):
    """The errors that the document says of a fit to the profile: its own cells left out, and the other device's."""
    rows = re.findall(rf"\| {profile} \| ([^|]+) \| \d+ \| [\d.]+% \| [\d.]+% \| \d+ \| ([\d.]+)% \| ([\d.]+)% \|", DOCUMENT)
    return {name.split(",")[0]: (float(half) / 100, float(most) / 100) for name, half, most in rows}


@pytest.mark.parametrize("profile", DEVICES)
@pytest.mark.parametrize("other", DEVICES)
def test_the_errors_are_those_of_the_document(profile, other):
    fitted = Fitted(**{name: _fits()[profile][name] for name in Fitted._fields})
    cells = [each for each in fit_times.read(DEVICES[other]) if each.microseconds >= fit_times.LONG_US]
    errors = np.abs(fit_times.errors(fitted, cells))
    half, most = told(profile)[other]
    assert np.median(errors) == pytest.approx(half, abs=0.002)
    assert np.quantile(errors, 0.9) == pytest.approx(most, abs=0.003)


def test_the_fit_is_what_the_script_finds():
    for profile, name in DEVICES.items():
        found = fit_times.fit(fit_times.read(name))
        assert found == pytest.approx([_fits()[profile][each] for each in Fitted._fields], rel=0.01)
    assert set(_fits()) == set(DEVICES)
    assert TIMES.is_file()


def test_a_device_that_nobody_measured_has_the_floor_alone():
    device = Device.from_profile("amd/mi300x")
    planned = plan(4096, 8192, "float32", device)
    found = time_of(planned, 4096, 8192, "float32", device)
    assert (found.expected_us, found.error) == (None, None)
    assert found.floor_us == pytest.approx(2 * 4096 * 8192 * 4 / 5.3e6)
    assert found.waves == pytest.approx(
        4096 / (304 * plan(4096, 8192, "float32", device).occupancy.programs_per_multiprocessor)
    )
    assert 0 <= found.tail < 1
    device = Device.from_profile("nvidia/h200")
    found = time_of(plan(4096, 8192, "float32", device), 4096, 8192, "float32", device)
    assert found.expected_us > found.floor_us
