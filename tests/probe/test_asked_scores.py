"""The probe's options of scores: each reaches the kernel, stands in the report, and is asked for again."""

import json
from dataclasses import replace

import pytest
from offline import H200, MI300X

from portable_softmax import plan
from portable_softmax.planning.scores import Scores

SHAPE = ["--rows", "512", "--cols", "512", "--dtype", "bf16"]
ASKED = {  # options, what the kernel does, what the report says
    "boolean": ("--mask boolean", Scores(mask="bool"), "boolean mask"),
    "added": ("--mask added --scale", Scores(mask="bfloat16", scale="number"), "scale and added bfloat16 mask"),
    "causal": ("--mask causal --scale rows", Scores(causal="upper_left", scale="rows"), "scale of each row and causal"),
    "both masks": (
        "--mask lower_right boolean",
        Scores(causal="lower_right", mask="bool"),
        "boolean mask and causal lower_right",
    ),
    "temperature": ("--temperature", Scores(temperature="number"), "temperature"),
    "temperatures": ("--temperature rows", Scores(temperature="rows"), "temperature of each row"),
    "softcap, sink": ("--softcap 30 --sink", Scores(cap=30.0, sink=True), "softcap 30.0 and sink"),
}


@pytest.fixture
def launched(monkeypatch):
    """Problems that are planned, in their order."""
    from portable_probe import cases

    problems, plan_problem = [], cases.plan_problem

    def noting(problem, device):
        problems.append(problem)
        return plan_problem(problem, device)

    monkeypatch.setattr(cases, "plan_problem", noting)
    return problems


@pytest.mark.parametrize("name", ASKED)
def test_each_option_is_planned_and_told(run, launched, tmp_path, name):
    options, scores, words = ASKED[name]
    dumped = "--dump", "ttir", "--out", tmp_path, "--json"
    code, out, err = run("plan", "--on", H200, *SHAPE, *options.split(), *dumped)
    assert (code, err) == (0, "")
    report = json.loads(out)
    taken = replace(scores, divides=False) if scores.factor == "number" else scores  # a number is given as its inverse
    assert [(each.scores, each.n_rows, each.n_cols, each.y_dtype) for each in launched] == [(taken, 512, 512, "bfloat16")]
    assert Scores(**report["problem"]["scores"]) == scores
    assert report["plan"]["resources"]["registers_per_thread"]
    assert report["time"]["expected_us"] > report["time"]["floor_us"]
    assert "tt.func public @scored_kernel" in (tmp_path / "scored_kernel.ttir").read_text()
    code, out, _ = run("plan", "--on", H200, *SHAPE, *options.split())
    assert code == 0
    assert f"512 x 512 bfloat16 with {words} on nvidia/h200;" in " ".join(out.split())


def test_scores_are_asked_again(run, launched, tmp_path):
    file = tmp_path / "saved.json"
    assert run("plan", "--on", H200, *SHAPE, "--mask", "causal", "--save", file)[0] == 0
    code, out, _ = run("diff", file)
    assert (code, out) == (0, "0 changes in 1 case, 0 for the worse\n")
    assert [each.scores.causal for each in launched] == ["upper_left"] * 2
    file.write_text(file.read_text().replace('"causal": "upper_left"', '"causal": "sideways"'))
    code, _, err = run("diff", file)
    assert (code, "holds no reports of this probe" in err) == (1, True)


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["plain", *ASKED])
@pytest.mark.parametrize("dtype", ["float32", "bf16"])
@pytest.mark.parametrize("direction", [[], ["--backward"]], ids=["forward", "backward"])
def test_each_option_is_verified_in_the_virtual_device(run, name, dtype, direction):
    options = ASKED[name][0].split() if name != "plain" else []
    if direction and "--softcap" in options:
        pytest.skip("a gradient of a cap is none of one launch")
    shape = ["--rows", 12, "--cols", 130 if options else 131, "--dtype", dtype]
    code, out, err = run("verify", "--on", MI300X, *shape, *options, *direction)
    assert (code, err) == (0, "")
    assert out.startswith("verify    PASS: max error ")
    assert "ran gfx942 code on a CPU emulator: 12 rows, " in out


def test_a_gradient_is_planned_told_and_asked_again(run, tmp_path):
    file, words = tmp_path / "saved.json", ("--rows", "512", "--cols", "781", "--dtype", "bf16", "--backward")
    code, out, _ = run("plan", "--on", H200, *words, "--save", file, "--json")
    found = json.loads(out)
    expected = plan(512, 781, "bfloat16", H200, backward=True)
    assert (code, found["plan"]["tiling"]["num_warps"]) == (0, expected.num_warps)
    assert found["plan"]["resources"]["registers_per_thread"] == expected.resources.registers_per_thread
    assert found["time"]["bytes"] == 3 * 512 * 781 * 2
    assert "512 x 781 bfloat16 backward on nvidia/h200" in run("plan", "--on", H200, *words)[1]
    assert run("diff", file)[:2] == (0, "0 changes in 1 case, 0 for the worse\n")
