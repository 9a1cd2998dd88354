"""A run in Triton's interpreter, once for all tests; in another process, as Triton decides at import whether it interprets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The folder that a run wrote, and what it printed."""
    directory = tmp_path_factory.mktemp("whole")
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(HERE / "tiny.py"), str(directory)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert not done.returncode, done.stderr
    return directory, done.stdout + done.stderr
