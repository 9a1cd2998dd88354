"""Builds SPIR-V for the CPU in a process of its own, as the runtime's compiler may die of it.

One pass of intel-opencl-rt 2026.2, ReduceCrossBarrierValues, sometimes frees memory twice ("double free or corruption"): what
it is given is then built once more, in another process.
"""

import functools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pyopencl as cl

ATTEMPTS = 5


@functools.cache
def context() -> cl.Context:
    (platform,) = cl.get_platforms()
    (device,) = platform.get_devices()
    assert device.svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM
    return cl.Context([device])


@functools.cache
def builder() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def built(spirv: bytes) -> bytes:
    """Returns the native code; runs in the other process."""
    (binary,) = cl.Program(context(), spirv).build().get_info(cl.program_info.BINARIES)
    return binary


def kernel_of(spirv: bytes) -> cl.Kernel:
    """Returns the only kernel of a module."""
    for attempt in range(ATTEMPTS):
        try:
            binary = builder().submit(built, spirv).result()
            break
        except BrokenProcessPool:
            builder.cache_clear()
            if attempt + 1 == ATTEMPTS:
                raise
    (kernel,) = cl.Program(context(), context().devices, [binary]).build().all_kernels()
    return kernel
