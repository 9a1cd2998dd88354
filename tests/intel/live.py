"""A machine with Intel's GPUs that are not there: Triton's XPU driver without SYCL, on devices as torch told of real ones.

Triton's compiler has the properties of a live device; the GPU's kernels run on the CPU.
"""

from pathlib import Path
from typing import Any

import triton
from machine import Launch, Machine, on_host, recorded
from triton.backends import backends
from triton.backends.driver import DriverBase
from triton.runtime.cache import get_cache_manager

from intel import machine

RECORDED = list(recorded("xpu").values())
MACHINE = Machine("xpu", {name: each["torch"][0] for name, each in recorded("xpu").items()})
NAMES = {"12.60.7": "pvc", "20.1.0": "bmg"}  # arch_parser.c's, by the version of the graphics IP


class Utils:
    """Functions that Triton compiles from driver.c."""

    def get_current_device(self) -> int:
        return MACHINE.current

    def get_device_properties(self, index: int) -> dict[str, Any]:
        return RECORDED[index]["properties"][0]

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
        given = [on_host(value) for kind, value in zip(self.kinds, arguments, strict=True) if kind != "constexpr"]
        kinds = [kind for kind in self.kinds if kind != "constexpr"]
        arch = capabilities()["version"]
        MACHINE.launches.append(Launch(arch, metadata.name, (x, y, z), metadata.num_warps, metadata.build_flags))
        machine.KERNELS.add(self.spirv)
        machine.run_spirv(self.spirv, metadata, kinds, (x, y, z), given)


def capabilities(device: int | None = None) -> dict[str, Any]:
    return RECORDED[MACHINE.current if device is None else device]["target"][1]


def build(source: str, name: str) -> Any:
    """Triton's function that builds C++ modules: of its own parts, the one that names architectures is asked for alone."""
    assert name == "arch_utils"
    versions = {each["target"][1]["architecture"]: each["target"][1]["version"] for each in RECORDED}
    return type("Names", (), {"parse_device_arch": staticmethod(lambda number: NAMES[versions[number]])})


def installed(patch: Any) -> Any:
    """Makes this process's machine one with these devices."""
    patch.setitem(backends["intel"].compiler.__init__.__globals__, "compile_module_from_src", build)
    patch.setattr(triton.runtime.driver, "active", Driver())
    return MACHINE.installed(patch, get_device_capability=capabilities, is_initialized=lambda: True)
