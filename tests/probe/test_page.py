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
    write(path, [Result(provider=name, median_us=us, **cell) for name, us in times.items()])


@pytest.fixture
def runs(tmp_path):
    """Two runs of two devices, the same but for what a test changes."""
    for name in ("monday", "tuesday"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "benchmark.json").write_text('{"device": "of scripts/benchmark"}')
        (folder / "tests.xml").write_text(JUNIT.format(outcome=""))
        rates(folder / "speed_h200.csv", 1200)
    plans = tmp_path / "monday" / "plans.json"
    shapes = ["--shapes", "64x781", "64x4096", "--dtype", "float32", "bfloat16"]
    assert program.main(["plan", "--on", "nvidia/h200", "amd/mi300x", *shapes, "--save", str(plans)]) == 0
    shutil.copy(plans, tmp_path / "tuesday")
    return tmp_path / "monday", tmp_path / "tuesday"


def printed(capsys, *arguments):
    capsys.readouterr()
    code = program.main(["report", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_summary_has_everything(runs, capsys):
    code, out, _ = printed(capsys, *runs)
    assert code == 0
    cells = [re.split(r"\s*\|\s*", line.strip("| ")) for line in out.splitlines() if line.startswith("|")]
    assert "| 64 x 781 bfloat16" in out
    assert re.search(r"\d+ per SM \(", out)
    assert ["monday", "tests", "AMD Instinct MI300X", "3", "0", "0"] in cells
    assert "## What changed\n\nNothing." in out
    assert "cannot be read" not in out


def test_what_anybody_verified_in_the_virtual_device_counts(capsys, tmp_path):
    assert program.main(["verify", "--on", "amd/mi300x", "--rows", "3", "--cols", "200", "--save", f"{tmp_path}/run.json"]) == 0
    out = printed(capsys, tmp_path, "--title", "Mine", "--commit", "0123456789abcdef")[1]
    assert "warps); right" in out
    assert out.startswith("# Mine\n")
    assert "commit 0123456789ab, page of 20" in out


def test_a_test_that_fails_at_first_is_no_change(capsys, tmp_path):
    (tmp_path / "tests.xml").write_text(JUNIT.format(outcome="<failure/>"))
    code, out, _ = printed(capsys, tmp_path)
    assert (code, "## What changed\n\nNothing." in out, "1 tests fail: " in out) == (1, True, True)


def test_each_device_has_the_tests_that_asked_for_it(capsys, tmp_path):
    devices = MI300X, of("nvidia/h200", "nvidia/h200", "no"), ""
    cases = [
        f'<testcase classname="a" name="test_it[{at}]"><properties>{told}</properties></testcase>'
        for at, told in enumerate(devices)
    ]
    (tmp_path / "t.xml").write_text(f'<testsuite timestamp="2026-11-25T10:00:00" hostname="vm">{"".join(cases)}</testsuite>')
    out = printed(capsys, tmp_path)[1]
    cells = [re.split(r"\s*\|\s*", line.strip("| ")) for line in out.splitlines() if "|" in line]
    assert [row[2:] for row in cells if row[1] == "t"] == [
        [device, "1", "0", "0"] for device in ("AMD Instinct MI300X", "nvidia/h200", "")
    ]
    assert out.count("vm") == 1


def test_no_name_breaks_a_table(capsys, tmp_path):
    name = "test_it[a|b&#10;&lt;img src=x&gt;](c)"
    (tmp_path / "t.xml").write_text(f'<testsuite><testcase classname="k|k" name="{name}"><failure/></testcase></testsuite>')
    code, out, _ = printed(capsys, tmp_path, "--title", "A|B\n# C")
    assert (code, out.splitlines()[0]) == (1, r"# A\|B # C")
    assert r"1 tests fail: k\|k::test_it[a\|b \<img src=x>\](c)" in out.splitlines()


def test_other_files_below_are_left_alone(runs, capsys):
    (runs[1] / "other.xml").write_text("<launcher/>")
    (runs[1] / "other.json").write_text("null")
    (runs[1] / "venv").mkdir()
    (runs[1] / "venv" / "pyvenv.cfg").touch()
    (runs[1] / "venv" / "rates.csv").write_text("a,b\n")
    out = printed(capsys, *runs)[1]
    assert ("other" in out, "cannot be read" in out) == (False, False)


def test_many_devices_are_rows(capsys, tmp_path):
    assert (
        program.main(["plan", "--on", "nvidia/h200", "amd/mi300x", "--cols", "64", "--save", str(tmp_path / "plans.json")]) == 0
    )
    assert re.search(r"\n\| +\| 4096 x 64 float32 +\|\n", printed(capsys, tmp_path)[1])


@pytest.mark.parametrize(
    ("change", "row", "option"),
    [
        ("plan", r"\| plan +\| num_programs ", "plan"),
        ("occupancy", r"\| occupancy +\| programs_per_multiprocessor ", "occupancy=1"),
    ],
)
def test_a_worse_plan_turns_the_exit_code(runs, capsys, change, row, option):
    file = runs[1] / "plans.json"
    reports = json.loads(file.read_text())
    if change == "plan":
        reports[0]["plan"]["num_programs"] += 1
    else:
        reports[0]["plan"]["occupancy"]["programs_per_multiprocessor"] -= 1
    file.write_text(json.dumps(reports))
    code, out, _ = printed(capsys, *runs)
    assert code == 3
    assert re.search(row, out)
    assert printed(capsys, *runs, "--tolerate", option)[0] == 0
    assert printed(capsys, *runs[::-1])[0] == (3 if change == "plan" else 0)


@pytest.mark.parametrize(("ours", "code", "verdict"), [(1080, 3, "worse"), (1150, 0, None), (1400, 0, "better")])
def test_a_slower_benchmark_turns_the_exit_code(runs, capsys, ours, code, verdict):
    rates(runs[1] / "speed_h200.csv", ours)
    found, out, _ = printed(capsys, *runs)
    assert (found, f"| {verdict} " in out) == (code, verdict is not None)
    assert printed(capsys, *runs, "--slower", "0.2")[0] == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--slower", "nan"], "'nan' should be 0 or more"),
        (["--slower", "-0.1"], "'-0.1' should be 0 or more"),
        (["--tolerate", "plan", "--tolerate", "spills=1", "spills=2"], "argument --tolerate: spills stands more than once"),
    ],
)
def test_wrong_usage(runs, capsys, options, complaint):
    with pytest.raises(SystemExit) as stopped:
        printed(capsys, *runs, *options)
    assert (stopped.value.code, complaint in capsys.readouterr().err) == (2, True)


