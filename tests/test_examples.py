"""Examples run as they are, on a CPU and in Triton's interpreter; those of models and samplers agree with plain formulas."""

import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from sweep import mostly_slow

from portable_softmax.devices.detect import interpreting

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py") if not path.name.startswith("test_"))
WORKFLOW = yaml.safe_load((EXAMPLES / "ci_three_vendors.yml").read_text())
STEPS = {job: WORKFLOW["jobs"][job]["steps"][-1]["run"] for job in ("compiled", "interpreted")}
QUICK = {("my_kernel.py", None), ("softmax_and_plan.py", None), ("vocab_parallel.py", None), ("sampler.py", "1")}


def run(*command, **environment):
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), **environment}
    variables = {name: value for name, value in variables.items() if value is not None}
    ran = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def load(name):
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "interpret"),
    mostly_slow([(name, interpret) for name in SCRIPTS for interpret in (None, "1")], lambda *case: case in QUICK),
)
def test_an_example_runs(name, interpret):
    assert run(sys.executable, f"examples/{name}", TRITON_INTERPRET=interpret).strip()


def test_every_example_is_named():
    page = (EXAMPLES / "README.md").read_text()
    assert [path.name for path in EXAMPLES.iterdir() if f"({path.name})" not in page and path.name != "README.md"] in (
        [],
        ["__pycache__"],
    )


