"""Launches of a kernel for which all is decided but the operands."""

from collections.abc import Callable, Sequence

from portable_softmax.devices.detect import interpreting
from portable_softmax.devices.device import Device
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.compiler import launcher
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
        launch(*operands), with the launch's own words and number after them where rows are shared.

    Raises:
        CompileError: see compiler.compile_for.
    """
    kinds = tuple(spec.signature().values())
    n_operands = next(at for at, kind in enumerate(kinds) if not kind.startswith("*"))
    if interpreting():
        return interpreted(spec, device, grid, sizes, n_operands)
    launch = launcher(compile_kernel(spec, device), constexprs_of(spec, device), device.index)
    return lambda *operands: launch(grid, *operands[:n_operands], *sizes, *operands[n_operands:])
