"""`profiles new` writes a profile of a device that no profile names; a recording is what tests play back."""

import yaml
from playback import MACHINES, fresh, play, recorded  # noqa: F401  (an autouse fixture)

from portable_probe.program import main
from portable_softmax import Device, current_device
from portable_softmax.devices import detect


def test_a_new_device_is_a_profile_at_once(monkeypatch, tmp_path, capsys):
    machine = recorded("driver_h200")
    unknown = {"target": ["cuda", 200, 32], "torch": [{**machine["torch"][0], "name": "NVIDIA X300 (lab)"}]}
    play(monkeypatch, machine | unknown)
    before = current_device()
    assert before.profile.estimated
    assert main(["profiles", "new", str(tmp_path)]) == 0
    assert f"PORTABLE_SOFTMAX_PROFILES={tmp_path}" in capsys.readouterr().out
    assert main(["profiles", "new", str(tmp_path)]) == 1
    assert "FileExistsError" in capsys.readouterr().err
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
    assert yaml.safe_load((tmp_path / "nvidia" / "x300-lab.yaml").read_text())["hardware"].keys() == {*told}
