"""Launches of a kernel that are complete but for the operands."""

import functools
import operator
from collections.abc import Callable, Mapping

from portable_softmax.devices.detect import interpreting
from portable_softmax.devices.device import Device
from portable_softmax.runtime.compiled import compiled_with
from portable_softmax.runtime.compiler import launcher
from portable_softmax.runtime.interpreted import interpreted
from portable_softmax.runtime.kernel_form import signature_of
from portable_softmax.runtime.specialization import KernelSpec


def prepare(spec: KernelSpec, device: Device, grid: tuple[int, int, int], sizes: Mapping[str, int]) -> Callable[..., None]:
    """Compiles a kernel, and returns its launch on the current stream of the device, which must be the current one (guard.py).

    Args:
        spec: the kernel.
        device: where it runs.
        grid: numbers of programs.
        sizes: values of the integer parameters, by name; more than the kernel has are allowed.

    Returns:
        launch(*operands): tensors, then numbers, in the order of the spec, with what the launch adds after them.

    Raises:
        CompileError: see compiler.compile_for.
    """
    if interpreting():
        return interpreted(spec, device, grid, *arranged(spec, sizes))
    operands = *spec.tensors(), *spec.numbers(), *spec.words()
    launch = launcher(*compiled_with(spec, device), device.index, operands, sizes)
    return functools.partial(launch, grid)


def arranged(spec: KernelSpec, sizes: Mapping[str, int]) -> tuple[Callable[..., tuple[object, ...]], tuple[int, ...]]:
    """Returns (a function that orders operands and sizes like the kernel's parameters, these sizes)."""
    names = tuple(signature_of(spec))
    operands = (*spec.tensors(), *spec.numbers(), *spec.words())
    fixed = tuple(name for name in names if name not in operands)
    places = [*operands, *fixed]
    return operator.itemgetter(*(places.index(name) for name in names)), tuple(sizes[name] for name in fixed)
