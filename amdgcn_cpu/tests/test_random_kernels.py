"""Random kernels of Triton, executed for each architecture, beside numpy."""

from collections import Counter

import pytest

pytest.importorskip("triton", "3.2")
from random_kernels import RandomKernel
from triton.backends.compiler import GPUTarget

from amdgcn_cpu import UnknownInstruction, run

ARCHITECTURES = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1200", "gfx1201")
AT_ONCE = 10


def wrong_results(kernel, arch):
    """The names of results that differ from numpy's, or what is not known here; None if Triton does not compile the kernel."""
    try:
        compiled = kernel.compiled(GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32))
    except Exception:
        return None
    arguments = {name: array.copy() for name, array in kernel.arguments.items()}
    sizes = {"num_warps": compiled.metadata.num_warps, "shared_bytes": compiled.metadata.shared}
    try:
        run(compiled.asm["amdgcn"], (1, 1, 1), list(arguments.values()), **sizes)
    except UnknownInstruction as error:
        return str(error)
    pairs = {name: (arguments[name], array) for name, array in kernel.expected.items()}
    return [
        name for name, (result, exact) in pairs.items() if not ((result == exact) | (result != result) & (exact != exact)).all()
    ]


@pytest.mark.parametrize("first", [pytest.param(AT_ONCE * n, marks=pytest.mark.slow if n >= 1 else ()) for n in range(100)])
def test_random_kernels(first):
    counts = Counter()
    for seed in range(first, first + AT_ONCE):
        kernel, arch = RandomKernel(seed), ARCHITECTURES[seed % len(ARCHITECTURES)]
        wrong = wrong_results(kernel, arch)
        assert not isinstance(wrong, list) or not wrong, f"{wrong} of seed {seed} on {arch}:\n{kernel.source}"
        counts["unknown" if isinstance(wrong, str) else "not compiled" if wrong is None else "right"] += 1
    assert counts["unknown"] <= 2, counts
    assert counts["right"] >= AT_ONCE - 3, counts
