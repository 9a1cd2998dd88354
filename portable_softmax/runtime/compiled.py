"""Cache of compiled kernels and of the resources that their programs use, once per process."""

import threading
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError
from portable_softmax.runtime import compiler
from portable_softmax.runtime.kernel_form import constexprs_of, kernel_of, signature_of
from portable_softmax.runtime.specialization import KernelSpec

_compiling = threading.Lock()


@dataclass
class Compiled:
    """Triton's CompiledKernel, the values of its constexprs, and the resources of a program, once they were read."""

    kernel: Any
    constexprs: dict[str, Any]
    resources: KernelResources | None = None


_compiled: dict[tuple[Any, ...], Compiled] = {}


def compile_kernel(spec: KernelSpec, device: Device) -> Any:
    """Returns Triton's CompiledKernel, cached; raises the errors of `compiled_with`."""
    return compiled_with(spec, device)[0]


def compiled_with(spec: KernelSpec, device: Device) -> tuple[Any, dict[str, Any]]:
    """Returns Triton's CompiledKernel and the values of its constexprs, cached.

    Raises:
        CompileError: see compiler.compile_for; or the vendor's compiler is known to get such a kernel wrong.
    """
    kept = _kept(spec, device)
    return kept.kernel, kept.constexprs


def resources_of(spec: KernelSpec, device: Device) -> KernelResources:
    """Reads the resources of a program of the compiled kernel; cached, as plans of other row counts use the same kernel.

    Raises:
        CompileError: see compile_kernel.
    """
    kept = _kept(spec, device)
    if kept.resources is None:
        kept.resources = device.vendor.resources(kept.kernel)
    return kept.resources


def _kept(spec: KernelSpec, device: Device) -> Compiled:
    key = spec, device.backend, device.arch, device.index  # a loaded kernel belongs to one device; products share the rest
    with nullcontext() if device.detected else device.vendor.offline(), _compiling:
        if key not in _compiled:
            constexprs = constexprs_of(spec, device)
            compiled = _new(spec, device, constexprs)
            if fault := device.vendor.known_fault(compiled):
                raise CompileError(f"{spec.tiling} is not used: {fault}")
            _compiled[key] = Compiled(compiled, constexprs)
        return _compiled[key]


def _new(spec: KernelSpec, device: Device, constexprs: dict[str, Any]) -> Any:
    tiling = spec.tiling
    options = tiling.num_warps, tiling.num_stages, tiling.max_registers
    in_tuples = tiling.blocks > 1 and tiling.held
    return compiler.compile_for(device, kernel_of(spec), signature_of(spec), constexprs, *options, in_tuples)
