"""A machine with Intel's GPUs that are not there: Triton's XPU driver without SYCL, on devices as torch told of real ones.

Real are Triton's compiler with the properties of a live device, its cache, the driver's choice of a target, and this package.
Virtual are torch's tensors (tests/support/host_tensor.py), what SYCL and Level Zero tell and do, and the GPU, whose kernels run
on the CPU. What the devices tell is played back from tests/support/recorded/driver_*.json.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import host_tensor
import triton
from host_tensor import HostTensor
from triton.backends import backends
from triton.backends.driver import DriverBase
from triton.runtime.cache import get_cache_manager

from intel import machine

RECORDED = Path(__file__).parents[1] / "support" / "recorded"
MACHINES = [  # one device each, in this order
    json.loads(path.read_text()) | {"file": path.stem}
    for path in sorted(RECORDED.glob("driver_*.json"))
    if json.loads(path.read_text())["target"][0] == "xpu"
]
NAMES = {"12.60.7": "pvc", "20.1.0": "bmg"}  # arch_parser.c's, by the version of the graphics IP


class Launch(NamedTuple):
    """A launch that happened."""

    kernel: str
    grid: tuple[int, int, int]
    threads: int
    flags: str


LAUNCHES: list[Launch] = []


class Utils:
    """Functions that Triton compiles from driver.c."""

    def get_current_device(self) -> int:
        return HostTensor.current

    def get_device_properties(self, index: int) -> dict[str, Any]:
        return MACHINES[index]["properties"][0]

    def load_binary(self, name: str, kernel: bytes, shared: int, flags: str, device: int) -> tuple[Any, Any, int, int]:
        """(module, function, registers, spills), the last two 0 as the driver's are where it does not know them."""
        return None, name, 0, 0


class Driver(backends["intel"].driver):
    """`get_current_target` and `get_current_stream` are the real ones."""

    def __init__(self) -> None:
        DriverBase.__init__(self)
        self.utils = Utils()
        self.launcher_cls = Launcher


class Launcher:
    """Runs the SPIR-V that Triton would give the driver."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self.spirv = Path(get_cache_manager(metadata.hash).get_file(f"{src.name}.spv")).read_bytes()
        self.kinds = list(src.signature.values())

    def __call__(self, x, y, z, stream, function, metadata, launch_metadata, enter_hook, exit_hook, *arguments) -> None:
        given = [_on_host(value) for kind, value in zip(self.kinds, arguments, strict=True) if kind != "constexpr"]
        kinds = [kind for kind in self.kinds if kind != "constexpr"]
        LAUNCHES.append(Launch(metadata.name, (x, y, z), metadata.num_warps * metadata.threads_per_warp, metadata.build_flags))
        machine.KERNELS.add(self.spirv)
        machine.run_spirv(self.spirv, metadata, kinds, (x, y, z), given)


def _on_host(value: Any) -> Any:
    return value.host if isinstance(value, HostTensor) else value


def index(file: str) -> int:
    """Number of the device that a recorded file describes."""
    return next(index for index, machine in enumerate(MACHINES) if machine["file"] == file)


def build(source: str, name: str) -> Any:
    """Triton's function that builds C++ modules: of its own parts, the one that names architectures is asked for alone."""
    assert name == "arch_utils"
    versions = {each["target"][1]["architecture"]: each["target"][1]["version"] for each in MACHINES}
    return type("Names", (), {"parse_device_arch": staticmethod(lambda number: NAMES[versions[number]])})


def install(patch: Any) -> Any:
    """Makes this process's machine one with these devices; what it returns keeps the operators alive."""
    capabilities = lambda device=None: MACHINES[HostTensor.current if device is None else device]["target"][1]  # noqa: E731
    operators = host_tensor.install(
        patch, "xpu", [each["torch"][0] for each in MACHINES], get_device_capability=capabilities, is_initialized=lambda: True
    )
    patch.setitem(backends["intel"].compiler.__init__.__globals__, "compile_module_from_src", build)
    patch.setattr(triton.runtime.driver, "active", Driver())
    return operators
