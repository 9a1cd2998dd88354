"""Runs kernels of absent AMD devices on the emulator amdgcn-cpu, a distribution of its own."""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import torch

from portable_probe.report import SoftmaxProblem
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError, KernelError
from portable_softmax.operators import launch as operators_launch
from portable_softmax.planning.grid import read_as
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.problem import Problem
from portable_softmax.row_kernels.inspection import Launched
from portable_softmax.runtime import launch as runtime_launch
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.plans import plan_problem
from portable_softmax.runtime.prepared import arranged
from portable_softmax.runtime.specialization import KernelSpec

MAX_ELEMENTS = 2**19  # of a matrix; a million takes seconds
MIN_ROWS = 8  # verify.wide_rows are of several kinds
RESIDENT = 16  # programs at once, so that many take little memory


def rows_of(case: SoftmaxProblem, launch_plan: LaunchPlan) -> int:
    """Returns as many rows of a softmax as the emulator computes in seconds."""
    return min(case.n_rows, max(MIN_ROWS, launch_plan.tiling.tile_rows, MAX_ELEMENTS // case.n_cols))


def allocated(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor whose memory ends after a whole vector, as that of devices does; kernels may read such a vector."""
    size = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) + 1
    return torch.full((size + 16,), torch.nan, dtype=dtype).as_strided(shape, strides)


@contextlib.contextmanager
def emulated(launch_plan: LaunchPlan, device: Device) -> Iterator[list[int]]:
    """Makes calls of this package on CPU tensors run on the emulator, in this process; yields the instructions of each launch.

    Args:
        launch_plan: the plan of such calls in its direction, forward or backward, for more rows.
        device: the emulated device.
    """
    steps: list[int] = []

    def prepared(spec: KernelSpec, device: Device, grid: tuple[int, int, int], sizes: Mapping[str, int]) -> Callable[..., None]:
        run, (in_order, fixed) = _runner(compile_kernel(spec, device), grid), arranged(spec, sizes)
        return lambda *operands: steps.append(run([*in_order((*operands, *fixed))]))

    def planned(problem: Problem, device: Device) -> LaunchPlan:
        if problem.backward != launch_plan.problem.backward:
            return plan_problem(problem, device)
        fewer, splits = read_as(problem, launch_plan.problem, device), launch_plan.tiling.splits
        groups = min(fewer.tiles(launch_plan.tiling.tile_rows), launch_plan.num_programs // splits)
        return dataclasses.replace(launch_plan, problem=fewer, num_programs=groups * splits)

    here: dict[str, Any] = {"_is_launched": lambda *_: True, "device_of": lambda _: device, "allocator": lambda _: allocated}
    bind_tiling = functools.partial(runtime_launch.bind_tiling, prepared=prepared)
    with (
        mock.patch.multiple(runtime_launch, bind_tiling=bind_tiling, plan_problem=planned),
        mock.patch.multiple(operators_launch, **here),
        mock.patch.dict(operators_launch.calls, clear=True),
    ):
        yield steps


def run_case(launch: Launched, case: Any, device: Device) -> str:
    """Runs a compiled user kernel on the tensors of its KernelCase, and returns what ran.

    Raises:
        DeviceError: the emulator does not know an instruction, or is not installed.
        KernelError: the kernel did what none should.
    """
    values = {name: case.arguments[name] for name in launch.arguments}
    grid = case.grid_for({name: constant.value for name, constant in launch.constants.items()})
    try:
        return executed(device, _runner(launch.compiled, grid)(list(values.values())))
    except KernelError as error:
        raise KernelError(in_the_kernels_words(str(error), launch.compiled.asm["amdgcn"], values)) from error


def executed(device: Device, steps: int) -> str:
    """Returns what a report says about a run."""
    return f"ran {device.arch} code on a CPU emulator, {steps} wave instructions"


def in_the_kernels_words(fault: str, assembly: str, arguments: Mapping[str, Any]) -> str:
    """Returns a fault's text with the argument whose memory it is about, and the line of the kernel's own file."""
    names: dict[int, list[str]] = {}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            names.setdefault(value.untyped_storage().data_ptr(), []).append(name)
    for number, sharing in enumerate(names.values(), 1):
        fault = re.sub(rf"\ballocation {number}\b", f"the memory of {' and '.join(sharing)}", fault)
    line = re.search(r"line (\d+): ", fault)
    above = "\n".join(assembly.splitlines()[: int(line[1])] if line else [])
    files = dict(re.findall(r'\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"', above))
    places = re.findall(r"\.loc\s+(\d+)\s+(\d+)", above)
    return f"{fault} ({files.get(places[-1][0], 'line')}:{places[-1][1]})" if places else fault


def _runner(compiled: Any, grid: tuple[int, int, int]) -> Callable[[list[Any]], int]:
    """Returns what runs a compiled kernel on its arguments by position, and counts the instructions."""
    try:
        from amdgcn_cpu import Fault, UnknownInstruction, run
    except ImportError as error:
        raise DeviceError(
            f"the emulator is not installed ({error}): pip install ./amdgcn_cpu in a clone of this project"
        ) from error
    sizes = {"num_warps": compiled.metadata.num_warps, "shared_bytes": compiled.metadata.shared}

    def counted(arguments: list[Any]) -> int:
        try:
            return run(compiled.asm["amdgcn"], grid, arguments, resident=RESIDENT, most_steps=10**9, **sizes)
        except UnknownInstruction as error:
            raise DeviceError(f"the emulator does not know an instruction of this kernel: {error}") from error
        except Fault as error:
            raise KernelError(f"{type(error).__name__}: {error}") from error

    return counted
