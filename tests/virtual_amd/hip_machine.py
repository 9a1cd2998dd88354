"""A machine with AMD devices that are virtual: Triton's HIP driver without HIP, on devices as real ones describe themselves."""

from pathlib import Path
from typing import Any

from machine import RECORDED, Launch, Machine, on_host
from triton.backends.amd.driver import HIPDriver
from triton.backends.driver import GPUDriver
from triton.runtime.cache import get_cache_manager

from amdgcn_cpu.tensors import run

HIP = {name: recording for name, recording in RECORDED.items() if recording["target"][0] == "hip"}
MACHINE = Machine("cuda", {name: recording["torch"][0] for name, recording in HIP.items()})
RESIDENT = 64  # programs at once: all that share a row, and few enough that large grids take little memory


def properties(index: int) -> dict[str, Any]:
    return list(HIP.values())[index]["properties"][0]


class Utils:
    """Replaces what Triton compiles from driver.c, which would query the HIP runtime."""

    get_device_properties = staticmethod(properties)

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
        arch = properties(MACHINE.current)["arch"].partition(":")[0]
        pairs = zip(self.constant, arguments, strict=True)
        arguments = [on_host(value) for is_constant, value in pairs if not is_constant]
        num_warps, shared_bytes = self.metadata.num_warps, self.metadata.shared
        MACHINE.launches.append(Launch(arch, self.metadata.name, (x, y, z), num_warps))
        options = {"num_warps": num_warps, "shared_bytes": shared_bytes, "resident": RESIDENT}
        run(self.text, (x, y, z), arguments, most_steps=20_000_000, **options)
