"""Launches of a kernel for which all is decided but the operands."""

from collections.abc import Callable, Sequence
from typing import Any

from portable_softmax.devices.backends.base import DirectLaunch
from portable_softmax.devices.detect import interpreting
from portable_softmax.devices.device import Device
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.compiler import launcher, load, triton_version
from portable_softmax.runtime.interpreted import interpreted
from portable_softmax.runtime.kernel_form import constexprs_of
from portable_softmax.runtime.specialization import KernelSpec


def prepare(spec: KernelSpec, device: Device, grid: tuple[int, int, int], sizes: Sequence[int]) -> Callable[..., None]:
    """Compiles a kernel, and returns its launch on the current stream of the device, which must be the current one (guard.py).

    Args:
        spec: the kernel.
        device: where it runs.
        grid: numbers of programs.
        sizes: values of the parameters from n_lines on that there are, but for the words and the number of a launch.

    Returns:
        launch(*operands), with the launch's own words and number after them where rows are shared. It is the vendor's own where
        there is one and no profiler's hook is set, and else Triton's.

    Raises:
        CompileError: see compiler.compile_for.
    """
    kinds = tuple(spec.signature().values())
    n_operands = next(at for at, kind in enumerate(kinds) if not kind.startswith("*"))
    if interpreting():
        return interpreted(spec, device, grid, sizes, n_operands)
    compiled, device_index = compile_kernel(spec, device), device.index
    by_triton = launcher(compiled, constexprs_of(spec, device), device_index)
    if triton_version() < (3, 5):
        return lambda *given: by_triton(grid, *given[:n_operands], *sizes, *given[n_operands:])
    from triton import knobs
    from triton.runtime import driver

    entering, leaving = knobs.runtime.launch_enter_hook.calls, knobs.runtime.launch_exit_hook.calls  # profilers add to them
    current_stream = driver.active.get_current_stream
    direct: DirectLaunch | None = None
    loaded = False

    def launch(*given: Any) -> None:
        nonlocal direct, loaded
        if direct and not entering and not leaving:
            direct(current_stream(device_index), given)
        elif loaded:
            by_triton(grid, *given[:n_operands], *sizes, *given[n_operands:])
        else:
            load(compiled)
            direct, loaded = device.vendor.direct_launch(compiled, kinds, grid, sizes), True
            launch(*given)

    return launch
