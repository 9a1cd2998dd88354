"""A pytest plugin, which `-p no:portable_probe.testing` disables, and an assertion about occupancy for any test runner."""

import unittest
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from portable_probe.explain import AtLeast, next_step, required_programs, unmet
from portable_softmax.devices.backends.base import Occupancy
from portable_softmax.devices.detect import chosen
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, TargetError
from portable_softmax.row_kernels.decorators import jit_function
from portable_softmax.row_kernels.inspection import inspect_kernel

if find_spec("pytest"):  # the assertion does not require it
    from portable_probe.testing.plugin import *  # noqa: F403 (fixtures and hooks, which pytest finds here)

__all__ = ["assert_occupancy"]


def assert_occupancy(
    kernel: Any,
    device: Device | str | None = None,
    *,
    signature: Mapping[str, Any],
    constexprs: Mapping[str, Any] | None = None,
    config: int | None = None,
    at_least: AtLeast = 1,
    no_spills: bool = True,
    **options: Any,
) -> Occupancy:
    """Compiles a kernel as Triton launches it, and asserts how many of its programs a multiprocessor holds.

    Args:
        kernel: the @triton.jit function, with its decorators.
        device: a Device, or a name as of --on; None is the current device.
        signature: arguments by name: values, or text such as "f16[4096,4096]" and "i32:16", as in `inspect_kernel`.
        constexprs: values of the constexprs, by name.
        config: index of a configuration of @triton.autotune.
        at_least: programs per multiprocessor, or a dict of them by backend, which has the device's: {"cuda": 8, "npu": 1}.
        no_spills: True to require that no register is spilled to memory.
        options: options of Triton's backend, such as num_warps.

    Returns:
        Programs per multiprocessor, with their limits.

    Raises:
        AssertionError: the kernel does not compile, registers are spilled, or there are fewer programs.
        unittest.SkipTest: this Triton does not compile for the device.
        ValueError: `at_least` is below 1, or has no number for the device's backend.
        TypeError, ProfileError, ValueError: as in `inspect_kernel`.
    """
    __tracebackhide__ = True  # the failure is reported in the test that asserts
    device = chosen(device)
    if device.backend == "interpreter":
        raise unittest.SkipTest("Triton's interpreter compiles nothing; --on NAME compiles for an absent device")
    jit, required = jit_function(kernel), required_programs(at_least, device)
    name = f"{jit.__module__}:{jit.__name__} on {device.name}"
    try:
        used, occupancy, _ = inspect_kernel(kernel, signature, constexprs, device=device, config=config, **options)
    except TargetError as error:
        raise unittest.SkipTest(str(error)) from None
    except CompileError as error:
        raise AssertionError(f"{name} does not compile: {error}") from None
    resident, word = occupancy.programs_per_multiprocessor, device.profile.multiprocessor
    spilled = used.spilled_bytes_per_thread if no_spills else 0
    if missed := unmet(spilled, resident, occupancy.limited_by, word, required):
        raise AssertionError(f"{name}: {missed}\nnext step {next_step(used, device)}\nuses      {used}")
    return occupancy
