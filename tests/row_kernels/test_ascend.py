"""Row kernels by Ascend's own compiler: what it says, of which a plan is made; and what is said where it is not there."""

import os
import re
from functools import partial
from pathlib import Path

import pytest
import triton
from ascend_kernels import A2, A5, SAID, arguments_of, log_softmax, ordered, relu

from portable_probe import program
from portable_probe.testing import assert_occupancy
from portable_softmax import CompileError, fits, inspect_kernel, launcher, plan
from portable_softmax.devices.backends import npu_compiler

COMPILER = npu_compiler.missing()
compiled = pytest.mark.skipif(COMPILER is not None, reason=str(COMPILER))
SIZES = {"y": "f32[16384,16384]", "x": "f32[16384,16384]", "n": 16384}


@compiled
@pytest.mark.parametrize(
    ("kernel", "kind", "block", "device", "options", "said"), SAID, ids=lambda value: getattr(value, "__name__", None)
)
def test_what_the_compiler_says(kernel, kind, block, device, options, said):
    ask = partial(inspect_kernel, kernel, arguments_of(kind), {"BLOCK": block}, device=device, **options)
    if isinstance(said, str):
        with pytest.raises(CompileError, match=said):
            ask()
        return
    used, occupancy, launch = ask()
    assert used.shared_memory_bytes == said
    assert used.multiprocessors == (2 if kernel.__name__ == "square" else 1)
    buffered = "single-buffered" if block == 16384 or device == A5 else "double-buffered"
    assert used.compiler == f"bishengir-compile 1.2.0, {buffered}; the last step needs CANN"
    assert (occupancy.limits, launch.options) == ({"programs": 1}, options)


@compiled
def test_a_compilation_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setenv(npu_compiler.FOLDER, os.path.relpath(os.environ[npu_compiler.FOLDER]))
    monkeypatch.setattr(npu_compiler, "SECONDS", 1)
    with pytest.raises(CompileError, match=r"1\.2\.0 failed: it had not ended after 1 s; use smaller blocks"):
        inspect_kernel(ordered, arguments_of("f32"), {"BLOCK": 512}, device=A2)


@compiled
def test_launches_and_configurations_follow_its_verdict(capsys):
    of_rows = launcher(log_softmax, cols="n", block="BLOCK", grid=(8,))
    assert of_rows.plan(**SIZES, device=A2).meta["BLOCK"] == 16384
    configs = [triton.Config({"BLOCK": block}) for block in (8192, 16384)]
    assert fits(configs, arguments_of("f32"), kernel=relu, device=A2) == configs[:1]
    with pytest.raises(AssertionError, match=r"does not compile: bishengir-compile 1\.2\.0: ub overflow"):
        assert_occupancy(relu, A2, signature=arguments_of("f32"), constexprs={"BLOCK": 16384})
    words = f"kernel tests/support/ascend_kernels.py:relu --on {A2} {A5} --args y=*fp32:16 x=*fp32:16 n=i32 BLOCK=16384"
    assert program.main(words.split()) == 1
    assert "not compiled" in (out := capsys.readouterr().out)
    assert "ub overflow" in out


def folder_with(path, **releases):
    """Makes a folder of wheels of these releases without files."""
    for name, release in releases.items():
        about = path / f"{name}-{release}.dist-info" / "METADATA"
        about.parent.mkdir()
        about.write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {release}\n")
    return path


@pytest.mark.parametrize(
    ("releases", "why"),
    [
        (None, "PORTABLE_SOFTMAX_ASCEND is not set; "),
        ({}, r"has triton-ascend \(none\), ascendnpu-ir \(none\), no exec"),
        ({"triton_ascend": "3.2.0", "ascendnpu_ir": "1.3.0"}, "has ascendnpu-ir 1.3.0, no executable "),
        ({"triton_ascend": "3.2.0", "ascendnpu_ir": "1.2.0"}, "no executable ascendnpuir/bin/bishengir-compile-a5; "),
    ],
    ids=["not set", "empty", "another release", "no files"],
)
def test_without_the_compiler_a_plan_is_an_estimate(monkeypatch, capsys, tmp_path, releases, why):
    monkeypatch.setenv("PORTABLE_SOFTMAX_ASCEND", "" if releases is None else str(folder_with(tmp_path, **releases)))
    monkeypatch.chdir(Path(__file__).parents[2])
    assert str(plan(64, 8192, "float32", A2)).startswith("an estimate, not compiled: in registers 1 x 8192, ")
    kernel = "kernel tests/support/ascend_kernels.py:relu --args y=*fp32:16 x=*fp32:16 n=i32 BLOCK=64"
    for words, code in (("plan", 0), ("plan --at-least 1", 4), ("plan --at-least cuda=1 npu=1", 4), (kernel, 4)):
        assert program.main([*words.split(), "--on", A2]) == code
        printed = " ".join("".join(capsys.readouterr()).split())
        assert re.search(why + ".*pip install --target DIR --no-deps", printed), printed
        assert ("on ascend/910b3; an estimate, not compiled" in printed) == words.startswith("plan"), printed
    saved = str(tmp_path / "saved.json")
    assert program.main(["plan", "--on", A2, "--save", saved]) == 0
    assert program.main(["diff", saved, saved]) == 4
