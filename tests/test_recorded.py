"""What real machines reported (tests/record.py) against what this package says without them."""

import json
from pathlib import Path

import pytest
from offline import H200, table

from portable_softmax import Device, KernelResources, occupancy
from portable_softmax.probe.report import describe

RECORDED = Path(__file__).parent / "recorded"


@pytest.mark.parametrize("path", sorted(RECORDED.glob("occupancy_*.json")), ids=lambda path: path.stem)
def test_occupancy_registers_and_spills_are_the_drivers(path):
    record = json.loads(path.read_text())
    device = Device.from_profile(record["profile"])
    differences = []
    for cell in record["cells"]:
        resources = KernelResources(**cell["resources"])
        ours = {
            "n_regs": resources.registers_per_thread,
            "n_spills": resources.spilled_bytes_per_thread // 4,
            "programs": occupancy(resources, device).programs_per_multiprocessor,
        }
        if ours != cell["driver"]:
            differences.append((cell, ours))
    print(f"\n{path.name}: {len(record['cells'])} cells, {len(differences)} differences ({record['provenance']})")
    assert len(record["cells"]) >= 300
    assert not differences


def test_what_is_planned_for_an_h200_changes_only_on_purpose():
    """One golden table of tuning: device_profiles/nvidia/sm90.yaml has the rules and their measurements."""
    recorded, planned = json.loads((RECORDED / "plans_h200.json").read_text()), table(H200)
    changed = [f"{name}: {recorded.get(name)} -> {tiling}" for name, tiling in planned.items() if recorded.get(name) != tiling]
    assert not changed, "\n".join(["if it is meant to be so, run: python tests/record.py tests/recorded --plans", *changed])
    assert recorded.keys() == planned.keys()


@pytest.mark.parametrize("path", sorted(RECORDED.glob("probe_*.json")), ids=lambda path: path.stem)
def test_the_probe_still_writes_what_it_wrote_on_a_real_machine(path):
    recorded = json.loads(path.read_text())
    name, problem = recorded["device"]["profile"], recorded["problem"]
    report = describe(Device.from_profile(name), problem["n_rows"], problem["n_cols"], problem["dtype"])
    assert recorded["schema_version"] == report["schema_version"]
    assert recorded["verify"]["right"]
    assert not gone(recorded, report, left_out=("verify", "provenance", "arguments", "software", "facts"))
    for key, fact in report["facts"].items():
        told = recorded["facts"].get(key, {"runtime": None})  # facts may have been added since
        assert fact["profile"] in (told["runtime"], None) or told["runtime"] is None, (
            f"{key}: the machine says {told['runtime']}"
        )


def gone(recorded, report, left_out=()):
    """The keys that a report no longer has; new ones may come without a new schema_version."""
    if not isinstance(recorded, dict) or not isinstance(report, dict):
        return []
    kept = [key for key in recorded if key not in left_out]
    lost = [key for key in kept if key not in report]
    return lost + [deeper for key in kept if key in report for deeper in gone(recorded[key], report[key])]
