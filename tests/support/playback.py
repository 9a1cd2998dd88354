"""Plays recorded machines (recorded/driver_*.json) back to users of Triton and of torch."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget

from portable_softmax.devices import detect as device_module

RECORDED = Path(__file__).parent / "recorded"
MACHINES = sorted(path.stem for path in RECORDED.glob("driver_*.json"))


class RecordedDriver:
    """Triton's side of a recorded machine."""

    def __init__(self, machine):
        self.machine = machine
        self.utils = self

    def get_current_target(self):
        return GPUTarget(*self.machine["target"])

    def get_device_properties(self, index):
        return self.machine["properties"][index]


def play(monkeypatch, machine):
    """Makes this process look like the recorded machine, to Triton's users and to torch's."""
    module = SimpleNamespace(
        __name__="torch." + machine["torch_device_type"],
        is_available=lambda: machine.get("available", True),
        device_count=lambda: len(machine["properties"]),
        current_device=lambda: 0,
        device=lambda index: nullcontext(),
        get_device_properties=lambda index: SimpleNamespace(**machine["torch"][index]),
        get_device_capability=lambda index: machine["target"][1],
    )
    monkeypatch.setattr(torch, machine["torch_device_type"], module, raising=False)
    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=RecordedDriver(machine)))


def recorded(name):
    return json.loads((RECORDED / f"{name}.json").read_text())


@pytest.fixture(autouse=True)
def fresh():
    """Forgets devices around each test of a module that imports this."""

    def forget():
        device_module._device.cache_clear()
        device_module._active_backend.cache_clear()

    forget()
    yield
    forget()
