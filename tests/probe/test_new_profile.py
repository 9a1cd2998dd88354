"""A device that no profile names is written down: at once a profile, and a recording that tests play back."""

import json

import pytest
import yaml
from playback import MACHINES, fresh, play, recorded  # noqa: F401  (an autouse fixture)

from portable_probe import profiles, program
from portable_probe.profiles import write_profile
from portable_softmax import Device, NoDeviceError, current_device
from portable_softmax.devices import detect


def unknown(name="NVIDIA X300 (lab)", target=("cuda", 200, 32)):
    """The recorded H200, as a device of which nobody has heard."""
    machine = recorded("driver_h200")
    return machine | {"target": list(target), "torch": [{**machine["torch"][0], "name": name}]}


def test_a_new_device_is_a_profile_at_once(monkeypatch, tmp_path, capsys):
    play(monkeypatch, unknown())
    before = current_device()
    assert before.profile.estimated
    assert program.main(["profiles", "new", str(tmp_path)]) == 0
    assert f"PORTABLE_SOFTMAX_PROFILES={tmp_path}" in capsys.readouterr().out
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(tmp_path))
    detect._device.cache_clear()
    after = current_device()
    assert after.profile.name == "nvidia/x300-lab"
    assert after.hardware == before.hardware
    offline = Device.from_profile("nvidia/x300-lab")
    told = [key for key, origin in before.origins.items() if origin in ("driver", "torch")]
    assert len(told) > 5
    for key in told:
        assert getattr(offline.hardware, key) == getattr(before.hardware, key)
        assert offline.profile.origins[key].verified == "measured"
    text = (tmp_path / "nvidia" / "x300-lab.yaml").read_text()
    assert yaml.safe_load(text)["hardware"].keys() == {*told}
    assert "  # register_granule: 8 is the vendor's estimate; find it in its documents\n" in text
    assert "  # memory_bandwidth_gb_per_s: not known" in text


@pytest.mark.parametrize("name", MACHINES)
def test_every_recorded_machine_is_written_and_read_again(monkeypatch, tmp_path, name):
    machine = recorded(name)
    play(monkeypatch, machine)
    device = current_device()
    _, fixture = write_profile(device, tmp_path)
    again = json.loads(fixture.read_text())
    assert again["properties"] == machine["properties"]
    assert again["target"] == machine["target"]
    detect._device.cache_clear()
    play(monkeypatch, again)
    assert current_device().hardware == device.hardware
    with pytest.raises(FileExistsError):
        write_profile(device, tmp_path)


def test_only_a_device_that_is_here(tmp_path, capsys, monkeypatch):
    with pytest.raises(ValueError, match="describes an accelerator that is here; nvidia/h200 is none"):
        write_profile(Device.from_profile("nvidia/h200"), tmp_path)

    def nothing(index=None):
        raise NoDeviceError("nothing there")

    monkeypatch.setattr(profiles, "current_device", nothing)
    assert program.main(["profiles", "new", str(tmp_path)]) == 1
    assert "a new profile describes a device that is here. No accelerator: nothing there" in capsys.readouterr().err
