"""Tables of kept results, and workflows; nothing is timed here."""

import json
import re
from pathlib import Path

import pytest
import yaml
from benchmark import documents

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.names import find_profiles

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("document", documents.DOCUMENTS, ids=lambda path: path.name)
def test_tables_of_documents_are_those_of_the_kept_results(document):
    """If not: python scripts/benchmark report --write."""
    text = document.read_text()
    assert documents.BLOCK.search(text)
    assert documents.filled(text) == text
    broken = documents.BLOCK.sub(r"\1old\n", text)
    assert documents.filled(broken) == text


def test_devices_of_workflows_have_profiles():
    legs = json.loads((ROOT / ".github" / "legs.json").read_text())
    assert {leg["device"] for leg in legs} == BACKENDS.keys() - {"interpreter"}
    to_copy = re.findall(r'"(\w[\w/,]+,\w+)"', (ROOT / "examples" / "ci_three_vendors.yml").read_text())
    assert len(to_copy) == 2
    assert all(find_profiles(names.split(",")) for names in [*to_copy, *(leg["profile"] for leg in legs)])


@pytest.mark.parametrize("file", [*(ROOT / ".github" / "workflows").glob("*.yml")], ids=lambda path: path.name)
def test_workflows_have_the_least_permissions(file):
    """No stranger's pull request reaches a runner of one's own; actions are pinned, and scripts exist."""
    text = file.read_text()
    used, workflow = re.findall(r"uses: (.*)", text), yaml.load(text, yaml.BaseLoader)
    assert all(re.fullmatch(r"\./\S+|[\w/-]+@[0-9a-f]{40} # v[\d.]+", action) for action in used), "pinned by commit"
    assert [script for script in re.findall(r"bash (scripts/\w+\.sh)", text) if not (ROOT / script).is_file()] == []
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in workflow["on"]
    for name, job in workflow["jobs"].items():
        if "uses" in job:
            assert "github.event_name == 'push'" in job["if"], name
        elif job["runs-on"] != "ubuntu-24.04" or "permissions" in job:
            assert job["environment"] in ("hardware", "pypi"), name
            assert "pull_request" not in workflow["on"], name
