"""A machine with AMD devices that are virtual: Triton's HIP driver without HIP, on devices as real ones describe themselves.

Real are Triton's compiler, its cache, the driver's choice of a target, and this package. Virtual are torch's tensors
(tests/support/host_tensor.py), what the HIP runtime tells and does, and the device: `amdgcn_cpu`. What the
devices tell is played back from tests/support/recorded/driver_*.json, each of which names its source.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from host_tensor import HostTensor
from triton.backends.amd.driver import HIPDriver
from triton.backends.driver import GPUDriver
from triton.runtime.cache import get_cache_manager

from amdgcn_cpu.tensors import kernel_of, run

RECORDED = Path(__file__).parents[1] / "support" / "recorded"
MACHINES = [  # one device each, in this order
    json.loads(path.read_text()) | {"file": path.stem}
    for path in sorted(RECORDED.glob("driver_*.json"))
    if json.loads(path.read_text())["target"][0] == "hip"
]
RESIDENT = 8  # programs at once, so that large grids take little memory


@dataclass(frozen=True)
class Launch:
    """A launch that happened."""

    arch: str
    kernel: str
    grid: tuple[int, int, int]
    num_warps: int


LAUNCHES: list[Launch] = []


class Utils:
    """Stands in for what Triton compiles from driver.c, and would ask the HIP runtime."""

    def get_device_properties(self, index: int) -> dict[str, Any]:
        return MACHINES[index]["properties"][0]

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, Any, int, int, int]:
        """(module, function, registers, spills, most threads); without a module, nothing is unloaded when this has gone."""
        if kernel[:4] != b"\x7fELF":
            raise RuntimeError("hipErrorInvalidImage")
        return None, name, 0, 0, 1024


class Driver(HIPDriver):
    """`is_active`, `get_current_target` and what finds devices and streams are the real ones."""

    def __init__(self) -> None:
        GPUDriver.__init__(self)
        self.utils = Utils()
        self.launcher_cls = Launcher


class Launcher:
    """Runs the machine code that Triton assembled the loaded object from, which it keeps in its cache."""

    def __init__(self, src: Any, metadata: Any) -> None:
        path = get_cache_manager(metadata.hash).get_file(f"{src.name}.amdgcn")
        self.text = Path(path).read_text()
        self.metadata = metadata
        self.constant = [kind == "constexpr" for kind in src.signature.values()]

    def __call__(self, x, y, z, stream, function, packed_metadata, launch_metadata, enter_hook, exit_hook, *arguments) -> None:
        arch = MACHINES[HostTensor.current]["properties"][0]["arch"].partition(":")[0]
        if kernel_of(self.text).assembly.arch != arch:
            raise RuntimeError("hipErrorNoBinaryForGpu")
        pairs = zip(self.constant, arguments, strict=True)
        given = [_on_host(value) for is_constant, value in pairs if not is_constant]
        num_warps, shared_bytes = self.metadata.num_warps, self.metadata.shared
        LAUNCHES.append(Launch(arch, self.metadata.name, (x, y, z), num_warps))
        options = {"num_warps": num_warps, "shared_bytes": shared_bytes, "resident": RESIDENT}
        run(self.text, (x, y, z), given, most_steps=20_000_000, **options)


def _on_host(value: Any) -> Any:
    if not isinstance(value, HostTensor):
        return value
    if value.device.index != HostTensor.current:
        raise RuntimeError(f"a tensor on {value.device} in a launch on device {HostTensor.current}")
    return value.host


def index(file: str) -> int:
    """Number of the device that a recorded file describes."""
    return next(index for index, machine in enumerate(MACHINES) if machine["file"] == file)
