"""A file for --baseline: it is taken only if there is something to compare, and loads only the kernel that is named."""

import json

import pytest

from portable_softmax import NoDeviceError
from portable_softmax.probe import __main__ as probe
from portable_softmax.probe import cases
from portable_softmax.probe.regression import load
from portable_softmax.probe.schema import SCHEMA_VERSION

SOFTMAX = ["--profile", "nvidia/h200", "--rows", "64", "--cols", "781"]
ANOTHER = f'{{"schema_version": {SCHEMA_VERSION}, "profiles": []}}'
OLDER = f'"schema_version": {SCHEMA_VERSION}', '"schema_version": 1'
TYPES = ["--signature", "x_ptr=*fp32:16", "--constexpr", "BLOCK=64"]
KERNEL = """
import pathlib
import triton
import triton.language as tl

@triton.jit
def clear(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)

pathlib.Path(__file__).with_suffix(".ran").touch()
"""


def printed(capsys, *arguments):
    code = probe.main([str(word) for word in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    file = tmp_path_factory.mktemp("saved") / "run.json"
    assert probe.main([*SOFTMAX, "--save", str(file)]) == 0
    return file


def without(*names):
    """Changes a saved run: its report lacks these keys."""
    return lambda text: json.dumps([{name: value for name, value in json.loads(text)[0].items() if name not in names}])


@pytest.mark.parametrize("required", [[], ["--require", "hip"]], ids=["any device", "required"])
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda text: "", "holds no reports of this probe: Input data was truncated"),
        (lambda text: "[]", "holds no reports of this probe: its list is empty"),
        (lambda text: text[: len(text) // 2], "holds no reports of this probe: Input data was truncated"),
        (
            lambda text: f'{{"schema_version": {SCHEMA_VERSION}, "profiles": []}}',
            "holds no reports of this probe: Object missing required field",
        ),
        (without("problem"), "without a softmax or kernel, or without its numbers"),
        (without("plan"), "without a softmax or kernel, or without its numbers"),
    ],
    ids=["empty file", "empty list", "truncated", "another answer", "no case", "no numbers"],
)
def test_nothing_to_compare_is_an_error(saved, tmp_path, capsys, change, complaint, required):
    file = tmp_path / "baseline.json"
    file.write_text(change(saved.read_text()))
    code, out, err = printed(capsys, *required, "--baseline", file)
    assert (code, out) == (1, "")
    assert f"{file} holds" in err
    assert complaint in err


def test_what_is_wrong_with_a_baseline(tmp_path, capsys, saved):
    (tmp_path / "other.json").write_text("[1]")
    reports = json.loads(saved.read_text())
    reports[0]["plan"]["resources"]["shared_memory_bytes"] = -1
    (tmp_path / "impossible.json").write_text(json.dumps(reports))
    (tmp_path / "old.json").write_text(saved.read_text().replace(*OLDER))
    (tmp_path / "less.json").write_text(without("facts")(saved.read_text()).replace(*OLDER))
    code, _, err = printed(capsys, "--baseline", tmp_path / "none.json")
    assert (code, "No such file" in err) == (2, True)
    for file, complaint in (
        ("other.json", "holds no reports of this probe: Expected `object`, got `int`"),
        ("impossible.json", "shared_memory_bytes must be at least 0, not -1"),
        ("old.json", f"is of schema version 1, and this is {SCHEMA_VERSION}"),
        ("less.json", f"is of schema version 1, and this is {SCHEMA_VERSION}"),
    ):
        code, _, err = printed(capsys, "--baseline", tmp_path / file)
        assert code == 1
        assert complaint in err


def test_the_required_device_is_another(saved, capsys):
    code, out, err = printed(capsys, "--require", "hip", "--baseline", saved)
    assert (code, out, err) == (1, "", "DeviceError: a hip device was required; this is cuda\n")


@pytest.fixture
def of_kernel(tmp_path, capsys):
    """Returns a saved run of a kernel, and the kernel's name; the file that tells that it ran is gone again."""
    (tmp_path / "mine.py").write_text(KERNEL)
    name, file = f"{tmp_path}/mine.py:clear", tmp_path / "kernel.json"
    assert printed(capsys, "--profile", "nvidia/h200", "--kernel", name, *TYPES, "--save", file)[0] == 0
    (tmp_path / "mine.ran").unlink()
    return file, name


def test_a_kernel_that_is_not_named_does_not_run(of_kernel, tmp_path, capsys):
    file, name = of_kernel
    for named in ([], ["--kernel", f"{tmp_path}/other.py:clear"], ["--kernel", f"{tmp_path}/../{tmp_path.name}/mine.py:clear"]):
        code, out, err = printed(capsys, "--baseline", file, *named)
        assert (code, out) == (1, "")
        assert f"If you trust it: `portable-softmax diff {file} --kernel {name}`\n" in err
        assert not (tmp_path / "mine.ran").exists()
    code, out, _ = printed(capsys, "--baseline", file, "--kernel", name)
    assert (code, out) == (0, "0 changes in 1 case, 0 of them regressions\n")
    assert (tmp_path / "mine.ran").exists()


@pytest.mark.parametrize("after", ["", ",input_rank=4,", ":16"])
def test_a_type_runs_nothing(of_kernel, tmp_path, capsys, after):
    """Triton evaluates the layout of a descriptor as Python."""
    file, name = of_kernel
    reports = json.loads(file.read_text())
    evil = f"__import__('pathlib').Path({str(tmp_path / 'evil')!r}).touch()"
    reports[0]["kernel"]["arguments"]["x_ptr"] = f"tensordesc<fp16[16, 16],{evil}>{after}"
    file.write_text(json.dumps(reports))
    code, out, err = printed(capsys, "--baseline", file, "--kernel", name)
    assert (code, out) == (1, "")
    assert "an argument is a tensor as f16[4096,4096], a value as 4096, or a type as *fp16" in err
    assert not (tmp_path / "evil").exists()


def test_what_is_to_be_typed_is_one_word_of_a_shell(of_kernel, capsys):
    file, name = of_kernel
    file.write_text(file.read_text().replace(name, "mine.py:clear; date"))
    assert printed(capsys, "--baseline", file)[2].endswith(f"diff {file} --kernel 'mine.py:clear; date'`\n")


def test_a_kernel_of_which_there_is_no_report(saved, of_kernel, tmp_path, capsys):
    code, _, err = printed(capsys, "--baseline", saved, "--kernel", of_kernel[1])
    assert (code, "holds reports of the softmax alone; leave out --kernel" in err) == (1, True)
    several, name = tmp_path / "several.json", of_kernel[1]
    (report,) = json.loads(of_kernel[0].read_text())
    other = report | {"kernel": report["kernel"] | {"name": "z.py:other"}}
    several.write_text(json.dumps([report, other, *json.loads(saved.read_text())]))
    code, _, err = printed(capsys, "--baseline", several, "--kernel", name)
    assert (code, f"holds reports of {name}, z.py:other, and --kernel names one" in err) == (1, True)
    assert not (tmp_path / "mine.ran").exists()


def test_a_kernel_may_stand_beside_softmaxes(saved, of_kernel, tmp_path, capsys):
    both = tmp_path / "both.json"
    both.write_text(json.dumps([*json.loads(saved.read_text()), *json.loads(of_kernel[0].read_text())]))
    code, out, _ = printed(capsys, "--baseline", both, "--kernel", of_kernel[1], "--save", tmp_path / "again.json")
    assert (code, out) == (0, "0 changes in 2 cases, 0 of them regressions\n")
    assert load(tmp_path / "again.json") == load(both)


def test_the_device_of_a_baseline_is_gone(saved, tmp_path, capsys, monkeypatch):
    def nothing(index):
        raise NoDeviceError("nothing there")

    (report,) = json.loads(saved.read_text())
    live = tmp_path / "live.json"
    live.write_text(json.dumps(report | {"device": report["device"] | {"here": True, "index": 0}}))
    monkeypatch.setattr(cases, "current_device", nothing)
    code, out, err = printed(capsys, "--baseline", live, "--markdown")
    assert (code, out) == (1, "")
    way_out = "ask where it is, or keep reports of one that need not be here: `portable-softmax plan NAME --save FILE`"
    words = f"{live} holds reports of a device that was here; {way_out}. No accelerator: nothing there"
    assert err == f"DeviceError: {words}\n"
