"""The memory of compiled kernels: each is compiled once in a process, and what its programs use is read once."""

import threading
from dataclasses import dataclass
from typing import Any

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError
from portable_softmax.runtime import compiler, on_disk
from portable_softmax.runtime.kernel_form import constexprs_of, form_of, kernel_of
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
            compiled = _found(spec, device)
            if fault := device.vendor.known_fault(compiled):
                raise CompileError(f"{spec.tiling} is not used: {fault}")
            _compiled[key] = Compiled(compiled)
        return _compiled[key]


def _found(spec: KernelSpec, device: Device) -> Any:
    """Returns Triton's CompiledKernel, which an earlier process has compiled, or this one does."""
    if not device.vendor.whole_compiler or compiler.triton_version() < (3, 5):
        return _new(spec, device)
    target = compiler.target_to_compile_for(device)
    options = device.vendor.compile_options(*_options(spec), device.hardware)
    of_kernel = tuple(spec.signature().items()), form_of(spec, device)
    key = on_disk.key_of(*of_kernel, target, sorted(options.items()))
    compiled = on_disk.load(key, lambda: compiler.source_of(kernel_of(spec), spec.signature(), constexprs_of(spec, device)))
    if compiled is None:
        compiled = _new(spec, device)
        on_disk.keep(key, compiled)
    return compiled


def _new(spec: KernelSpec, device: Device) -> Any:
    in_tuples = spec.tiling.blocks > 1 and spec.tiling.held
    constexprs = constexprs_of(spec, device)
    return compiler.compile_for(device, kernel_of(spec), spec.signature(), constexprs, *_options(spec), in_tuples)


def _options(spec: KernelSpec) -> tuple[int | None, int | None, int | None]:
    return spec.tiling.num_warps, spec.tiling.num_stages, spec.tiling.max_registers
