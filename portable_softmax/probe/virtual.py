"""Runs the kernel of a device that is not here, in the virtual device of its vendor, and compares the numbers."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import torch

from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError
from portable_softmax.probe.kernel_case import KernelCase, grid_of
from portable_softmax.probe.launched import Launched
from portable_softmax.probe.schema import Verified
from portable_softmax.probe.verify import GUARD, Verification, compared, guarded
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.plans import plan
from portable_softmax.runtime.specialization import KernelSpec
from portable_softmax.runtime.workspace import with_words
from portable_softmax.virtual_amd.faults import Fault, UnknownInstruction

HOW = "executed on a CPU: the machine code, by the virtual device"
MOST_ELEMENTS = 2**19  # of a matrix; a million takes seconds
FEWEST_ROWS = 8  # wide_rows are of several kinds
RESIDENT = 16  # programs at once, so that many take little memory

# Of torch.testing.assert_close: relative, absolute.
TOLERANCES = {torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5), torch.float32: (1.3e-6, 1e-5)}


def verify_softmax(n_rows: int, n_cols: int, dtype: str, device: Device) -> Verified:
    """Runs the planned kernel on as many rows as a CPU computes in seconds, and compares them with float64.

    Returns:
        The distance, and what ran.

    Raises:
        DtypeError, PlanError, CompileError: there is no kernel.
        DeviceError: the virtual device does not know an instruction, or lacks numpy.
        Fault: the kernel did what none should; a PortableSoftmaxError.
    """
    found = plan(n_rows, n_cols, dtype, device)
    problem, tiling = found.problem, found.tiling
    rows = min(n_rows, max(FEWEST_ROWS, tiling.tile_rows, MOST_ELEMENTS // n_cols))
    fewer = dataclasses.replace(problem, n_rows=rows)
    groups = min(fewer.tiles(tiling.tile_rows), found.num_programs // tiling.parts)
    run = _runner(compile_kernel(KernelSpec.of(problem, tiling), device), (groups * tiling.parts, 1, 1))
    x, y = guarded(rows, n_cols, getattr(torch, dtype), "cpu")
    unit = 1 if problem.ragged else problem.vector
    stride = (n_cols + GUARD) // unit
    steps: list[int] = []

    def launch(y: torch.Tensor, x: torch.Tensor, *words: Any) -> None:
        steps.append(run([y, x, rows, n_cols // unit, stride, stride, *[1, 0, 0] * 2, *words]))

    call = with_words(launch, fewer, tiling, x.device) if tiling.is_shared else launch
    call(y, x)
    return _verified(compared(x, y, n_cols), steps[0], rows=rows)


def verify_case(launch: Launched, case: KernelCase) -> Verified:
    """Runs somebody's compiled kernel, and compares tensors with what is expected of them.

    Args:
        launch: the kernel, compiled for the arguments of the case.
        case: the arguments, and what is expected.

    Returns:
        As verify_softmax, without `rows`. An error is allowed that torch.testing.assert_close allows; `overwritten` counts
        elements of the tensors that should stay as they are.

    Raises:
        ValueError: a tensor that is expected is none of the arguments, or nothing is expected.
        DeviceError: the virtual device does not know an instruction, or lacks numpy.
        Fault: the kernel did what none should; a PortableSoftmaxError.
    """
    if not case.expected:
        raise ValueError("the case expects nothing, so there is nothing to verify: (grid, arguments, {NAME: tensor})")
    tensors = {name: value for name, value in case.arguments.items() if isinstance(value, torch.Tensor)}
    if unknown := case.expected.keys() - tensors.keys():
        raise ValueError(f"the case expects {', '.join(sorted(unknown))}, which are no tensors among its arguments")
    before = {name: tensor.clone() for name, tensor in tensors.items() if name not in case.expected}
    values = {name: case.arguments[name] for name in launch.arguments}
    try:
        steps = _runner(launch.compiled, grid_of(launch, case))(list(values.values()))
    except Fault as error:
        raise type(error)(in_the_kernels_words(str(error), launch.compiled.asm["amdgcn"], values)) from error
    errors = {name: _errors(tensors[name], expected) for name, expected in case.expected.items()}
    changed = sum(int((~_same(tensors[name], kept)).sum()) for name, kept in before.items())
    name = max(errors, key=lambda each: errors[each][1])
    worst_at = f"{name}{errors[name][2]}" if errors[name][1] > 1 else msgspec.UNSET
    largest = max(each for each, _, _ in errors.values())
    return _verified(Verification(largest, errors[name][1], changed), steps, worst_at=worst_at)


def in_the_kernels_words(fault: str, assembly: str, arguments: Mapping[str, Any]) -> str:
    """Returns a fault's text with the argument whose memory it is about, and the line of the kernel's own file."""
    tensors = [(name, each.untyped_storage().data_ptr()) for name, each in arguments.items() if isinstance(each, torch.Tensor)]
    storages = list(dict.fromkeys(storage for _, storage in tensors))
    for number, storage in enumerate(storages, 1):
        names = " and ".join(name for name, each in tensors if each == storage)
        fault = re.sub(rf"\ballocation {number}\b", f"the memory of {names}", fault)
    line = re.search(r"line (\d+): ", fault)
    above = assembly.splitlines()[: int(line[1])] if line else []
    files = {number: name for each in above for number, name in re.findall(r'\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"', each)}
    places = [place for each in above for place in re.findall(r"\.loc\s+(\d+)\s+(\d+)", each)]
    return f"{fault} ({files.get(places[-1][0], 'line')}:{places[-1][1]})" if places else fault


def _errors(result: torch.Tensor, expected: torch.Tensor) -> tuple[float, float, list[int]]:
    """Returns the largest error, that in units of what is allowed, and the index of the latter; nan may be expected."""
    relative, absolute = TOLERANCES.get(result.dtype, (1e-7, 1e-7) if result.dtype.is_floating_point else (0, 0.5))
    exact = expected.double()
    error = torch.where(_same(result.double(), exact), 0.0, (result.double() - exact).abs()).nan_to_num(nan=float("inf"))
    units = error / (absolute + relative * exact.abs()).nan_to_num(nan=1.0)
    at = [int(each) for each in torch.unravel_index(units.argmax(), units.shape)]
    return error.max().item(), units.max().item(), at


def _same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one == other) | (one.isnan() & other.isnan())


def _verified(outcome: Verification, steps: int, **also: Any) -> Verified:
    return Verified(**dataclasses.asdict(outcome), right=outcome.right, executed=HOW, instructions=steps, **also)


def _runner(compiled: Any, grid: tuple[int, int, int]) -> Callable[[list[Any]], int]:
    """Returns what runs a compiled kernel on its arguments by position, and counts the instructions."""
    try:
        from portable_softmax.virtual_amd.run import run
    except ImportError as error:
        raise DeviceError(f"the virtual device needs numpy: pip install numpy ({error})") from error
    sizes = {"num_warps": compiled.metadata.num_warps, "shared_bytes": compiled.metadata.shared}

    def counted(arguments: list[Any]) -> int:
        try:
            return run(compiled.asm["amdgcn"], grid, arguments, resident=RESIDENT, most_steps=10**9, **sizes)
        except UnknownInstruction as error:
            raise DeviceError(f"the virtual device cannot run this kernel: {error}") from error

    return counted
