"""Triton's interpreter (TRITON_INTERPRET=1): it runs the kernel's Python text on the CPU, one program after another."""

from typing import Any

from portable_softmax.devices.backends.base import Backend, KernelResources
from portable_softmax.devices.schema import Hardware


class Interpreter(Backend):
    """Triton's interpreter, which compiles nothing, has no limits, and gets all facts from its profile."""

    torch_device_type = "cpu"
    required = ("multiprocessor_count",)
    aligned_access = False  # unaligned rows are then read element by element; tests run the unaligned kernel by itself
    install = "CPU: pip install torch triton 'numpy<2.4' --extra-index-url https://download.pytorch.org/whl/cpu"
    elsewhere = "it compiles nothing; with TRITON_INTERPRET=1 it runs kernels"

    def missing(self) -> str:
        """Returns that nothing compiles for it."""
        return self.elsewhere

    def resources(self, *_: Any, **__: Any) -> KernelResources:
        """Returns no resources."""
        return KernelResources()

    model = resources

    def limits(self, resources: KernelResources, hardware: Hardware) -> dict[str, int]:
        """Counts one program."""
        return {"programs": 1}