def test_tolerances_add_up(runs, capsys):
    file = runs[1] / "plans.json"
    reports = json.loads(file.read_text())
    reports[0]["plan"]["num_programs"] += 1
    reports[0]["plan"]["occupancy"]["programs_per_multiprocessor"] -= 1
    file.write_text(json.dumps(reports))
    assert printed(capsys, *runs, "--tolerate", "plan", "--tolerate", "occupancy=1")[0] == 0
    assert printed(capsys, *runs, "--tolerate", "occupancy=1")[0] == 3


def test_tests_that_fail_turn_the_exit_code(runs, capsys):
    (runs[1] / "tests.xml").write_text(JUNIT.format(outcome="<failure/>"))
    code, out, _ = printed(capsys, *runs)
    assert code == 3
    assert "tests.virtual.test_softmax::test_two" in out


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("old.json", '{"schema_version": 1}', "old.json cannot be read"),
        ("deep.json", "[" * 200000, "deep.json cannot be read"),
        ("broken.xml", "<testsuites>", "broken.xml cannot be read"),
        ("wide.csv", f"{','.join(COLUMNS)}\n{'A' * 200000}\n", "wide.csv cannot be read"),
        ("rates.csv", "a,b\n1,2\n", "rates.csv cannot be read"),
        (
            "rates.csv",
            BROKEN,
            "line 2: nan microseconds",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_told_and_leaves_the_others(runs, capsys, tmp_path, name, text, complaint):
    (runs[1] / name).write_text(text)
    code, out, _ = printed(capsys, *runs)
    assert (code, complaint in out) == (0, True)
    alone = tmp_path / name
    alone.write_text(text)
    code, _, err = printed(capsys, alone)
    assert (code, complaint in err) == (1, True)
    code, _, err = printed(capsys, tmp_path / "nowhere")
    assert (code, "there is no " in err) == (2, True)


def test_the_page_needs_nothing_else_and_no_name_ends_its_script(runs, capsys):
    pytest.importorskip("plotly")
    file = runs[0] / "plans.json"
    file.write_text(file.read_text().replace('"nvidia/h200"', '"<script>alert(1)</script>"'))
    page = runs[0] / "page.html"
    assert printed(capsys, *runs, "--html", page)[0] == 0
    text = page.read_text()
    assert "alert(1)" in text
    assert "<script>alert(1)" not in text
    outside_of_plotly = re.sub(r"<script>.*?</script>", "", text, count=1, flags=re.DOTALL)
    assert not re.search(r"(src|href)\s*=|url\(|@import|https?://", outside_of_plotly)
    assert "prefers-color-scheme: dark" in text


def test_a_page_without_plotly(runs, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "plotly.offline", None)
    code, _, err = printed(capsys, *runs, "--html", runs[0] / "page.html")
    assert code == 1
    assert "pip install jinja2 plotly" in err


@pytest.mark.slow
def test_a_browser_draws_it(runs, capsys, tmp_path):
    """In a real one, which is no package of Python's: apt-get install chromium."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert browser, "no chromium and no google-chrome on PATH: apt-get install chromium"
    page = tmp_path / "page.html"
    assert printed(capsys, *runs, "--html", page)[0] == 0
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
