"""The page of several runs: what it tells, that it needs nothing else, and what turns its exit code."""

import json
import re
import shutil
import subprocess

import pytest
from benchmark.results import COLUMNS, Result, write

from portable_probe import program


def of(device, profile, here="yes"):
    """Properties of a test's device, as the plugin of `testing` writes them."""
    told = {"device": device, "backend": "hip" if profile.startswith("amd") else "cuda", "profile": profile, "here": here}
    return "".join(f'<property name="{name}" value="{value}"/>' for name, value in told.items())


MI300X = of("AMD Instinct MI300X", "amd/mi300x")
JUNIT = f"""<?xml version="1.0"?><testsuites><testsuite name="pytest">
<testcase classname="tests.kernels.test_accuracy" name="test_one"><properties>{MI300X}</properties></testcase>
<testcase classname="tests.virtual.test_softmax" name="test_two">{{outcome}}<properties>{MI300X}</properties></testcase>
<testcase classname="tests.runtime.test_static_quality" name="test_three"><properties>{MI300X}</properties></testcase>
</testsuite></testsuites>"""
BROKEN = f"{','.join(COLUMNS)}\nA,,,,,,,ours,,2x3,contiguous,1,float32,forward,,nan,,,\n"
BYTES = 2 * 4096 * 256 * 4


def rates(path, ours):
    """A benchmark with this rate of ours, in GB/s."""
    cell = {"device": "H200", "sweep": "tutorial", "shape": "4096x256", "dim": 1, "dtype": "float32", "direction": "forward"}
    times = {"copy": BYTES / 1236.5e3, "ours": BYTES / ours / 1e3}
    disturbed = Result(provider="ours", median_us=1000.0, spread=0.9, **cell)
    write(path, [*(Result(provider=name, median_us=us, **cell) for name, us in times.items()), disturbed])


@pytest.fixture
def runs(tmp_path):
    """Two runs of two devices, the same but for what a test changes."""
    for name in ("monday", "tuesday"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "benchmark.json").write_text('{"device": "of scripts/benchmark"}')
        (folder / "tests.xml").write_text(JUNIT.format(outcome=""))
        (folder / "other.xml").write_text("<launcher/>")
        (folder / "venv").mkdir()
        (folder / "venv" / "pyvenv.cfg").touch()
        (folder / "venv" / "rates.csv").write_text("a,b\n")
        rates(folder / "speed_h200.csv", 1200)
    plans = tmp_path / "monday" / "plans.json"
    shapes = ["--shapes", "64x781", "64x4096", "--dtype", "float32", "bfloat16"]
    assert program.main(["plan", "--on", "nvidia/h200", "amd/mi300x", *shapes, "--save", str(plans)]) == 0
    shutil.copy(plans, tmp_path / "tuesday")
    return tmp_path / "monday", tmp_path / "tuesday"


@pytest.fixture
def report(run):
    """Returns the exit code, the summary or the complaint, and the cells of its tables."""

    def told(*words):
        code, out, err = run("report", *words)
        return code, out or err, [re.split(r"\s*\|\s*", line.strip("| ")) for line in out.splitlines() if line.startswith("|")]

    return told


def test_the_summary_has_everything_and_leaves_other_files_alone(runs, report):
    code, out, cells = report(*runs)
    assert (code, "## What changed\n\nNothing." in out, "other" in out, "cannot be read" in out) == (0, True, False, False)
    assert "| 64 x 781 bfloat16" in out
    assert re.search(r"\d+ per SM \(", out)
    assert ["monday", "tests", "AMD Instinct MI300X", "3", "0", "0"] in cells


def test_what_was_verified_and_who_is_told(run, report, tmp_path):
    assert run("verify", "--on", "amd/mi300x", "--rows", 3, "--cols", 200, "--save", tmp_path / "run.json")[0] == 0
    out = report(tmp_path, "--title", "Mine", "--commit", "0123456789abcdef")[1]
    assert (out[:7], "warps); right" in out, "commit 0123456789ab, page of 20" in out) == ("# Mine\n", True, True)
    assert run("plan", "--on", "nvidia/h200", "amd/mi300x", "--cols", 64, "--save", tmp_path / "run.json")[0] == 0
    assert re.search(r"\n\| +\| 4096 x 64 float32 +\|\n", report(tmp_path)[1]), "many devices are rows"


def test_each_device_has_the_tests_that_asked_for_it_and_no_name_breaks_a_table(report, tmp_path):
    devices, name = (MI300X, of("nvidia/h200", "nvidia/h200", "no"), ""), "test_it[a|b&#10;&lt;img src=x&gt;](c)"
    cases = "".join(
        f'<testcase classname="k|k" name="{name}"><failure/><properties>{told}</properties></testcase>' for told in devices
    )
    (tmp_path / "t.xml").write_text(f'<testsuite timestamp="2026-11-25T10:00:00" hostname="vm">{cases}</testsuite>')
    code, out, cells = report(tmp_path, "--title", "A|B\n# C")
    assert [row[2:] for row in cells if row[1] == "t"] == [
        [device, "0", "1", "0"] for device in ("AMD Instinct MI300X", "nvidia/h200", "")
    ]
    assert (code, out.splitlines()[0], out.count("vm")) == (1, r"# A\|B # C", 1)
    assert r"3 tests fail: k\|k::test_it[a\|b \<img src=x>\](c), " in out
    assert "## What changed\n\nNothing." in out, "a test that fails at first is no change"


