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
        (["--runner", "ubuntu-24.04"], ["offline"]),
        (["--runner", "self-hosted", "amd-mi300x", "other"], ["amd-mi300x"]),
        (["--runner", "self-hosted"], []),
        (["--backend", "cuda", "--runner", "ubuntu-24.04"], []),
    ],
)
def test_the_matrix_has_the_legs_that_are_wanted_and_that_a_runner_takes(capsys, options, names):
    code = main(options)
    out, err = capsys.readouterr()
    assert code == (0 if names else 1)
    assert [leg["name"] for leg in json.loads(out)["include"]] == names if names else "no leg of offline, nvidia-h200" in err


def test_images_are_pinned_and_containers_have_their_vendors_devices():
    by_device = {leg["device"]: leg for leg in legs()}
    needed = {
        "cuda": ["--gpus all"],
        "hip": ["/dev/kfd", "/dev/dri", "--group-add video", "--group-add render"],
        "xpu": ["/dev/dri", "--group-add video", "--group-add render"],
        "npu": ["/dev/davinci0", "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"],
    }
    for device, options in needed.items():
        container = by_device[device]["container"]
        assert container["image"].partition(":")[2] not in ("", "latest"), device
        assert all(option in container["options"] for option in options), device
    assert any("npu-smi" in volume for volume in by_device["npu"]["container"]["volumes"])


def test_each_profile_of_a_leg_is_there():
    assert {leg["profile"] for leg in legs() if leg["profile"]} <= profiles().keys()


def test_gitlab_gets_the_same_legs(capsys):
    assert main(["--gitlab", "--backend", "hip", "interpreter"]) == 0
    jobs = json.loads(capsys.readouterr().out)
    job, leg = jobs["amd-mi300x"], next(leg for leg in legs() if leg["name"] == "amd-mi300x")
    assert (jobs.keys(), "image" in jobs["offline"]) == ({"offline", "amd-mi300x"}, False)
    assert (job["tags"], job["image"], job["variables"]["PROFILE"]) == (leg["runner"], leg["container"]["image"], "amd/mi300x")
    assert job["variables"].keys() == {"DEVICE", "PROFILE", "SETUP", "PACKAGES"}


NOX = re.compile(r"nox -s \"?([a-z_ ]+[a-z])")
STEPS = re.compile(r"bash (scripts/[a-z_]+\.sh)")


def sessions():
    """The sessions of noxfile.py, as `nox -s` knows them."""
    listed = subprocess.run([sys.executable, "-m", "nox", "-l"], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(re.findall(r"^[-*] (\S+)", listed.stdout, re.MULTILINE))


@pytest.mark.parametrize("file", [".github/workflows/ci.yml", ".github/workflows/hardware.yml", ".gitlab-ci.yml"])
def test_every_step_is_a_script_or_a_session_that_is_there(file):
    text = (ROOT / file).read_text()
    named = {each for words in NOX.findall(text) for each in words.split()}
    assert STEPS.search(text) or named
    assert [script for script in STEPS.findall(text) if not (ROOT / script).is_file()] == []
    assert named <= {each.partition("(")[0].partition("-")[0] for each in sessions()}


def test_every_file_of_tests_that_a_session_names_is_there():
    named = set(re.findall(r"tests/[\w/]+\.py", (ROOT / "noxfile.py").read_text()))
    assert named
    assert [file for file in named if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize("file", ["ci.yml", "hardware.yml"])
def test_workflows_have_the_least_permissions_and_no_stranger_reaches_a_runner_of_ones_own(file):
    text = (ROOT / ".github" / "workflows" / file).read_text()
    used, workflow = re.findall(r"uses: (.*)", text), yaml.load(text, yaml.BaseLoader)
    assert used
    assert [each for each in used if not re.fullmatch(r"\./\S+|[\w/-]+@[0-9a-f]{40} # v[\d.]+", each)] == [], "pinned by commit"
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in workflow["on"]
    for name, job in workflow["jobs"].items():
        if "uses" in job:
            assert "github.event_name == 'push'" in job["if"], name
        elif job["runs-on"] != "ubuntu-24.04":
            assert job["environment"] == "hardware", name
            assert "pull_request" not in workflow["on"], name
