"""Triton's side of the machine: a driver, a launcher, and a compiler whose last stage needs no CANN.

Everything else is triton-ascend's own: `install` changes only its entry in `triton.backends.backends`.
"""

import ctypes
import subprocess
import tempfile
from typing import Any

import torch
from machine import Launch, on_host
from triton.backends import Backend, backends
from triton.backends.ascend.compiler import _parse_linalg_metadata

from portable_softmax.devices.backends.npu_compiler import planned
from portable_softmax.errors import CompileError
from virtual.machine import CORES, MACHINE
from virtual.mlir import shared_object

REAL = backends["ascend"]
MOST_PROGRAMS = 65535
C_TYPES = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}  # of the kernels' scalar arguments


class VirtualBackend(REAL.compiler):
    """The real backend up to linalg; then the limit of the Unified Buffer, and code for the host."""

    def add_stages(self, stages: dict, options: Any) -> None:
        super().add_stages(stages, options)
        stages["npubin"] = self._to_host_code

    def _to_host_code(self, linalg: str, metadata: dict) -> bytes:
        """Plans the Unified Buffer; raises what the real last stage raises if it overflows, which Triton quotes."""
        try:
            planned(linalg, self.target.arch, {})
        except CompileError as refused:
            raise subprocess.CalledProcessError(1, ["bishengir-compile"], stderr=str(refused).encode()) from refused
        return shared_object(_parse_linalg_metadata(linalg, metadata)[0])


class VirtualUtils:
    """The part of NPUUtils that would query CANN. It has these properties and no others, `max_shared_mem` a dummy."""

    def get_arch(self) -> str:
        return [*CORES][MACHINE.current]

    def get_device_properties(self, device: int) -> dict[str, int]:
        cores = [*CORES.values()][device]
        return {"max_shared_mem": 1, "num_aicore": cores // 2, "num_vectorcore": cores}

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, Any, int, int]:
        """(module, function, registers, spills), the last two 0 as on the device."""
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(kernel)
            file.flush()
            library = ctypes.CDLL(file.name)
        function = library["_mlir_ciface_" + name.split()[0]]
        function.restype = None
        return kernel, function, 0, 0


class VirtualDriver(REAL.driver):
    """`get_current_target` is the real one."""

    def __init__(self) -> None:
        self.utils, self.launcher_cls = VirtualUtils(), VirtualLauncher

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_device(self) -> int:
        return MACHINE.current

    def set_current_device(self, device: int) -> None:
        torch.npu.set_device(device)

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


class MemRef(ctypes.Structure):
    """MLIR's descriptor of memref<?x...>; kernels use neither its size nor its stride."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("allocated", "aligned")]
    _fields_ += [(name, ctypes.c_int64) for name in ("offset", "size", "stride")]


class VirtualLauncher:
    """Runs the programs of a grid one after the other, on the arguments that the real launcher would pass.

    Those are: a lock and a workspace (null here), the kernel's own that are not constants, the grid, the program.
    """

    def __init__(self, src: Any, metadata: Any) -> None:
        self.types = [None if name in src.constants else kind for name, kind in src.signature.items()]

    def __call__(self, x, y, z, stream, function, packed_metadata, launch_metadata, enter_hook, exit_hook, *arguments) -> None:
        if x * y * z > MOST_PROGRAMS:  # the JIT would refuse it too, but does not launch a compiled kernel
            raise RuntimeError(f"rtKernelLaunch: {x} x {y} x {z} programs, more than {MOST_PROGRAMS}")
        pairs = [(kind, value) for kind, value in zip(self.types, arguments, strict=True) if kind]
        own = [_pointer(value) if kind.startswith("*") else _scalar(kind, value) for kind, value in pairs]
        memrefs = [MemRef(), MemRef(), *own]
        passed = [ctypes.byref(argument) if isinstance(argument, MemRef) else argument for argument in memrefs]
        MACHINE.launches.append(Launch([*CORES][MACHINE.current], packed_metadata["kernel_name"], (x, y, z)))
        for program in range(x * y * z):
            place = program % x, program // x % y, program // (x * y)
            function(*passed, *map(ctypes.c_int32, (x, y, z)), *map(ctypes.c_int32, place))


def _pointer(tensor: Any) -> MemRef:
    address = on_host(tensor).data_ptr()
    return MemRef(address, address)


def _scalar(kind: str, value: Any) -> Any:
    """Converts as the real launcher's PyArg_ParseTuple: a number that does not fit its type is an error, not its low bits."""
    converted = C_TYPES[kind](value)
    if kind.startswith("i") and converted.value != value:
        raise OverflowError(f"{value} is not an {kind}")
    return converted


def install() -> None:
    """From now on Triton finds the machine, as it would find a real one."""
    backends["ascend"] = Backend(VirtualBackend, VirtualDriver)
