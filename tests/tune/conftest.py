"""Runs in Triton's interpreter, once for all tests; in other processes, as Triton decides at import whether it interprets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def ran(what, directory):
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(HERE / "tiny.py"), what, str(directory)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The folder that a run of the command wrote, and what it printed."""
    directory = tmp_path_factory.mktemp("whole")
    return directory, ran("whole", directory)


@pytest.fixture(scope="session")
def faults(tmp_path_factory):
    """The same of a run whose candidates crash, hang and are wrong."""
    directory = tmp_path_factory.mktemp("faults")
    return directory, ran("faults", directory)
