"""The README, docs/ and examples/: links have targets, and examples and commands run and print what the pages say."""

import contextlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import consoles
import pytest
import yaml
from api_page import PAGE, page

import portable_softmax
from portable_probe.program import COMMANDS
from portable_softmax.devices.detect import interpreting

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [
    path
    for pattern in ("*.md", "docs/**/*.md", ".github/*.md", "*/README.md", "scripts/results/*.md")
    for path in ROOT.glob(pattern)
]
PRESENT = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "device_profiles" / "README.md",
    ROOT / "examples" / "README.md",
]
LINES = 1300  # of docs/, without the API page
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`(?!\])", re.MULTILINE | re.DOTALL)  # where `kernel[grid](x)` is no link
LINK = re.compile(r"\]\((?!https?://)([^)#]*)(#[^)]*)?\)")


@pytest.mark.parametrize("page", sorted(set(PAGES)), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target, anchor in LINK.findall(CODE.sub("", page.read_text())):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor[1:] in [heading.lower().replace(" ", "-") for heading in headings], target + anchor


def test_the_readme_is_a_page():
    lines = README.splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 120] == []
    assert "\n## Install\n" in README  # errors of the package name it


def test_pages_are_short_enough_to_read():
    lines = {page.name: len(page.read_text().splitlines()) for page in PRESENT if ROOT / "docs" in page.parents}
    assert sum(lines.values()) - lines["api.md"] <= LINES, lines


@pytest.mark.parametrize("page", PRESENT, ids=lambda path: path.name)
def test_commands_of_a_page_are_there(page):
    """The files, the subcommands and the extras; examples and help are run by other tests."""
    text = page.read_text()
    missing = [
        path for path in re.findall(r"\b(?:python|bash) ((?:scripts|examples)/[\w./]+)", text) if not (ROOT / path).exists()
    ]
    commands = set(re.findall(r"(?:`|\$ |^)portable-softmax ([a-z]+)", text, re.MULTILINE))
    unknown = sorted(commands - COMMANDS.keys())
    extras = set(re.findall(r"pip install (?:-e )?'?\.\[(\w+)\]", text))
    lacking = [extra for extra in extras if f"\n{extra} = [" not in (ROOT / "pyproject.toml").read_text()]
    assert (missing, unknown, lacking) == ([], [], [])


@pytest.mark.parametrize(
    "page", [page for page in consoles.PAGES if consoles.BLOCK.search(page.read_text())], ids=lambda page: page.name
)
def test_commands_print_what_the_documents_say(page):
    """If not: python scripts/consoles.py."""
    import triton

    printed = consoles.filled(page.read_text())  # each command succeeds
    if triton.__version__ == "3.8.0":  # others compile to other numbers of registers
        assert printed == page.read_text()


def test_the_api_page_is_that_of_the_docstrings():
    """If not: python scripts/api_page.py."""
    assert PAGE.read_text() == page()
    assert [name for name in portable_softmax.__all__ if f"### {name}\n" not in PAGE.read_text()] == []


EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py") if not path.name.startswith("test_"))
WORKFLOW = yaml.safe_load((EXAMPLES / "ci_three_vendors.yml").read_text())
STEPS = {job: WORKFLOW["jobs"][job]["steps"][-1]["run"] for job in ("compiled", "interpreted")}


def run(*command, **environment):
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), **environment}
    variables = {name: value for name, value in variables.items() if value is not None}
    ran = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def printed_by(file):
    """Returns what a file prints that is run in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(file), run_name="__main__")
    return printed.getvalue()


@pytest.mark.parametrize("name", ["my_kernel.py", "softmax_and_plan.py", pytest.param("sampler.py", marks=pytest.mark.kernel)])
def test_a_quick_example_runs(name):
    assert printed_by(EXAMPLES / name).strip()


@pytest.mark.kernel
def test_the_readmes_example_prints_what_it_says(where, tmp_path):
    code, printed = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL).groups()
    (tmp_path / "example.py").write_text(code)
    found = printed_by(tmp_path / "example.py")
    assert found == printed if where.type == "cpu" else found


@pytest.mark.parametrize("page", ["log_probs.md", pytest.param("row_kernels.md", marks=pytest.mark.slow)])
def test_the_first_example_of_a_page_runs(page, tmp_path):
    file = tmp_path / "example.py"  # Triton reads the source of kernels
    file.write_text(re.search(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)[1])
    printed_by(file)


@pytest.mark.slow
@pytest.mark.parametrize("interpret", [None, "1"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_runs(name, interpret):
    assert run(sys.executable, f"examples/{name}", TRITON_INTERPRET=interpret).strip()


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
    assert all(find_profiles(on.split(",")) for on in ons)
    legs = jobs["hardware"]["strategy"]["matrix"]["include"]
    assert [leg["device"] for leg in legs] == [leg["DEVICE"] for leg in gitlab["hardware"]["parallel"]["matrix"]]
    assert {leg["device"] for leg in legs} <= BACKENDS.keys()
    for job in ("compiled", "interpreted"):
        assert STEPS[job].replace("${{ matrix.devices }}", "$ON") == gitlab[job]["script"][-1]
