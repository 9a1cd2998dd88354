"""A machine whose devices are not here: what they tell, which one is the current one, and the launches that happened.

Real are Triton's compiler, its cache, the driver's choice of a target, and this package. Virtual are torch's tensors
(host_tensor.py), what a vendor's runtime tells and does, and the device: each vendor's tests have a driver that runs what was
compiled.
"""

import json
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import host_tensor
from host_tensor import HostTensor

from portable_softmax.devices import detect
from portable_softmax.operators import launch

BACKEND = "npu" if find_spec("triton.backends.ascend") else "hip"
RECORDED = Path(__file__).with_name("recorded")


class Launch(NamedTuple):
    """A launch that happened;"""

    arch: str
    kernel: str
    grid: tuple[int, int, int]
    num_warps: int | None = None


class Machine:
    """Devices of a type.

    Args:
        kind: torch's name of the type: cuda (also for ROCm), xpu or npu.
        facts: of each device, by its name, what `torch.KIND.get_device_properties` tells.
    """

    def __init__(self, kind: str, facts: dict[str, dict[str, Any]]) -> None:
        self.kind, self.facts = kind, facts
        self.launches: list[Launch] = []

    def index(self, name: str) -> int:
        return list(self.facts).index(name)

    def where(self, name: str) -> str:
        """Torch's name of a device."""
        return f"{self.kind}:{self.index(name)}"

    @property
    def current(self) -> int:
        return HostTensor.current

    @contextmanager
    def installed(self, patch, **functions):
        """Makes this process's machine this one; `functions` are more of torch.KIND's."""
        forget()
        operators = host_tensor.install(patch, self.kind, list(self.facts.values()), **functions)
        yield self
        operators._destroy()
        forget()


def recorded(backend: str) -> dict[str, dict[str, Any]]:
    """Machines of tests/support/recorded/driver_*.json by their files' names; each says where it comes from."""
    read = {path.stem: json.loads(path.read_text()) for path in sorted(RECORDED.glob("driver_*.json"))}
    return {name: each for name, each in read.items() if each["target"][0] == backend}


def forget() -> None:
    """Forgets the device that is here, and the launches on it."""
    detect._device.cache_clear()
    detect._active_backend.cache_clear()
    launch.calls.clear()


def on_host(value: Any) -> Any:
    """Returns an argument of a launch as it lies in the host's memory; a tensor must be on the current device."""
    if not isinstance(value, HostTensor):
        return value
    if value.device.index != HostTensor.current:
        raise RuntimeError(f"a tensor on {value.device} in a launch on device {HostTensor.current}")
    return value.host