def test_the_notebook_prints_what_it_says(monkeypatch):
    """If not: jupyter nbconvert --to notebook --inplace --execute. Other releases of Triton compile to other registers."""
    import triton

    if interpreting():
        pytest.skip("the interpreter compiles nothing")
    monkeypatch.syspath_prepend(EXAMPLES)
    space = {}
    for cell in json.loads((EXAMPLES / "will_it_fit.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec("".join(cell["source"]), space)
            text = "".join(line for output in cell["outputs"] for line in output["text"])
            assert printed.getvalue() == text or (text and triton.__version__ != "3.8.0")


def test_the_pipelines_can_be_copied():
    """Both install this package and have the same matrix of devices; actions are pinned, and devices exist."""
    from portable_softmax.devices.backends import BACKENDS
    from portable_softmax.devices.names import find_profiles

    text = (EXAMPLES / "ci_three_vendors.yml").read_text()
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in re.findall(r"uses: (\S+)", text))
    for pipeline in (text, (EXAMPLES / "ci_three_vendors.gitlab-ci.yml").read_text()):
        installs = re.findall(r"pip install (.*)", pipeline)
        assert len(installs) == 3
        assert all("@ $PORTABLE_SOFTMAX" in install for install in installs)
    jobs, gitlab = WORKFLOW["jobs"], yaml.safe_load(pipeline)
    ons = jobs["compiled"]["strategy"]["matrix"]["devices"]
    assert ons == gitlab["compiled"]["parallel"]["matrix"][0]["ON"]
    assert all(find_profiles([on]) for on in ons)
    legs = jobs["hardware"]["strategy"]["matrix"]["include"]
    assert [leg["device"] for leg in legs] == [leg["DEVICE"] for leg in gitlab["hardware"]["parallel"]["matrix"]]
    assert {leg["device"] for leg in legs} <= BACKENDS.keys()
    for job in ("compiled", "interpreted"):
        assert STEPS[job].replace("${{ matrix.devices }}", "$ON") == gitlab[job]["script"][-1]


@pytest.mark.slow
@pytest.mark.parametrize("job", STEPS)
def test_the_pipelines_steps_without_a_device_run(job):
    matrix = WORKFLOW["jobs"][job].get("strategy", {}).get("matrix", {"devices": [""]})
    for on in matrix["devices"]:
        command = shlex.split(STEPS[job].replace("$TESTS", "examples/test_my_kernel.py").replace("${{ matrix.devices }}", on))
        assert "passed" in run(sys.executable, *command[1:], TRITON_INTERPRET=None)


@pytest.fixture(params=["torch", pytest.param("kernel", marks=pytest.mark.kernel)])
def place(request):
    return torch.device("cpu") if request.param == "torch" else request.getfixturevalue("where")


@pytest.mark.parametrize("padded", [False, True])
def test_attention_has_the_outputs_and_gradients_of_torchs(place, padded):
    example = load("attention")
    torch.manual_seed(0)
    module, results = example.Attention(size=32, heads=2).to(place), []
    with torch.no_grad():
        module.sinks.copy_(torch.tensor([1.0, -2.0]))
    below = torch.ones(5, 5, dtype=torch.bool).tril()
    mask = (below & (torch.arange(5) >= torch.tensor([0, 2]).view(2, 1, 1, 1))).to(place) if padded else None
    x = torch.randn(2, 5, 32).to(place)
    for function in (example.attention, example.eager):
        module.function = function
        y = module(x, mask)
        results.append((y.detach(), *torch.autograd.grad(y.square().sum(), list(module.parameters()))))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_sampler_draws_by_the_temperature_of_a_row(place):
    example = load("sampler")
    torch.manual_seed(0)
    count, logits = 4096, torch.tensor([2.0, 1.0, -1.0, 2.5])
    sampler = example.Sampler(3 * count, 4, place, torch.float32)
    for temperatures in ((0.0, 0.7, 3.0), (3.0, 0.0, 0.7)):
        rows = torch.tensor(temperatures).repeat_interleave(count).to(place)
        tokens = sampler(logits.to(place).expand(3 * count, 4), rows).cpu().view(3, count)
        for temperature, drawn in zip(temperatures, tokens, strict=True):
            share = drawn.bincount(minlength=4) / count
            expected = torch.softmax(logits / temperature, 0) if temperature else torch.tensor([0.0, 0, 0, 1])
            assert (share - expected).abs().max() <= 5 * 0.5 / count**0.5  # five standard deviations
            assert temperature or share[3] == 1


@pytest.mark.kernel
@pytest.mark.accelerator
@pytest.mark.backends("cuda", "hip")
def test_a_sampler_is_one_graph(where):
    sampler = load("sampler").Sampler(2, 300, where)
    assert sampler._graph is not None
    logits, cold = torch.randn(2, 300, device=where), torch.zeros(2, device=where)
    first = sampler(logits, cold)
    sampler(-logits, cold)
    assert torch.equal(first, logits.bfloat16().argmax(1)), "the next call overwrites no result"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_log_probs_of_trl_verl_and_vllm(place, dtype):
    """The functions agree with log-probabilities as trainers write them: gather, less logsumexp."""
    example = load("log_probs")
    torch.manual_seed(0)
    for shape in ((2, 5, 301), (301,)):
        x = (3 * torch.randn(shape)).to(place, dtype).requires_grad_()
        exact = x.double().log_softmax(-1)
        ids, several = (torch.randint(0, 301, (*shape[:-1], *more)).to(place) for more in ((), (4,)))
        log_probs = exact.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        close = {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(example.selective_log_softmax(x, ids), log_probs.float(), **close)
        torch.testing.assert_close(example.selective_log_softmax(x, several), exact.gather(-1, several).float(), **close)
        entropies = -(exact.exp() * exact).sum(-1)
        torch.testing.assert_close(example.entropy_from_logits(x), entropies.float(), **close)
        (dx,) = torch.autograd.grad(log_probs.sum() + entropies.sum(), x)
        ours = example.logprobs_from_logits(x, ids, inplace_backward=False).sum() + example.entropy_from_logits(x).sum()
        tolerances = {"rtol": 1e-2, "atol": 1e-4} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-6}
        torch.testing.assert_close(torch.autograd.grad(ours, x)[0], dx, **tolerances)
        alone = torch.autograd.grad(example.logprobs_from_logits(x, ids, inplace_backward=False).sum(), x)[0]
        assert torch.equal(torch.autograd.grad(example.logprobs_from_logits(x, ids).sum(), x)[0], alone)
        assert torch.equal(x, alone) is (interpreting() or not x.is_cpu), "a launch overwrites the logits"
    logits, sampled = torch.randn(6, 301).to(place, dtype), torch.arange(6).to(place) * 50
    ids, log_probs, ranks = example.compute_topk_logprobs(logits, 3, sampled)
    torch.testing.assert_close(log_probs, logits.double().log_softmax(-1).gather(-1, ids).float(), rtol=1e-5, atol=1e-5)
    assert torch.equal(ranks, (logits > logits.gather(-1, sampled.unsqueeze(-1))).sum(-1))
