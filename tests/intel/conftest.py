"""Finds Intel's compilers and runtime, and reports at the end what ran.

Only in the environment that noxfile.py sets up: elsewhere nothing here is collected.
"""

import importlib.util
import os
import shutil
import sys
from collections import defaultdict
from pathlib import Path

import pytest

OPENCL = Path(sys.prefix, "opencl")
SET_UP = OPENCL.is_dir() and importlib.util.find_spec("triton.backends.intel") is not None
ERRORS: dict[str, list[tuple[float, float, float]]] = defaultdict(list)  # by type: absolute, in eps, of what is allowed
if SET_UP:
    os.environ["OCL_ICD_VENDORS"] = str(OPENCL)
    os.environ["PATH"] = f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"
else:
    collect_ignore_glob = ["*"]


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore:Non-empty compiler output encountered")  # it tells how long it took


@pytest.fixture(autouse=True)
def recorded(monkeypatch):
    """Notes each comparison with float64 that a test makes."""
    import closeness
    import direct
    import torch

    def noting(result, exact, terms=0.0, check=closeness.assert_close):
        check(result, exact, terms)  # first: results of kernels that are wrong on purpose are not noted
        found, size = result.double(), torch.as_tensor(terms, dtype=torch.float64).abs()
        compared = exact.isfinite() & found.isfinite()
        error = torch.where(compared, (found - exact).abs(), 0.0)
        scale = torch.maximum(exact.abs(), size.expand_as(exact)).clamp(min=torch.finfo(result.dtype).tiny)
        in_eps = torch.where(compared, error / scale / torch.finfo(result.dtype).eps, 0.0)
        name = str(result.dtype).removeprefix("torch.")
        ERRORS[name].append((error.max().item(), in_eps.max().item(), closeness.worst_error(result, exact, terms)))

    for module in (direct, closeness):
        monkeypatch.setattr(module, "assert_close", noting)
    return noting


@pytest.fixture(scope="module")
def machine():
    """Makes this process's machine one with Intel's GPUs, by the names of their recorded files."""
    from intel import live

    with pytest.MonkeyPatch.context() as patch, live.installed(patch) as installed:
        yield installed


@pytest.fixture
def ocloc():
    """Skips a test of registers where there is no ocloc."""
    return shutil.which("ocloc") or pytest.skip("there is no ocloc here")


def pytest_terminal_summary(terminalreporter):
    if not ERRORS:
        return
    from intel import machine

    terminalreporter.section("Intel's SPIR-V on a CPU")
    compared = sum(map(len, ERRORS.values()))
    terminalreporter.line(f"{len(machine.KERNELS)} different kernels; {compared} results compared with float64")
    for dtype, errors in sorted(ERRORS.items()):
        absolute, in_eps, worst = map(max, zip(*errors, strict=True))
        terminalreporter.line(
            f"{dtype}: {len(errors)} results, largest error {absolute:.3g}, {in_eps:.2f} eps, {worst:.3f} of what is allowed"
        )
