"""A kernel of Triton, compiled for each architecture and executed, and the README's example."""

import functools
import re
from pathlib import Path

import numpy as np
import pytest

from amdgcn_cpu import ARCHITECTURES, OutOfBounds, Race, Stuck, Uninitialised, run

triton = pytest.importorskip("triton", "3.2")
import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

README = Path(__file__).parents[1] / "README.md"
BLOCK, PROGRAMS = 1024, 3


@triton.jit
def prefix(y, x, total, n, BLOCK: tl.constexpr):
    """Exponentials of partial sums, by warps that exchange theirs, and the number of all programs by an atomic addition."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.exp(-tl.cumsum(tl.load(x + at, mask=at < n, other=0.0), 0) / 16), mask=at < n)
    tl.atomic_add(total, tl.program_id(0))


@functools.cache
def compiled(arch):
    signature = {"y": "*fp32", "x": "*fp32", "total": "*i32", "n": "i32", "BLOCK": "constexpr"}
    try:
        target = GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32)
        return triton.compile(ASTSource(prefix, signature, {(4,): BLOCK}), target, {"num_warps": 4})
    except Exception as error:
        if arch in ("gfx942", "gfx1100"):
            raise
        pytest.skip(f"this Triton does not compile for {arch}: {error}")


def launch(arch, *arguments, edit=lambda text: text, **interleaving):
    kernel = compiled(arch)
    sizes = {"num_warps": kernel.metadata.num_warps, "shared_bytes": kernel.metadata.shared}
    return run(edit(kernel.asm["amdgcn"]), (PROGRAMS, 1, 1), list(arguments), **sizes, **interleaving)


def arrays(size=BLOCK * PROGRAMS - 100):
    """Returns (y, x, total, n): a result around which nothing may be written, and what else a launch takes."""
    y = np.zeros((3, size), np.float32)[1]
    x = np.random.default_rng(0).normal(size=size).astype(np.float32)
    return y, x, np.zeros(1, np.int32), size


@pytest.mark.parametrize("arch", [pytest.param(a, marks=[pytest.mark.slow] * (at % 2)) for at, a in enumerate(ARCHITECTURES)])
def test_partial_sums_of_several_warps_and_programs(arch):
    y, x, total, n = arrays()
    assert launch(arch, y, x, total, n) > 100
    sums = np.resize(np.pad(x, (0, 100)), (PROGRAMS, BLOCK)).cumsum(1, np.float64).reshape(-1)[:n]
    np.testing.assert_allclose(y, np.exp(-sums / 16), rtol=1e-4)
    assert not y.base[::2].any()
    assert total == sum(range(PROGRAMS))


@pytest.mark.parametrize(
    ("fault", "pattern", "replacement"),
    [
        ((Race, Uninitialised), "\ts_barrier\n", "\ts_nop 0\n"),
        (Stuck, "\ts_endpgm\n", ".Lever:\n\ts_branch .Lever\n\ts_endpgm\n"),
    ],
)
def test_what_is_wrong_is_seen(fault, pattern, replacement):
    def edit(text):
        assert re.search(pattern, text)
        return re.sub(pattern, replacement, text)

    with pytest.raises(fault, match=r"line \d+: |still run after"):
        launch("gfx942", *arrays(), edit=edit, most_steps=50_000)


def test_arguments_are_numbers_and_memory_of_this_machine():
    y, x, total, n = arrays()
    for arguments, error, words in (
        (([0.0] * n, x, total, n), TypeError, "an argument is a list; numbers, None, numpy arrays"),
        ((y,), ValueError, "the kernel has 6 arguments with those that Triton appends, not 1"),
        ((np.frombuffer(bytes(4 * n), np.float32), x, total, n), ValueError, "read-only"),
        ((y, None, total, n), OutOfBounds, r"line \d+: "),
        ((y, x[1:], total, n), OutOfBounds, r"line \d+: "),
    ):
        with pytest.raises(error, match=words):
            launch("gfx942", *arguments)


def test_the_readmes_example_prints_what_it_says(capsys, tmp_path, monkeypatch):
    code, printed = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", README.read_text(), re.DOTALL).groups()
    file = tmp_path / "example.py"  # Triton reads a kernel's source from its file
    file.write_text(code)
    exec(compile(code, str(file), "exec"), {"__name__": "example"})
    assert re.sub(r"\d+ instructions", "", capsys.readouterr().out) == re.sub(r"\d+ instructions", "", printed)
