"""Launches of a kernel for which all is decided but the operands."""

from collections.abc import Callable, Sequence
from typing import Any

from portable_softmax.devices.backends.base import DirectLaunch
from portable_softmax.devices.detect import interpreting
from portable_softmax.devices.device import Device
from portable_softmax.runtime.compiler import launcher, load, triton_version
from portable_softmax.runtime.interpreted import interpreted
from portable_softmax.runtime.specialization import KernelSpec, compile_kernel


def prepare(spec: KernelSpec, device: Device, grid: tuple[int, int, int], sizes: Sequence[int]) -> Callable[..., None]:
    """Compiles a kernel, and returns its launch on the current stream of the device, which must be the current one (guard.py).

    Args:
        spec: the kernel.
        device: where it runs.
        grid: numbers of programs.
        sizes: values of the parameters from n_lines on, but for the words and the number of a launch.

    Returns:
        launch(*operands), with the launch's own words and number after them where rows are shared.

    Raises:
        CompileError: see compiler.compile_for.
    """
    kinds = tuple(spec.signature().values())
    n_operands = next(at for at, kind in enumerate(kinds) if not kind.startswith("*"))
    if interpreting():
        return interpreted(spec, device, grid, sizes, n_operands)
    compiled = compile_kernel(spec, device)
    launch = launcher(compiled, spec.constexprs(device), device.index)

    def by_triton(*given: Any) -> None:
        launch(grid, *given[:n_operands], *sizes, *given[n_operands:])

    if triton_version() < (3, 5):
        return by_triton
    find = lambda: device.vendor.direct_launch(compiled, kinds, grid, sizes)  # noqa: E731 - asked when the kernel is loaded
    return _directly(by_triton, find, compiled, device.index)


def _directly(
    by_triton: Callable[..., None], find: Callable[[], DirectLaunch | None], compiled: Any, device_index: int | None
) -> Callable[..., None]:
    """Returns the vendor's own launch; Triton's where there is none, and while profilers' hooks are set."""
    from triton import knobs
    from triton.runtime import driver

    entering, leaving = knobs.runtime.launch_enter_hook.calls, knobs.runtime.launch_exit_hook.calls  # profilers add to them
    current_stream = driver.active.get_current_stream
    found: list[DirectLaunch | None] = []
    direct: list[DirectLaunch] = []

    def launch(*given: Any) -> None:
        if direct and not entering and not leaving:
            direct[0](current_stream(device_index), given)
        elif found:
            by_triton(*given)
        else:
            load(compiled)
            found.append(find())
            direct.extend(each for each in found if each)
            launch(*given)

    return launch
