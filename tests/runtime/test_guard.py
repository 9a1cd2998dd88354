"""The guard of a device, with a type of device that is not there."""

import contextlib
from types import SimpleNamespace

import pytest
import torch

from portable_softmax.runtime.guard import guard_of, launch_on
from portable_softmax.runtime.layout import guarded


@pytest.fixture
def current(monkeypatch):
    """The number of the current device, in a list."""
    current = [0]

    @contextlib.contextmanager
    def made_current(index):
        before, current[0] = current[0], index
        yield
        current[0] = before

    somewhere = SimpleNamespace(current_device=lambda: current[0], device=made_current)
    monkeypatch.setattr(torch, "somewhere", somewhere, raising=False)
    return current


def device(index):
    return SimpleNamespace(index=index, vendor=SimpleNamespace(torch_device_type="somewhere"))


def launched(device, function):
    return lambda *given: launch_on(guard_of(device), function, *given)


@pytest.mark.parametrize("index", [0, 1, None])
@pytest.mark.parametrize("way", [lambda device, function: guarded(function, device), launched], ids=["guarded", "launch_on"])
def test_a_call_is_made_while_its_device_is_the_current_one(current, way, index):
    """A device that is not here needs no guard."""
    called = []
    call = way(device(index), lambda *given: called.append((current[0], *given)) or len(called))
    assert [call("y", "x"), call("y", "z")] == [1, 2]
    assert called == [(index or 0, "y", "x"), (index or 0, "y", "z")]
    assert current == [0]
