"""The memory of compiled kernels: each is compiled once in a process, and what its programs use is read once."""

import threading
from dataclasses import dataclass
from typing import Any

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError
from portable_softmax.runtime import compiler
from portable_softmax.runtime.specialization import KernelSpec

_compiling = threading.Lock()


@dataclass
class Compiled:
    """Triton's CompiledKernel, and what a program of it uses, once that was read."""

    kernel: Any
    resources: KernelResources | None = None


_compiled: dict[tuple[Any, ...], Compiled] = {}


def compile_kernel(spec: KernelSpec, device: Device) -> Any:
    """Returns Triton's CompiledKernel; kept.

    Raises:
        CompileError: see compiler.compile_for; or the vendor's compiler is known to get such a kernel wrong.
    """
    return _kept(spec, device).kernel


def resources_of(spec: KernelSpec, device: Device) -> KernelResources:
    """Reads what a program of the compiled kernel uses; kept, as new row counts are planned with kernels that are here.

    Raises:
        CompileError: see compile_kernel.
    """
    kept = _kept(spec, device)
    if kept.resources is None:
        kept.resources = device.vendor.resources(kept.kernel)
    return kept.resources


def _kept(spec: KernelSpec, device: Device) -> Compiled:
    key = spec, device.backend, device.arch, device.index  # a loaded kernel belongs to one device; products share the rest
    with _compiling:
        if key not in _compiled:
            if spec.narrows and compiler.triton_version() < (3, 3):
                raise CompileError("Triton 3.2 ends the process where float64 becomes 16 bits; install Triton 3.3 or later")
            tiling = spec.tiling
            options = tiling.num_warps, tiling.num_stages, tiling.max_registers, tiling.pieces > 1 and tiling.held
            compiled = compiler.compile_for(device, spec.kernel, spec.signature(), spec.constexprs(device), *options)
            if fault := device.vendor.known_fault(compiled):
                raise CompileError(f"{tiling} is not used: {fault}")
            _compiled[key] = Compiled(compiled)
        return _compiled[key]
