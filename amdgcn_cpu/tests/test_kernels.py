"""Kernels of Triton, compiled for each architecture and executed: the README's example, reductions, atomics, products."""

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
def reductions(result, counter, x, n, BLOCK: tl.constexpr):
    """The sum of each program's block, its largest element and that one's place, and all sums by an atomic addition."""
    program, at = tl.program_id(0), tl.arange(0, BLOCK)
    block = tl.load(x + program * BLOCK + at, mask=program * BLOCK + at < n, other=0.0)
    tl.store(result + 3 * program, tl.sum(block, 0))
    tl.store(result + 3 * program + 1, tl.max(block, 0))
    tl.store(result + 3 * program + 2, tl.argmax(block, 0).to(tl.float32))
    tl.atomic_add(counter, tl.sum((block > 0).to(tl.int32), 0))


@triton.jit
def prefix(y, x, BLOCK: tl.constexpr):
    """Partial sums, of which exponentials are taken."""
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.exp(-tl.cumsum(tl.load(x + at), 0) / 16))


def compiled(kernel, arch, signature, constants, **options):
    target = GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32)
    signature = signature | dict.fromkeys(constants, "constexpr")
    try:
        return triton.compile(
            ASTSource(kernel, signature, {(list(signature).index(name),): value for name, value in constants.items()}),
            target,
            options,
        )
    except Exception as error:
        if arch in ("gfx942", "gfx1100"):
            raise
        pytest.skip(f"this Triton does not compile for {arch}: {error}")


def reduced(arch, edit=lambda text: text, **interleaving):
    signature = {"result": "*fp32", "counter": "*i32", "x": "*fp32", "n": "i32"}
    kernel = compiled(reductions, arch, signature, {"BLOCK": BLOCK}, num_warps=4)
    n = BLOCK * PROGRAMS - 100
    x, result, counter = (
        np.random.default_rng(0).normal(size=n).astype(np.float32),
        np.zeros((PROGRAMS, 3), np.float32),
        np.zeros(1, np.int32),
    )
    sizes = {"num_warps": kernel.metadata.num_warps, "shared_bytes": kernel.metadata.shared}
    steps = run(edit(kernel.asm["amdgcn"]), (PROGRAMS, 1, 1), [result, counter, x, n], **sizes, **interleaving)
    return x, result, counter, steps


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_reductions(arch):
    x, result, counter, steps = reduced(arch)
    assert steps > 100
    blocks = np.resize(x, BLOCK * PROGRAMS).reshape(PROGRAMS, BLOCK)
    blocks.reshape(-1)[len(x) :] = 0
    np.testing.assert_allclose(result[:, 0], blocks.sum(1, dtype=np.float64), rtol=1e-4, atol=1e-4)
    assert result[:, 1:].tolist() == [[block.max(), block.argmax()] for block in blocks]
    assert counter[0] == (x > 0).sum()


@pytest.mark.parametrize(
    ("fault", "pattern", "replacement"),
    [((Race, Uninitialised), "\ts_barrier\n", "\ts_nop 0\n"), (Stuck, "\ts_endpgm\n", "\ts_branch .Lfor_ever\n\ts_endpgm\n")],
)
def test_what_is_wrong_is_seen(fault, pattern, replacement):
    def edit(text):
        changed = re.sub(pattern, replacement, text).replace("\ts_branch .Lfor_ever", ".Lfor_ever:\n\ts_branch .Lfor_ever")
        assert changed != text
        return changed

    with pytest.raises(fault, match=r"line \d+: |still run after"):
        reduced("gfx942", edit, most_steps=50_000)


def test_arguments_are_numbers_and_memory_of_this_machine():
    def arguments(*values):
        reduced_text = compiled(prefix, "gfx942", {"y": "*fp32", "x": "*fp32"}, {"BLOCK": 256}, num_warps=1)
        run(reduced_text.asm["amdgcn"], (1, 1, 1), list(values), num_warps=1, shared_bytes=reduced_text.metadata.shared)

    whole = np.zeros((2, 300), np.float32)
    arguments(whole[1, 4:260], np.zeros(256, np.float32))
    assert (whole[1, 4:260] == 1).all()
    assert not whole[0].any()
    assert not whole[1, 260:].any()
    with pytest.raises(TypeError, match="an argument is a list; numbers, None, numpy arrays"):
        arguments([0.0] * 256, whole)
    with pytest.raises(ValueError, match="the kernel has 4 arguments with those that Triton appends, not 1"):
        arguments(whole)
    with pytest.raises(ValueError, match="read-only"):
        arguments(np.frombuffer(bytes(1024), np.float32), whole)
    for few in (None, np.zeros(255, np.float32)):
        with pytest.raises(OutOfBounds, match=r"line \d+: "):
            arguments(whole, few)


def test_the_readmes_example_prints_what_it_says(capsys, tmp_path, monkeypatch):
    code, printed = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", README.read_text(), re.DOTALL).groups()
    file = tmp_path / "example.py"  # Triton reads a kernel's source from its file
    file.write_text(code)
    exec(compile(code, str(file), "exec"), {"__name__": "example"})
    assert re.sub(r"\d+ instructions", "", capsys.readouterr().out) == re.sub(r"\d+ instructions", "", printed)
