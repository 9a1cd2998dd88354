"""The program as it is typed, and a machine without an accelerator."""

import pytest

from portable_probe import answers, cases, program
from portable_softmax import NoDeviceError


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs a command line; returns the exit code, what is printed, and the complaints."""
    monkeypatch.setenv("COLUMNS", "80")

    def ran(*words):
        capsys.readouterr()
        try:
            code = program.main([str(word) for word in words])
        except SystemExit as stopped:
            code = stopped.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return ran


@pytest.fixture
def nothing_here(monkeypatch):
    def nothing(index=None):
        raise NoDeviceError("nothing there")

    for room in (answers, cases):
        monkeypatch.setattr(room, "current_device", nothing)
