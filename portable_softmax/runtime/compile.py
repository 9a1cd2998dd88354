"""Compiles kernels for any target, here or not, with Triton 3.2 to 3.9 and vendors' 3.2, and loads them; once per process."""

import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.detect import INSTALL, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, DeviceError, TargetError
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.tiling import Tiling
from portable_softmax.runtime.kernel import Kernel, kernels_of

Result = TypeVar("Result")
Grid = tuple[int, int, int]
Start = Callable[[Grid, Sequence[Any]], Any]  # starts a kernel on all of its arguments in order, values of constexprs too

ONE_LAUNCH = threading.RLock()  # the interpreter patches Triton's language, and keeps a program's number, for all threads
_compiling, _loading = threading.Lock(), threading.Lock()


@functools.cache
def compiled(kernel: Kernel, device: Device) -> Any:
    """Returns Triton's CompiledKernel for a device.

    Raises:
        CompileError: in the compiler's own words, or for its known fault, or there is no Triton.
        TargetError: this Triton cannot compile for the architecture, or not without the device.
        DeviceError: Triton's cache cannot be written.
    """
    name, options = kernel.function.__name__, device.vendor.compile_options(*kernel.options, device.hardware)
    with nullcontext() if device.detected else device.vendor.offline(), _compiling:
        check_target(device)
        import triton

        try:
            result = triton.compile(source_of(kernel), target=target_of(device), options=options)
        except OSError as error:
            raise unwritable(error) from error
        except Exception as error:  # every stage of every backend has its own exceptions
            text = f"{name}({', '.join(kernel.types.values())}) for {device.backend}/{device.arch}"
            raise CompileError(f"{text}: {error}") from error
    if fault := device.vendor.known_fault(result):
        raise CompileError(f"{name} is not used: {fault}")
    return result


def resources_of(kernel: Kernel, device: Device) -> KernelResources:
    """Returns what a program of a kernel uses; raises the errors of `compiled`."""
    return device.vendor.resources(compiled(kernel, device))


def source_of(kernel: Kernel) -> Any:
    """Returns Triton's source of a kernel."""
    from triton.compiler import ASTSource

    types = {name: kind.removesuffix(":16") for name, kind in kernel.types.items()}
    constexprs = {name: value for name, value in kernel.parameters if name not in types}
    aligned = [at for at, (name, _) in enumerate(kernel.parameters) if kernel.types.get(name, "").endswith(":16")]
    if triton_version() < (3, 3):
        from triton.backends.compiler import AttrsDescriptor

        return ASTSource(kernel.function, types, constexprs, AttrsDescriptor.from_hints(dict.fromkeys(aligned, 16)))
    signature = {name: types.get(name, "constexpr") for name, _ in kernel.parameters}
    return ASTSource(kernel.function, signature, constexprs, {(at,): [["tt.divisibility", 16]] for at in aligned})


def unwritable(error: OSError) -> DeviceError:
    """Returns the error of a process that cannot keep compiled kernels."""
    return DeviceError(f"Triton cannot write its cache: {error}; set TRITON_CACHE_DIR to a writable directory")


def target_of(device: Device) -> Any:
    """Returns Triton's GPUTarget for the device."""
    from triton.backends.compiler import GPUTarget

    arch = device.vendor.compile_target(device.arch, device.index, device.hardware)
    return GPUTarget(device.backend, arch, device.hardware.warp_size or 0)


def check_target(device: Device) -> None:
    """Raises an error if no kernel can be compiled for a device: some releases of Triton would end the process.

    Raises:
        TargetError: this Triton does not compile for the vendor, or not for an absent device, or it interprets.
        CompileError: there is no Triton.
    """
    version, (first, _, last) = triton_version(), (device.profile.triton or "0.0").partition(" to ")
    if device.index is None and not _release(first) <= version <= _release(last or "99.0"):
        fault = f"Triton {version[0]}.{version[1]} does not compile for {device.backend}/{device.arch} without the device"
        raise TargetError(f"{fault}; install Triton {first}{f' to {last}' if last else ' or later'}")
    if interpreting():
        raise TargetError("TRITON_INTERPRET is set, so nothing can be compiled; unset it to plan for another device")
    from triton.backends import backends

    target = target_of(device)
    if not any(backend.compiler.supports_target(target) for backend in backends.values()):
        remedy = device.vendor.missing() or device.vendor.elsewhere
        raise TargetError(f"this Triton's backends ({', '.join(backends)}) do not compile for {device.backend}; {remedy}")


@functools.cache
def triton_version() -> tuple[int, ...]:
    """Returns the major and minor number of Triton's release."""
    try:
        import triton
    except ImportError as error:
        raise CompileError(f"plans require compiled kernels, and Triton cannot be imported: {error}; {INSTALL}") from error
    return _release(triton.__version__)


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


@functools.cache  # a new number of rows of a known bucket needs them as they are
def loaded(problem: Problem, tiling: Tiling, device: Device) -> list[tuple[Kernel, Start]]:
    """Returns the kernels of a tiling on a device, two for one of two launches; raises the errors of `compiled`.

    The problem is that of a bucket, and the tiling that of a plan: its `walk` changes within a bucket if a number of rows has
    more tiles than the device launches programs, and the first such call compiles again.
    """
    return [(kernel, load(kernel, device)) for kernel in kernels_of(problem, tiling, device)]


def load(kernel: Kernel, device: Device) -> Start:
    """Compiles a kernel, loads it onto a device, and returns start(grid, arguments) on the current stream.

    What does not change is looked up once; while profilers' hooks are set, Triton does all of it.
    """
    if device.backend == "interpreter":
        return functools.partial(_interpreted, kernel)
    binary, version, index = compiled(kernel, device), triton_version(), device.index
    with _loading:  # Triton itself would let a second thread see half of it, or a launcher without a function
        on_device(binary._init_handles, device)()
    if version < (3, 5):
        passed = kernel.at_run_time if version < (3, 3) else list  # a compiled kernel is called with its constexprs too
        return lambda grid, arguments: binary[grid](*passed(arguments))
    from triton import knobs
    from triton.runtime import driver

    entering, leaving = knobs.runtime.launch_enter_hook.calls, knobs.runtime.launch_exit_hook.calls  # profilers add to them
    run, current_stream, handles = binary.run, driver.active.get_current_stream, (binary.function, binary.packed_metadata)

    def start(grid: Grid, arguments: Sequence[Any]) -> None:
        if entering or leaving:
            binary[grid](*arguments)
        else:  # these nine arguments are the first from Triton 3.2 to 3.9
            run(*grid, current_stream(index), *handles, None, None, None, *arguments)

    return start


def _interpreted(kernel: Kernel, grid: Grid, arguments: Sequence[Any]) -> None:
    """Calls a kernel in the interpreter, which truncates to bfloat16: torch rounds such a result, the first operand."""
    import numpy as np
    import torch

    result, *others = arguments
    stored = result
    if result.dtype is torch.bfloat16:
        stored = torch.empty_strided(result.shape, result.stride(), dtype=torch.float32)
    with ONE_LAUNCH, np.errstate(all="ignore"):  # a GPU does not warn of nan either
        kernel.function[grid](stored, *others)
    if stored is not result:
        result.copy_(stored)


def on_device(call: Callable[..., Result], device: Device) -> Callable[..., Result]:
    """Returns a call of launches and allocations while the device is the current one; a single device always is."""
    import torch

    module = getattr(torch, device.vendor.torch_device_type)
    if device.index is None or module.device_count() == 1:
        return call

    def within(*arguments: Any, **named: Any) -> Result:
        with module.device(device.index):
            return call(*arguments, **named)

    return within
