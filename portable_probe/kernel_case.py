"""A launch of somebody's kernel, which a function of the kernel's file makes: --case NAME."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from portable_probe.loading import KernelFile
from portable_softmax.devices.device import Device
from portable_softmax.devices.grid import Grid, refusal
from portable_softmax.row_kernels.arguments import argument_of, constant_of
from portable_softmax.row_kernels.decorators import constexprs_of
from portable_softmax.row_kernels.fits import too_many_together
from portable_softmax.row_kernels.launched import Launched


class KernelCase(NamedTuple):
    """A launch, and what should come out.

    Args:
        grid: numbers of programs, up to three, or a function of the arguments that returns them.
        arguments: what `kernel[grid](...)` is called with, by name: numbers, tensors on the CPU, constexprs and options.
        expected: contents of tensors afterwards, by name of the parameter; all others should stay as they are.
    """

    grid: tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]]
    arguments: Mapping[str, Any]
    expected: Mapping[str, Any] = {}


def load_case(file: KernelFile, name: str) -> KernelCase:
    """Calls the function of a kernel's file that makes its case.

    Raises:
        ValueError: there is no such function, or it gives no case.
    """
    make = getattr(file.module, name, None)
    if not callable(make):
        raise ValueError(f"{file.module.__file__} has no function {name!r} that makes a case")
    made = make()
    try:
        case = KernelCase(*made)
    except TypeError as error:
        raise ValueError(f"{name}() should return (grid, arguments, expected): {error}") from error
    if not (callable(case.grid) or isinstance(case.grid, tuple)) or not isinstance(case.arguments, Mapping):
        raise ValueError(f"{name}() should return (grid, arguments, expected): a tuple, a dict and a dict, not {made!r:.80}")
    return case


def with_values(case: KernelCase, jit: Any, words: Mapping[str, Any]) -> KernelCase:
    """Returns a case with the values that words give; a type or the shape of a tensor leaves the case's own value."""
    constants = constexprs_of(jit)
    read = {name: argument_of(name, text) for name, text in words.items() if name not in constants}
    values = {name: each.value for name, each in read.items() if not (each.kind or hasattr(each.value, "dtype"))}
    values |= {name: constant_of(text) for name, text in words.items() if name in constants}
    return case._replace(arguments={**case.arguments, **values})


def grid_of(launch: Launched, case: KernelCase) -> Grid:
    """Returns the grid of a launch, which may follow from the constants that decorators chose."""
    constants = {name: chosen.value for name, chosen in launch.constants.items()}
    grid = case.grid({**case.arguments, **constants}) if callable(case.grid) else case.grid
    width, height, depth = (*grid, 1, 1)[:3]
    return width, height, depth


def refused_grid(launch: Launched, grid: Grid, device: Device) -> str | None:
    """Says why the device does not take the grid of a launch; None if it does."""
    blocks = launch.options.get("num_ctas")
    refused = refusal(device, grid, launch.compiled.metadata.num_warps, blocks.value if blocks else 1)
    return refused or too_many_together(launch.compiled, grid, device)
