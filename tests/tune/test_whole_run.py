"""A whole run in Triton's interpreter: what it writes, what it leaves out, and what is refused."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from portable_probe.program import main
from portable_probe.tune import launches
from portable_probe.tune.command import checked
from portable_softmax import Device
from portable_softmax.devices.policy import COST_NUMBERS
from portable_softmax.errors import ProfileError

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The folder that a run wrote, and what it printed."""
    directory = tmp_path_factory.mktemp("whole")
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(HERE / "tiny.py"), str(directory)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert not done.returncode, done.stderr
    return directory, done.stdout + done.stderr


pytestmark = pytest.mark.xdist_group("tune")  # one process makes the run
NAME = "nvidia/h100-sxm"
VARIABLE = "PORTABLE_SOFTMAX_PROFILES"
DEVICE = Device.from_profile(NAME)


def tables_of(directory):
    """Returns the tables of launches that a run wrote."""
    return sorted((directory / "nvidia").glob("*.csv"))


def test_the_package_takes_the_file_at_once(whole, monkeypatch):
    directory, printed = whole
    assert sorted(each.name for each in (directory / "nvidia").iterdir()) == [
        "h100-sxm-rows.csv",
        "h100-sxm-softmax.csv",
        "h100-sxm.yaml",
    ]
    assert f"{VARIABLE}={directory} takes it" in printed
    monkeypatch.setenv(VARIABLE, str(directory))
    profile = Device.from_profile(NAME).profile
    cost, source = profile.launch.cost, profile.sources[profile.launch.cost.source]
    assert cost != DEVICE.profile.launch.cost
    assert set(cost.errors) == set(COST_NUMBERS)
    assert f"; left out of the fit, nine of ten times are within {cost.error_90:.1%}, and regret is " in source.title
    assert source.verified == "measured"
    for told in (f"portable-softmax tune, one {NAME}, ", "triton ", "torch ", ": least squares of ", " launches of "):
        assert told in source.title


def test_what_goes_wrong_is_printed_and_has_no_line(whole):
    directory, printed = whole
    assert [line[:28] for line in printed.splitlines() if "WrongResultError: " in line] == ["row 16 x 64 bfloat16 forward"]
    words = next(line for line in printed.splitlines() if "launches timed" in line).split()
    assert sum(len(launches.read(path, DEVICE)) for path in tables_of(directory)) == int(words[0]) == int(words[2]) - 1


def test_a_table_is_fitted_again_to_the_same_numbers(whole, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    before, after = (folder / "nvidia" / "h100-sxm.yaml" for folder in (whole[0], tmp_path))
    assert main(["tune", "--refit", *map(str, tables_of(whole[0])[::-1]), "--on", "H100-SXM", "--out", str(tmp_path)]) == 0
    one, two = (yaml.safe_load(path.read_text()) for path in (before, after))
    assert one["cost"] == two["cost"]
    assert two["matches"] == ["NVIDIA H100 80GB HBM3"]
    assert "left out of the fit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("n_rows", "many", r"line 2, .*: .*Expected `int`, got `str` - at `\$.n_rows`"),
        ("us", "0", r"line 2, .*: .*0.0 microseconds are no time"),
        ("us", "", r"line 2, .*: KeyError\('us'\)"),
        ("dtype", "x" * 200_000, r"field larger than field limit"),
    ],
    ids=["text", "zero", "missing", "long"],
)
def test_a_table_that_no_run_writes_is_refused(whole, tmp_path, capsys, column, value, told):
    header, first, *rows = tables_of(whole[0])[1].read_text().splitlines()
    changed = [value if name == column else text for name, text in zip(header.split(","), first.split(","), strict=True)]
    table = tmp_path / "table.csv"
    table.write_text("\n".join([header, ",".join(changed), *rows]))
    with pytest.raises(ValueError, match=told):
        launches.read(table, DEVICE)
    assert main(["tune", "--refit", str(table), "--on", NAME]) == 1
    assert "should be as `portable-softmax tune` writes it" in capsys.readouterr().err


def test_devices_whose_cost_cannot_be_fitted_are_refused():
    with pytest.raises(ProfileError, match="ascend/910b3 gives no `cost` to begin with"):
        checked(Device.from_profile("ascend/910b3"))
    unknown = dataclasses.replace(DEVICE, hardware=msgspec.structs.replace(DEVICE.hardware, memory_bandwidth_gb_per_s=None))
    with pytest.raises(ProfileError, match="gives no memory_bandwidth_gb_per_s; add a profile"):
        checked(unknown)
