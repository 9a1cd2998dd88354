"""Resident programs as real drivers counted them (scripts/record.py) against this package's own count."""

import json
from pathlib import Path

import pytest

from portable_softmax import Device, KernelResources, occupancy

RECORDED = sorted((Path(__file__).parents[1] / "support" / "recorded").glob("occupancy_*.json"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_as_many_programs_are_resident_as_the_driver_counts(record_count, path):
    record = json.loads(path.read_text())
    device = Device.from_profile(record["profile"])
    counted = [
        (occupancy(KernelResources(**cell["resources"]), device).programs_per_multiprocessor, cell) for cell in record["cells"]
    ]
    differences = [(ours, cell) for ours, cell in counted if ours != cell["driver"]["programs"]]
    record_count(f"resident programs, the driver ({path.stem})", len(counted), len(differences))
    assert len(counted) >= 300
    assert not differences
