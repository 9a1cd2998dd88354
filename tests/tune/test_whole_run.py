"""A whole run in Triton's interpreter: what it writes, what it leaves out, and what is refused."""

import dataclasses
import sys

import msgspec
import pytest
import yaml
from tiny import FAULTS

from portable_probe.tune import files
from portable_probe.tune.__main__ import checked, main
from portable_softmax import Device
from portable_softmax.devices.policy import COST_NUMBERS
from portable_softmax.errors import ProfileError

pytestmark = pytest.mark.xdist_group("tune")  # one process makes the run
NAME = "nvidia/h100-sxm"


def test_the_package_takes_the_file_at_once(whole, monkeypatch):
    directory, printed = whole
    assert sorted(each.name for each in (directory / "nvidia").iterdir()) == ["h100-sxm.csv", "h100-sxm.yaml"]
    assert f"PORTABLE_SOFTMAX_PROFILES={directory} takes it" in printed
    shipped = Device.from_profile(NAME).profile.launch.cost
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", str(directory))
    profile = Device.from_profile(NAME).profile
    cost, source = profile.launch.cost, profile.sources[profile.launch.cost.source]
    assert cost != shipped
    assert set(cost.errors) == set(COST_NUMBERS)
    assert f"nine of ten times within {cost.error_90:.1%}, regret " in source.title
    assert source.verified == "measured"
    for told in (
        f"portable-softmax tune on one {NAME}, ",
        "triton ",
        "torch ",
        "; least squares of ",
        " launches of ",
    ):
        assert told in source.title


def test_what_goes_wrong_is_told_and_has_no_line(whole):
    directory, printed = whole
    assert "row 16 x 64 float32 forward, plain: tile 1 x 64, num_warps 1: the process ended by signal 6" in printed
    assert "row 16 x 64 bfloat16 forward, plain: tile 1 x 64, num_warps 1: WrongResultError: the result differs" in printed
    lines = files.read(directory / "nvidia" / "h100-sxm.csv")
    assert sum(line.planned for line in lines) == len({line.cell for line in lines}) - len(FAULTS)
    assert f"{len(lines)} launches timed in " in printed


def test_a_table_is_fitted_again_to_the_same_numbers(whole, capsys, monkeypatch):
    directory, _ = whole
    table = directory / "nvidia" / "h100-sxm.csv"
    before = table.with_suffix(".yaml").read_text()
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", "")
    assert main(["--refit", str(table)]) == 0
    assert table.with_suffix(".yaml").read_text() == before
    monkeypatch.setenv("PORTABLE_SOFTMAX_PROFILES", "")
    assert main(["--refit", str(table), "--on", "H100-SXM"]) == 0
    told = yaml.safe_load(capsys.readouterr().out.rpartition("\ncost:")[2])
    assert {key: told[key] for key in COST_NUMBERS} == {key: yaml.safe_load(before)["cost"][key] for key in COST_NUMBERS}


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("n_rows", "many", r"line 2: Expected `int`, got `str` - at `\$.n_rows`"),
        ("us", "0", r"line 2: 0.0 microseconds are no time"),
        ("us", "", r"line 2: nan microseconds are no time"),
        ("kind", "", r"line 2: Object missing required field `kind`"),
        ("dtype", "x" * 200_000, r"field larger than field limit"),
    ],
    ids=["text", "zero", "no time", "missing", "long"],
)
def test_a_table_that_no_run_writes_is_refused(whole, tmp_path, capsys, column, value, told):
    header, first, *rows = (whole[0] / "nvidia" / "h100-sxm.csv").read_text().splitlines()
    changed = [value if name == column else text for name, text in zip(header.split(","), first.split(","), strict=True)]
    table = tmp_path / "table.csv"
    table.write_text("\n".join([header, ",".join(changed), *rows]))
    with pytest.raises(ValueError, match=told):
        files.read(table)
    assert main(["--refit", str(table), "--on", NAME]) == 1
    assert "`portable-softmax tune` writes such tables" in capsys.readouterr().err


def test_facts_that_the_device_tells_otherwise_are_written():
    device = Device.from_profile(NAME)
    assert files.extension_of(device)["hardware"] == {}
    hardware = msgspec.structs.replace(device.hardware, multiprocessor_count=114)
    origins = {**device.origins, "multiprocessor_count": "driver", "warp_size": "driver"}
    told = files.extension_of(dataclasses.replace(device, hardware=hardware, origins=origins))
    assert told["hardware"] == {"multiprocessor_count": {"value": 114, "source": "tuned"}}
    assert (told["extends"], told["matches"], files.product_of(device)) == (NAME, ["nvidia/h100\\-sxm"], NAME)


def test_devices_whose_cost_cannot_be_fitted_are_refused():
    with pytest.raises(ProfileError, match="ascend/910b3 gives no `cost` to begin with"):
        checked(Device.from_profile("ascend/910b3"))
    device = Device.from_profile(NAME)
    unknown = dataclasses.replace(device, hardware=msgspec.structs.replace(device.hardware, memory_bandwidth_gb_per_s=None))
    with pytest.raises(ProfileError, match="gives no memory_bandwidth_gb_per_s; add a profile"):
        checked(unknown)


def test_without_numpy_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main([]) == 1
    assert capsys.readouterr().err == "numpy is needed, which solves for the numbers: pip install numpy\n"
    assert "--minutes" not in sys.argv
