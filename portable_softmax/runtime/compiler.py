"""Compiles any Triton kernel for any target, here or not, with Triton 3.2 to 3.9 and triton-ascend 3.2.

A signature names the type of each run-time parameter as Triton's ahead-of-time compiler does: `*fp32:16` is a pointer to
fp32 that starts on a multiple of 16 bytes, `i32:16` an integer that is a multiple of 16.
"""

import functools
import operator
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from portable_softmax.devices.detect import INSTALL, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, DeviceError, TargetError

# A descriptor's layout, which may stand behind its shape, is Python, and Triton evaluates it: reports must not bring any.
DESCRIPTOR = r"tensordesc<\w+\[[0-9]+(, *[0-9]+)*\]>"
TYPE = re.compile(rf"((\*k?)*(B|[iu]1|[iu](8|16|32|64)|fp(16|32|64)|bf16|fp8e\w+)|{DESCRIPTOR}|nvTmaDesc)(:16)?")
_loading = threading.Lock()


def compile_for(
    device: Device,
    kernel: Any,
    signature: Mapping[str, str],
    constexprs: Mapping[str, Any],
    num_warps: int | None,
    num_stages: int | None,
    max_registers: int | None = None,
    tuples: bool = False,
) -> Any:
    """Compiles a @triton.jit function for the device's architecture, and returns Triton's CompiledKernel.

    Args:
        device: the target; it need not be here.
        kernel: the @triton.jit function.
        signature: types of the run-time parameters, by name.
        constexprs: values of the others, by name.
        num_warps, num_stages: Triton's options; None leaves them to the vendor's default.
        max_registers: registers of a thread; what does not fit them is spilled. None leaves it to the compiler.
        tuples: True if the kernel keeps tensors in tuples.

    Raises:
        CompileError: in the compiler's own words, or because this Triton cannot compile for the architecture offline.
        DeviceError: Triton's cache cannot be written.
    """
    target = target_to_compile_for(device)
    import triton

    if tuples and triton_version() < (3, 3):
        raise CompileError("this Triton has no tuples of tensors; install Triton 3.3 or later")
    options = device.vendor.compile_options(num_warps, num_stages, max_registers, device.hardware)
    try:
        return triton.compile(source_of(kernel, signature, constexprs), target=target, options=options)
    except OSError as error:
        raise unwritable(error) from error
    except Exception as error:  # every stage of every backend has its own exceptions
        types = ", ".join(signature.values())
        raise CompileError(f"{kernel.__name__}({types}) for {device.backend}/{device.arch}: {error}") from error


def unwritable(error: OSError) -> DeviceError:
    """Returns the error of a process whose compiled kernels cannot be kept."""
    return DeviceError(f"Triton cannot write its cache: {error}; set TRITON_CACHE_DIR to a writable directory")


def target_of(device: Device) -> Any:
    """Returns Triton's GPUTarget for the device."""
    from triton.backends.compiler import GPUTarget

    arch = device.vendor.compile_target(device.arch, device.index, device.hardware)
    return GPUTarget(device.backend, arch, device.hardware.warp_size or 0)


def target_to_compile_for(device: Device) -> Any:
    """Returns Triton's GPUTarget for the device, for which this process can compile.

    Raises:
        TargetError: this Triton does not compile for it.
        CompileError: it interprets.
    """
    triton_version()  # raises an error if there is no Triton
    check_target(device)
    check_compiles()
    from triton.backends import backends

    target = target_of(device)
    if not any(backend.compiler.supports_target(target) for backend in backends.values()):
        names, remedy = ", ".join(backends), device.vendor.missing() or device.vendor.elsewhere
        raise TargetError(f"this Triton's backends ({names}) do not compile for {device.backend}; {remedy}")
    return target


def check_compiles() -> None:
    """Raises a CompileError if Triton's interpreter replaces all devices."""
    if interpreting():
        raise CompileError("TRITON_INTERPRET is set, so nothing can be compiled; unset it to plan for another device")


def check_target(device: Device) -> None:
    """Raises TargetError for a device that this Triton does not support: some releases would end the process.

    Raises:
        TargetError: this release is too old or too new for the device, which is absent.
    """
    releases, version = device.profile.triton or "0.0", triton_version()
    first, last = (tuple(map(int, release.split(".")[:2])) for release in f"{releases} to 99.0".split(" to ")[:2])
    if device.index is None and not first <= version <= last:
        raise TargetError(
            f"Triton {'.'.join(map(str, version))} does not compile for {device.backend}/{device.arch} without the device; "
            f"install Triton {releases}{' or later' if ' to ' not in releases else ''}"
        )


