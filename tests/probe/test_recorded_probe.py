"""The report that the probe wrote on a real machine (scripts/record.py), beside the one that it writes today."""

import json
from pathlib import Path

import msgspec
import pytest

from portable_probe.cases import Wanted, reports_of
from portable_probe.report_types import SoftmaxProblem
from portable_softmax import Device

RECORDED = sorted((Path(__file__).parents[1] / "support" / "recorded").glob("probe_*.json"))


@pytest.fixture(params=RECORDED, ids=lambda path: path.stem)
def recorded(request):
    return json.loads(request.param.read_text())


@pytest.fixture
def today(recorded):
    name, problem = recorded["device"]["profile"], recorded["problem"]
    (report,) = reports_of([(Device.from_profile(name), SoftmaxProblem(**problem), Wanted())])
    return msgspec.to_builtins(report)


def test_no_key_goes_without_a_new_schema_version(recorded, today):
    assert recorded["schema_version"] in (1, today["schema_version"])  # 4 moved what `plan` and `explain` hold
    assert not gone(recorded, today, left_out=("plan", "explain", "verify", "provenance", "arguments", "software", "facts"))


def test_no_profile_contradicts_what_the_machine_said(recorded, today):
    """Facts that one of the two does not tell are not compared, nor those that were added since."""
    told = {key: fact["runtime"] for key, fact in recorded["facts"].items() if fact["runtime"] is not None}
    known = {key: fact["profile"] for key, fact in today["facts"].items() if fact["profile"] is not None}
    both = told.keys() & known.keys()
    assert len(both) > 5
    assert {key: known[key] for key in both} == {key: told[key] for key in both}


def gone(recorded, report, left_out=()):
    """The keys that a report no longer has; new ones may come without a new schema_version."""
    if not isinstance(recorded, dict) or not isinstance(report, dict):
        return []
    kept = [key for key in recorded if key not in left_out]
    lost = [key for key in kept if key not in report]
    return lost + [deeper for key in kept if key in report for deeper in gone(recorded[key], report[key])]
