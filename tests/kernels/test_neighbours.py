"""Programs that share rows beside whatever else runs on a device: each situation in a process of its own, with a watchdog.

Nothing may hang, and results are the same bits as without neighbours.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from situations import SITUATIONS

pytestmark = [pytest.mark.kernel, pytest.mark.accelerator]
WATCHDOG = 150  # seconds, compiling included
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.mark.parametrize("situation", SITUATIONS)
def test_nothing_hangs_and_nothing_changes(device, where, situation):
    if where.type != "cuda" or not device.profile.launch.polls:
        pytest.skip(f"situations are written for torch's device type cuda and rows that programs share; this is {device}")
    command = [sys.executable, str(SUPPORT / "situations.py"), situation, "20"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG, check=False)
    except subprocess.TimeoutExpired as hung:
        pytest.fail(f"{situation} hangs: no end after {WATCHDOG} s; it printed {hung.stdout!r}")
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
