"""The matrix of vendor CI: every leg is complete, and none waits for a runner that is not there."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from matrix import legs, main

from portable_softmax import profiles

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ([], ["offline", "nvidia-h200", "amd-mi300x", "ascend-910b3", "intel-max-1100"]),
        (["--backend", "hip", "npu"], ["amd-mi300x", "ascend-910b3"]),
        (["--runner", "self-hosted", "amd-mi300x", "other"], ["amd-mi300x"]),
        (["--backend", "cuda", "--runner", "ubuntu-24.04"], []),
    ],
)
def test_the_matrix_has_the_legs_that_are_wanted_and_that_a_runner_takes(capsys, options, names):
    code = main(options)
    out, err = capsys.readouterr()
    assert code == (0 if names else 1)
    assert [leg["name"] for leg in json.loads(out)["include"]] == names if names else "no leg of offline, nvidia-h200" in err
    assert {leg["profile"] for leg in legs() if leg["profile"]} <= profiles().keys()


def test_what_ci_runs_is_there():
    listed = subprocess.run([sys.executable, "-m", "nox", "-l"], cwd=ROOT, capture_output=True, text=True, check=True)
    sessions = {each.partition("(")[0].partition("-")[0] for each in re.findall(r"^[-*] (\S+)", listed.stdout, re.MULTILINE)}
    for file in (".github/workflows/ci.yml", ".github/workflows/hardware.yml", ".gitlab-ci.yml"):
        text = (ROOT / file).read_text()
        named = {each for words in re.findall(r"nox -s \"?([a-z_ ]+[a-z])", text) for each in words.split()}
        scripts = re.findall(r"bash (scripts/[a-z_]+\.sh)", text)
        assert scripts or named
        assert named <= sessions
        assert [script for script in scripts if not (ROOT / script).is_file()] == []
    files = set(re.findall(r"tests/[\w/]+\.py", (ROOT / "noxfile.py").read_text()))
    assert [file for file in files if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize("file", ["ci.yml", "hardware.yml"])
def test_workflows_have_the_least_permissions_and_no_stranger_reaches_a_runner_of_ones_own(file):
    text = (ROOT / ".github" / "workflows" / file).read_text()
    used, workflow = re.findall(r"uses: (.*)", text), yaml.load(text, yaml.BaseLoader)
    assert [each for each in used if not re.fullmatch(r"\./\S+|[\w/-]+@[0-9a-f]{40} # v[\d.]+", each)] == [], "pinned by commit"
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in workflow["on"]
    for name, job in workflow["jobs"].items():
        if "uses" in job:
            assert "github.event_name == 'push'" in job["if"], name
        elif job["runs-on"] != "ubuntu-24.04":
            assert job["environment"] == "hardware", name
            assert "pull_request" not in workflow["on"], name
