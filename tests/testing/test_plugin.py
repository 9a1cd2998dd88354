"""The plugin in a user's project, in a folder of its own, with the kernel and the tests of examples/."""

import shlex
import shutil
from pathlib import Path

import pytest
import torch  # noqa: F401  an extension is imported once in a process, and pytester forgets what its sessions import
import triton
import triton.language  # noqa: F401

MORE = """
import pytest
from my_kernel import subtract_max
from portable_probe.testing import assert_occupancy

def compiled(device, block, **bound):
    words = {"x": "*fp32:16", "y": "*fp32:16", "n": "i32:16"}
    assert_occupancy(subtract_max, device, signature=words, constexprs={"BLOCK": block}, **bound)

@pytest.mark.parametrize("at_least", [{"hip": 1}, {}, {"nvidia": 1}, {"cuda": 0}, 0, 1.5, "8", float("nan")], ids=repr)
def test_bound(portable_device, at_least):
    with pytest.raises(ValueError, match="at_least"):
        compiled(portable_device, 1024, at_least=at_least)

def test_bound_misspelt(portable_device):
    with pytest.raises(AssertionError, match="at_leest"):
        compiled(portable_device, 1024, at_leest=1)

@pytest.mark.accelerator
def test_hardware():
    raise AssertionError("there is none")

@pytest.mark.xfail(run=False, reason="later")
def test_waiting():
    pass

@pytest.mark.xfail
def test_waiting_and_run():
    raise AssertionError

@pytest.mark.parametrize(("block", "at_least"), [(8192, 9), (32768, 1), (1024, {"cuda": 1, "hip": 99})])
def test_missed(portable_device, block, at_least):
    compiled(portable_device, block, at_least=at_least)
"""
RUNS = """
--on h200,mi300x -k 'fits or right or hardware' | 0 | ('nvidia/h200', cuda/90, ;; ('amd/mi300x', hip/ ;; = 2 passed, 5 skipped
--on h200 -k 'fits or right or hardware' --fail-on-skip | 1 | = 1 passed, 14 deselected, 4 errors
--on h200 -k bound | 0 | = 9 passed, 2 skipped
--on h200 -k fits --fail-on-skip | 1 | ERROR test_skipped.py - skipped, and ;; ERROR test_unittest.py -
--on intel/max-1550 -k fits | 0 | = 3 skipped, 16 deselected
--on intel/max-1550 -k fits --fail-on-skip | 1 | skipped, and --fail-on-skip: ;; this Triton's backends ( ;; 1 failed
-k waiting | 0 | = 2 skipped, 15 deselected, 2 xfailed
-k waiting --fail-on-skip | 1 | ERROR test_more.py::test_waiting - skipped, and --fail-on-skip: ;; 1 xfailed, 3 errors
--on h200 -k missed | 1 | per SM, at least 9 required; limited by ;; next step ;; h200: spills ;; 2 failed, 1 passed
--on interpreter --on h200 | 4 | ERROR: DeviceError: interpreter, h200 is required; the local device is
"""


@pytest.mark.parametrize(("options", "code", "parts"), [line.split(" | ") for line in RUNS.strip().splitlines()])
def test_a_users_project(pytester, monkeypatch, options, code, parts):
    monkeypatch.setenv("TRITON_INTERPRET", "0")  # which the plugin changes
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addoption('--device')\n")  # as many a test suite has
    for name in ("my_kernel.py", "test_my_kernel.py"):
        shutil.copy(Path(__file__).parents[2] / "examples" / name, pytester.path)
    skipped = "import pytest\npytest.importorskip('nowhere')\ndef test_fits(portable_device): pass"
    unittest = "import unittest\nraise unittest.SkipTest('not here')"
    pytester.makepyfile(test_more=MORE, test_skipped=skipped, test_unittest=unittest)
    pytester.syspathinsert()
    ran = pytester.runpytest_inprocess(*shlex.split(options))
    printed = ran.stdout.str() + ran.stderr.str()
    assert (ran.ret, [part for part in parts.split(" ;; ") if part not in printed]) == (int(code), [])
    assert "portable_probe/" not in printed, "no frames of the assertion's own"
