"""The program as it is typed, and a machine without an accelerator."""

from unittest import mock

import pytest
import torch  # noqa: F401  ahead of processes that would each import it
import triton  # noqa: F401

from portable_probe import program
from portable_softmax import NoDeviceError
from portable_softmax.devices import detect


@pytest.fixture
def run(capsys, monkeypatch, request):
    """Runs a command line in the repository's root; returns the exit code, standard output and standard error."""
    monkeypatch.chdir(request.config.rootpath)
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
    monkeypatch.setattr(detect, "current_device", mock.Mock(side_effect=NoDeviceError("nothing there")))