def launcher(
    compiled: Any, constexprs: Mapping[str, Any], device_index: int | None, operands: Sequence[str] = (),
    sizes: Mapping[str, int] | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Returns `launch(grid, *arguments)` of a compiled kernel, for the current stream of the device.

    The device must be the current one when it is called. What does not change is looked up once; while profilers' hooks are
    set, Triton does all of it.

    Args:
        compiled: Triton's CompiledKernel.
        constexprs: values of constexprs, by name.
        device_index: Triton's number of the device.
        operands: names of the arguments of `launch`; by default all run-time parameters, in the kernel's order.
        sizes: values of the run-time parameters that are no operands, by name; more than the kernel has are allowed.
    """
    names = compiled.src.fn.arg_names
    operands = operands or [name for name in names if name not in constexprs]
    fixed = {**(sizes or {}), **constexprs}
    passed, constants = [*operands, *fixed], tuple(fixed.values())
    if triton_version() < (3, 3):  # from then on, a compiled kernel is called with its constexprs too
        names = [name for name in names if name not in constexprs]
    in_place = operator.itemgetter(*map(passed.index, names))
    if triton_version() < (3, 5):
        return lambda grid, *arguments: compiled[grid](*in_place((*arguments, *constants)))
    from triton import knobs
    from triton.runtime import driver

    entering, leaving = knobs.runtime.launch_enter_hook.calls, knobs.runtime.launch_exit_hook.calls  # profilers add to them
    current_stream = driver.active.get_current_stream
    run: Callable[..., Any] | None = None

    def launch(grid: tuple[int, int, int], *arguments: Any) -> None:
        nonlocal run
        if entering or leaving:
            compiled[grid](*in_place((*arguments, *constants)))
            return
        if run is None:
            load(compiled)
            run = compiled.run
        stream = current_stream(device_index)
        # These nine arguments are the first from Triton 3.2 to 3.9.
        run(*grid, stream, compiled.function, compiled.packed_metadata, None, None, None, *in_place((*arguments, *constants)))

    return launch


def load(compiled: Any) -> None:
    """Loads a compiled kernel onto the current device, once; Triton itself would let a second thread see half of it."""
    with _loading:
        compiled._init_handles()  # `run` would be a launcher without a function after a load that failed


def source_of(kernel: Any, signature: Mapping[str, str], constexprs: Mapping[str, Any]) -> Any:
    """Returns Triton's source of a kernel; arguments as of `compile_for`."""
    from triton.compiler import ASTSource

    names = kernel.arg_names
    if unknown := (signature.keys() | constexprs.keys()) ^ set(names):
        raise TypeError(f"parameters are {', '.join(names)}; one side lacks {', '.join(sorted(unknown))}")
    if both := signature.keys() & constexprs.keys():
        raise TypeError(f"{', '.join(sorted(both))} should have a type or the value of a constexpr, not both")
    if wrong := [f"{name}={kind}" for name, kind in signature.items() if not TYPE.fullmatch(kind)]:
        raise TypeError(
            f"{', '.join(wrong)}: a type is one of Triton's, such as i32, fp16 or *bf16; "
            "with :16 behind it, and no other number, a multiple of 16 (bytes, of a pointer)"
        )
    types = {name: kind.partition(":")[0] for name, kind in signature.items()}
    aligned = [names.index(name) for name, kind in signature.items() if kind.endswith(":16")]
    if triton_version() < (3, 3):
        from triton.backends.compiler import AttrsDescriptor

        attributes = AttrsDescriptor.from_hints(dict.fromkeys(aligned, 16))
        return ASTSource(kernel, signature=types, constants=dict(constexprs), attrs=attributes)
    return ASTSource(
        kernel,
        signature={name: types.get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): value for name, value in constexprs.items()},
        attrs={(index,): [["tt.divisibility", 16]] for index in aligned},
    )


@functools.cache
def triton_version() -> tuple[int, int]:
    """Returns the major and minor number of Triton's release."""
    try:
        import triton
    except ImportError as error:
        raise CompileError(f"plans require compiled kernels, and Triton cannot be imported: {error}; {INSTALL}") from error
    major, minor = triton.__version__.split(".")[:2]
    return int(major), int(minor)
