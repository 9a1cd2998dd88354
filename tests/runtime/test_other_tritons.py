"""Each kind of plan compiles with other releases of Triton, which `scripts/with_triton.sh` downloads unless they are there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from each_kind import DEVICES, PROBLEMS

from portable_softmax import Device
from portable_softmax.runtime.plans import plan_problem

ROOT = Path(__file__).parents[2]
RELEASES = [
    pytest.param(name, marks=[] if name in ("3.2.0", "3.3.1", "3.9.0") else pytest.mark.slow)
    for name in ("3.2.0", "3.3.1", "3.4.0", "3.5.1", "3.6.0", "3.7.0", "3.8.0", "3.9.0")
]
AMD = (3, 5)  # the first release that compiles for an AMD device that is not here


@pytest.mark.parametrize("release", RELEASES)
def test_each_kind_of_plan_compiles(release, tmp_path):
    version = tuple(map(int, release.split(".")[:2]))
    if sys.version_info >= (3, 14) and version < (3, 5):
        pytest.skip("it has no wheel for this Python")
    without = {name: value for name, value in os.environ.items() if name not in ("TRITON_INTERPRET", "PYTHONPATH")}
    ran = subprocess.run(
        ["bash", ROOT / "scripts/with_triton.sh", release, ROOT / "tests/support/each_kind.py"],
        env=without | {"TRITON_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    devices = DEVICES if version >= AMD else DEVICES[:1]
    npu = Device.from_profile("ascend/910b3")
    by_ascend = [f"{npu.name}: {plan_problem(PROBLEMS['scores'], npu).resources.compiler}"] * (npu.vendor.missing() is None)
    plans = [f"{name}: {len(PROBLEMS)} plans" for name in devices]
    assert ran.stdout.splitlines() == [f"triton {release}", *plans, *by_ascend]
