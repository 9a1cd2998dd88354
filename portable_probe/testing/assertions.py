"""An assertion about the resources of a compiled kernel, for devices on this machine or elsewhere."""

import unittest
from collections.abc import Callable, Mapping
from typing import Any

from portable_probe.explain import next_step
from portable_probe.kernel_case import KernelCase, grid_of, refused_grid
from portable_softmax.devices.backends.base import Occupancy
from portable_softmax.devices.detect import chosen
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, TargetError
from portable_softmax.row_kernels.decorators import jit_function
from portable_softmax.row_kernels.inspection import Inspected, inspect_kernel


def assert_occupancy(
    kernel: Any,
    device: Device | str | None = None,
    *,
    signature: Mapping[str, Any],
    constexprs: Mapping[str, Any] | None = None,
    config: int | None = None,
    at_least: int = 1,
    no_spills: bool = True,
    grid: tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]] | None = None,
    **options: Any,
) -> Occupancy:
    """Compiles a kernel as Triton launches it, and asserts how many of its programs a multiprocessor holds.

    Args:
        kernel: the @triton.jit function, with its decorators.
        device: the device; None is the current one. A profile's name gives a device that need not be on this machine.
        signature: arguments by name, or words for them such as "f16[4096,4096]" and "i32:16", as `inspect_kernel` takes them.
        constexprs: values of the constexprs, by name.
        config: number of one of the configurations of @triton.autotune.
        at_least: programs per multiprocessor.
        no_spills: True if no register may be spilled to memory; data of a thread's own may be there, as in a sine.
        grid: numbers of programs that the device should take, or a function of the arguments that returns them.
        options: of Triton's backend, such as num_warps; None takes those of a decorator, or Triton's own.

    Returns:
        Programs per multiprocessor, with their limits.

    Raises:
        AssertionError: the device does not take the grid, registers are spilled, or there are fewer programs, in this order; or
            the kernel does not compile.
        TypeError, ProfileError, ValueError: as in `inspect_kernel`.
    """
    __tracebackhide__ = True  # a failure stands in the test that asserts
    device = _compiled_for(device)
    resources, found, launch = _inspected(kernel, signature, constexprs or {}, device, config, options)
    name, word = _name(kernel), device.profile.multiprocessor
    if grid is not None:
        case = KernelCase(grid, {**signature, **(constexprs or {}), **options})
        if refused := refused_grid(launch, grid_of(launch, case), device):
            raise AssertionError(f"{name}: {refused}")
    if no_spills and resources.spilled_bytes_per_thread:
        raise AssertionError(f"{name} on {device.name} spills {resources.spilled_bytes_per_thread} bytes per thread")
    if found.programs_per_multiprocessor < at_least:
        raise AssertionError(
            f"{name} on {device.name}: {found.programs_per_multiprocessor} programs per {word}, and at least {at_least} are "
            f"asked for; limited by {' and '.join(found.limited_by)}\n"
            f"next step {next_step(resources, device).text}\nuses      {resources}"
        )
    return found


def _inspected(
    kernel: Any,
    signature: Mapping[str, Any],
    constexprs: Mapping[str, Any],
    device: Device,
    config: int | None,
    options: Mapping[str, Any],
) -> Inspected:
    """Compiles a kernel; what the compiler says is the test's failure, and a Triton that cannot is a reason to skip it."""
    __tracebackhide__ = True
    try:
        return inspect_kernel(kernel, signature, constexprs, device=device, config=config, **options)
    except TargetError as error:
        raise unittest.SkipTest(str(error)) from None
    except CompileError as error:
        raise AssertionError(f"it does not compile: {error}") from None


def _name(kernel: Any) -> str:
    inner = jit_function(kernel)
    return f"{inner.__module__}:{inner.__name__}"


def _compiled_for(device: Device | str | None) -> Device:
    """Returns a device that Triton compiles for. It skips the test in the interpreter, which compiles nothing."""
    found = chosen(device)
    if found.backend == "interpreter":
        raise unittest.SkipTest("Triton's interpreter compiles nothing; --on NAME asserts for a device that is not here")
    return found
