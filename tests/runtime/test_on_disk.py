"""Kernels that an earlier process has compiled are found again, and only the very same ones."""

import dataclasses
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch  # noqa: F401 - before Triton

from portable_softmax import CompileError, Device, plan
from portable_softmax.runtime import compiled as memory
from portable_softmax.runtime import compiler, on_disk
from portable_softmax.runtime.plans import plan_problem

pytestmark = pytest.mark.skipif(compiler.triton_version() < (3, 5), reason="older Tritons find kernels by themselves")
H200 = "nvidia/h200"
ONE = """
from portable_softmax import plan
from portable_softmax.runtime import compiler
compiled = []
inner = compiler.compile_for
compiler.compile_for = lambda *given, **named: compiled.append(given) or inner(*given, **named)
print(plan(64, 777, "float32", "nvidia/h200").tiling, len(compiled))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty directory for kernels."""
    monkeypatch.setenv(on_disk.VARIABLE, str(tmp_path / "kernels"))
    yield tmp_path / "kernels"
    forget()


@pytest.fixture
def compiled(monkeypatch):
    """Names of kernels that were compiled, and not found."""
    names, inner = [], compiler.compile_for
    monkeypatch.setattr(compiler, "compile_for", lambda *given: names.append(given[1].__name__) or inner(*given))
    return names


def forget():
    memory._compiled.clear()
    plan_problem.cache_clear()


def planned(device=H200, n_cols=777, backward=False):
    """A plan as another process makes it."""
    forget()
    return plan(64, n_cols, "float32", device, backward=backward)


def test_a_kernel_is_found_by_the_next_process(folder, compiled):
    first = planned()
    assert compiled == ["softmax_kernel"]
    assert planned() == first
    assert len(compiled) == len(list(folder.iterdir())) == 1


def test_a_kernel_that_is_found_is_the_one_that_was_compiled(folder, compiled):
    tiling = planned().tiling
    (of_first,) = memory._compiled.values()
    planned()
    (of_second,) = memory._compiled.values()
    assert of_second.kernel is not of_first.kernel
    assert of_second.kernel.kernel == of_first.kernel.kernel, "the binary"
    assert of_second.kernel.metadata == of_first.kernel.metadata
    assert of_second.kernel.metadata.num_warps == tiling.num_warps
    source, wanted = of_second.kernel.src, of_first.kernel.src
    assert (source.name, source.signature, source.fn) == (wanted.name, wanted.signature, wanted.fn), "Triton launches by it"


DEVICE = Device.from_profile(H200)
SPLITS = {  # what is another plan or device, or is changed
    "the direction": ({"backward": True}, None),
    "the tiling": ({"n_cols": 5000}, None),
    "the architecture": ({"device": dataclasses.replace(DEVICE, arch=100)}, None),
    "the form": ({}, (memory, "form_of", lambda inner: lambda *given: dataclasses.replace(inner(*given), polls=7))),
    "the compiler's options": (
        {},
        (DEVICE.vendor, "compile_options", lambda inner: lambda *given: inner(*given) | {"maxnreg": 128}),
    ),
    "the kernels' text": ({}, (on_disk, "_kernels_text", lambda inner: lambda: "another")),
    "Triton": ({}, (on_disk, "_tritons_files", lambda inner: lambda: {"version": "4.0"})),
    "a variable of Triton's": ({}, ("TRITON_DEFAULT_FP_FUSION", "1")),
}


@pytest.mark.parametrize(("asked", "change"), SPLITS.values(), ids=SPLITS)
def test_another_kernel_is_not_found(folder, compiled, monkeypatch, asked, change):
    planned()
    del compiled[:]
    if change and isinstance(change[0], str):
        monkeypatch.setenv(*change)
    elif change:
        owner, name, other = change
        monkeypatch.setattr(owner, name, other(getattr(owner, name)))
    planned(**asked)
    assert compiled