NUM_PROGRAMS, FIT = ("num_programs",), ("occupancy", "programs_per_multiprocessor")


@pytest.mark.parametrize(
    ("changes", "row", "option", "other_way"),
    [
        ({NUM_PROGRAMS: 1}, r"\| plan +\| num_programs ", ["plan"], 3),
        ({FIT: -1}, r"\| occupancy +\| programs_per_multiprocessor ", ["occupancy=1"], 0),
        ({NUM_PROGRAMS: 1, FIT: -1}, r"\| plan ", ["plan", "--tolerate", "occupancy=1"], 3),
    ],
)
def test_a_worse_plan_turns_the_exit_code(runs, report, changes, row, option, other_way):
    file = runs[1] / "plans.json"
    reports = json.loads(file.read_text())
    for path, by in changes.items():
        place = reports[0]["plan"][path[0]] if path[1:] else reports[0]["plan"]
        place[path[-1]] += by
    file.write_text(json.dumps(reports))
    code, out, _ = report(*runs)
    assert (code, re.search(row, out) is not None) == (3, True)
    assert report(*runs, "--tolerate", *option)[0] == 0
    assert report(*runs[::-1])[0] == other_way


@pytest.mark.parametrize(("ours", "code", "verdict"), [(1080, 3, "worse"), (1150, 0, None), (1400, 0, "better")])
def test_a_slower_benchmark_turns_the_exit_code(runs, report, ours, code, verdict):
    rates(runs[1] / "speed_h200.csv", ours)
    found, out, _ = report(*runs)
    assert (found, f"| {verdict} " in out) == (code, verdict is not None)
    assert report(*runs, "--slower", "0.2")[0] == 0


def test_tests_that_fail_turn_the_exit_code(runs, report):
    (runs[1] / "tests.xml").write_text(JUNIT.format(outcome="<failure/>"))
    code, out, _ = report(*runs)
    assert (code, "tests.virtual.test_softmax::test_two" in out, "| worse " in out) == (3, True, True)
    (runs[0] / "tests.xml").write_text(JUNIT.format(outcome="<failure/>").replace("test_two", "test_four"))
    code, out, _ = report(*runs)
    assert (code, "| changed " in out) == (3, True), "as many, and others"


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("old.json", '{"schema_version": 1}', "old.json cannot be read"),
        ("deep.json", "[" * 200000, "deep.json cannot be read"),
        ("broken.xml", "<testsuites>", "broken.xml cannot be read"),
        ("wide.csv", f"{','.join(COLUMNS)}\n{'A' * 200000}\n", "wide.csv cannot be read"),
        ("rates.csv", "a,b\n1,2\n", "rates.csv cannot be read"),
        ("rates.csv", BROKEN, "line 2: nan microseconds"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_and_leaves_the_others(runs, report, tmp_path, name, text, complaint):
    (runs[1] / name).write_text(text)
    (tmp_path / name).write_text(text)
    for code, words in ((0, runs), (1, [tmp_path / name])):
        found, out, _ = report(*words)
        assert (found, complaint in out) == (code, True)


def test_the_page_needs_nothing_else_and_no_name_ends_its_script(runs, report):
    pytest.importorskip("plotly")
    file = runs[0] / "plans.json"
    file.write_text(file.read_text().replace('"nvidia/h200"', '"<script>alert(1)</script>"'))
    page = runs[0] / "page.html"
    assert report(*runs, "--html", page)[0] == 0
    text = page.read_text()
    assert "alert(1)" in text
    assert "<script>alert(1)" not in text
    outside_of_plotly = re.sub(r"<script>.*?</script>", "", text, count=1, flags=re.DOTALL)
    assert not re.search(r"(src|href)\s*=|url\(|@import|https?://", outside_of_plotly)
    assert "prefers-color-scheme: dark" in text


def test_a_page_without_plotly(runs, report, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "plotly.offline", None)
    code, err, _ = report(*runs, "--html", runs[0] / "page.html")
    assert (code, "pip install jinja2 plotly" in err) == (1, True)


@pytest.mark.slow
def test_a_browser_draws_it(runs, report, tmp_path):
    """In a real one, which is no package of Python's: apt-get install chromium."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert browser, "no chromium and no google-chrome on PATH: apt-get install chromium"
    page = tmp_path / "page.html"
    assert report(*runs, "--html", page)[0] == 0
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", page.as_uri()]
    seen = subprocess.run([*command, "--dump-dom"], capture_output=True, text=True, check=True, timeout=100).stdout
    legends = re.findall(r'class="legendtext"[^>]*>([^<]*)', seen)
    assert {"nvidia/h200", "amd/mi300x", "copy", "ours"} <= set(legends)
    assert seen.count('class="js-plotly-plot') + seen.count(" js-plotly-plot") == 3, "occupancy of two types, and bandwidth"
    assert re.search(r"\d+ per SM \(\w+", seen)
    for scheme in ("light", "dark"):
        shot = tmp_path / f"{scheme}.png"
        setting = f"--blink-settings=preferredColorScheme={scheme == 'light':d}"
        options = [setting, "--window-size=1100,1500", f"--screenshot={shot}"]
        subprocess.run([*command[:-1], *options, command[-1]], check=True, capture_output=True, timeout=100)
        assert shot.read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "light.png").read_bytes() != (tmp_path / "dark.png").read_bytes()
