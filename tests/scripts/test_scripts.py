"""The benchmark's own arithmetic, and the matrix of vendor CI; nothing is timed here."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from benchmark import documents, report
from benchmark.results import Result, cells_of
from matrix import legs, main

from portable_softmax import profiles

TIMES = {  # microseconds by direction, shape and provider
    ("forward", "4096x128"): {"copy": 5, "torch": 20, "ours": 10},
    ("forward", "4096x256"): {"copy": 5, "torch": 40, "quack": 5, "ours": 10},
    ("backward", "4096x256"): {"copy": 5, "torch": 40, "quack": 20},
}


def results():
    return [
        Result(device="A", sweep="wide", provider=name, shape=shape, dim=1, dtype="float32", direction=way, median_us=float(us))
        for (way, shape), times in TIMES.items()
        for name, us in times.items()
    ]


def test_ratios_of_cells_and_their_geometric_means():
    cells = cells_of(results())
    forward, backward = report.summary(cells)
    assert forward == ("forward", "wide", "float32", "2", "0.50", "2.83", "1.00", "1", "0.50 4096 x 256 (quack)")
    assert backward == ("backward", "wide", "float32", "1", "-", "-", "-", "0", "-")
    assert report.below(cells) == ["  0.500 forward float32 4096 x 256 (quack)"]
    assert report.times(cells)[-1] == ("backward", "float32", "4096 x 256", "5.0", "40.0", "-", "20.0", "-", "-", "-")
    assert cells[0].gb_per_s["ours"] == pytest.approx(2 * 4096 * 128 * 4 / 10 / 1e3)


@pytest.mark.parametrize("document", documents.DOCUMENTS, ids=lambda path: path.name)
def test_tables_of_documents_are_those_of_the_kept_results(document):
    """If not: python scripts/benchmark report --write."""
    text = document.read_text()
    assert documents.BLOCK.search(text)
    assert documents.filled(text) == text
    broken = documents.BLOCK.sub(r"\1old\n", text)
    assert documents.filled(broken) == text


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
    sessions = {name.partition("(")[0].partition("-")[0] for name in re.findall(r"^[-*] (\S+)", listed.stdout, re.MULTILINE)}
    for file in (".github/workflows/ci.yml", ".github/workflows/hardware.yml", ".gitlab-ci.yml"):
        text = (ROOT / file).read_text()
        named = {name for words in re.findall(r"nox -s \"?([a-z_ ]+[a-z])", text) for name in words.split()}
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
    assert all(re.fullmatch(r"\./\S+|[\w/-]+@[0-9a-f]{40} # v[\d.]+", action) for action in used), "pinned by commit"
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in workflow["on"]
    for name, job in workflow["jobs"].items():
        if "uses" in job:
            assert "github.event_name == 'push'" in job["if"], name
        elif job["runs-on"] != "ubuntu-24.04":
            assert job["environment"] == "hardware", name
            assert "pull_request" not in workflow["on"], name