def test_the_texts_and_files_of_a_key_are_read_wherever_caches_are(folder, compiled, monkeypatch, tmp_path):
    planned()
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    planned()
    assert len(compiled) == 1
    assert len(on_disk._kernels_text()) == 64
    files = on_disk._tritons_files()
    assert files["version"].startswith(".".join(map(str, compiler.triton_version())))


def edited(change):
    """Changes the files that a record names: each is [path, size]."""

    def edit(text):
        record = json.loads(text)
        return json.dumps(record | {"files": {name: change(*file) for name, file in record["files"].items()}})

    return edit


BROKEN = "", "{", "[]", "{}", '{"hash": 1, "files": 2}', '{"hash": "a", "files": {}}', "\0\0\0"
DAMAGE = {  # what becomes of a record, and what is said
    **{f"{content!r:.12}": (lambda text, content=content: content, "is damaged") for content in BROKEN},
    "another size": (edited(lambda file, size: [file, size + 1]), "has another size"),
    "gone": (edited(lambda file, size: [f"{file}x", size]), ""),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_record_is_told_and_written_again(folder, compiled, caplog, damage, said):
    planned()
    (path,) = folder.iterdir()
    whole = path.read_text()
    path.write_text(damage(whole))
    planned()
    planned()
    assert len(compiled) == 2
    assert said in caplog.text
    assert path.read_text() == whole


def test_a_record_of_another_kernel_is_not_taken(folder, compiled, caplog):
    planned()
    (path,) = folder.iterdir()
    other = path.read_text()
    planned(n_cols=5000)
    (path,) = {*folder.iterdir()} - {path}
    path.write_text(other)
    planned(n_cols=5000)
    assert len(compiled) == 3
    assert f"{path} is damaged" in caplog.text
    assert "it is of another kernel" in caplog.text


def test_a_directory_that_cannot_be_written_is_told_once(compiled, caplog, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv(on_disk.VARIABLE, str(tmp_path / "file" / "kernels"))  # root may write in any directory, but in no file
    for _ in range(2):
        planned()
    assert len(compiled) == 2
    assert caplog.text.count("cannot be written") == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_write_that_fails_leaves_nothing_behind(folder, compiled, monkeypatch, caplog):
    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(on_disk.Path, "replace", full)
    planned()
    assert "No space left on device" in caplog.text
    assert not list(folder.iterdir())


def test_off_is_off(compiled, monkeypatch, tmp_path):
    monkeypatch.setenv(on_disk.VARIABLE, on_disk.OFF)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        planned()
    assert len(compiled) == 2
    assert not (tmp_path / "portable_softmax").exists()


def test_kernels_stand_in_tritons_cache_if_nothing_is_named(compiled, monkeypatch, tmp_path):
    monkeypatch.delenv(on_disk.VARIABLE)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    planned()
    assert len(list((tmp_path / "portable_softmax").iterdir())) == 1


def test_who_watches_compilations_sees_them(folder, compiled, monkeypatch):
    from triton import knobs

    planned()
    seen = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **told: seen.append(told["cache_hit"]))
    planned()
    assert len(compiled) == 2
    assert seen == [True]


def test_a_kernel_with_a_known_fault_is_refused_though_it_is_found(folder, compiled, monkeypatch):
    found = planned()
    device, (spec, *_) = Device.from_profile(H200), next(iter(memory._compiled))
    assert spec.tiling == found.tiling
    forget()
    monkeypatch.setattr(device.vendor, "known_fault", lambda compiled: "it is wrong")
    with pytest.raises(CompileError, match="it is wrong"):
        memory.compile_kernel(spec, device)
    assert len(compiled) == 1


def test_processes_at_once(folder, tmp_path):
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton")}

    def run(_):
        done = subprocess.run([sys.executable, "-c", ONE], env=environment, capture_output=True, text=True, check=True)
        assert "damaged" not in done.stderr
        return done.stdout.rsplit(maxsplit=1)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, range(2))
    assert first[0] == second[0]
    assert len([path for path in folder.iterdir() if path.suffix == ".json"]) == len(list(folder.iterdir())) == 1
    assert run(0) == [first[0], "0"], "the next process compiles nothing"
