"""Runs the kernel of a device that is not here in the emulator of its vendor's code, a distribution of its own: amdgcn-cpu."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import torch

from portable_probe.kernel_case import KernelCase, grid_of
from portable_probe.report_types import SoftmaxProblem, Verified
from portable_probe.trial import trial
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError, KernelError
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.reading import read_as
from portable_softmax.row_kernels.launched import Launched
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.launch import bind_tiling, sizes_of
from portable_softmax.runtime.prepared import arranged
from portable_softmax.runtime.specialization import KernelSpec

MOST_ELEMENTS = 2**19  # of a matrix; a million takes seconds
FEWEST_ROWS = 8  # wide_rows are of several kinds
RESIDENT = 16  # programs at once, so that many take little memory


def verify_softmax(case: SoftmaxProblem, found: LaunchPlan, device: Device) -> Verified:
    """Runs the planned kernel on as many rows as a CPU computes in seconds, and compares them with float64.

    Returns:
        The distance, and what ran.

    Raises:
        CompileError: there is no kernel.
        DeviceError: the emulator does not know an instruction, or is not installed.
        KernelError: the kernel did what none should.
    """
    tiling = found.tiling
    rows = min(case.n_rows, max(FEWEST_ROWS, tiling.tile_rows, MOST_ELEMENTS // case.n_cols))
    tried = trial(case, rows, device, "cpu")
    fewer = read_as(tried.problem, found.problem, device)
    groups = min(fewer.tiles(tiling.tile_rows), found.num_programs // tiling.splits)
    steps: list[int] = []

    def prepared(spec: KernelSpec, device: Device, grid: tuple[int, int, int], sizes: Mapping[str, int]) -> Callable[..., None]:
        run, (in_order, fixed) = _runner(compile_kernel(spec, device), grid), arranged(spec, sizes)
        return lambda *operands: steps.append(run([*in_order((*operands, *fixed))]))

    call = bind_tiling(fewer, tiling, groups * tiling.splits, sizes_of(fewer), device, torch.device("cpu"), prepared)
    call(*tried.operands, *tried.numbers)
    return msgspec.structs.replace(tried.compared(), rows=rows, **executed(device, sum(steps)))


def run_case(launch: Launched, case: KernelCase, device: Device) -> dict[str, Any]:
    """Runs somebody's compiled kernel on the tensors of its case, and returns what ran.

    Raises:
        DeviceError: the emulator does not know an instruction, or is not installed.
        KernelError: the kernel did what none should.
    """
    values = {name: case.arguments[name] for name in launch.arguments}
    try:
        return executed(device, _runner(launch.compiled, grid_of(launch, case))(list(values.values())))
    except KernelError as error:
        raise KernelError(in_the_kernels_words(str(error), launch.compiled.asm["amdgcn"], values)) from error


def executed(device: Device, steps: int) -> dict[str, Any]:
    """Returns what a report says of a run."""
    return {"executed": f"ran {device.arch} code on a CPU emulator", "instructions": steps}


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


def _runner(compiled: Any, grid: tuple[int, int, int]) -> Callable[[list[Any]], int]:
    """Returns what runs a compiled kernel on its arguments by position, and counts the instructions."""
    try:
        from amdgcn_cpu import Fault, UnknownInstruction, run
    except ImportError as error:
        raise DeviceError(f"the emulator is not installed ({error}): README.md, Install, says how to get amdgcn-cpu") from error
    sizes = {"num_warps": compiled.metadata.num_warps, "shared_bytes": compiled.metadata.shared}

    def counted(arguments: list[Any]) -> int:
        try:
            return run(compiled.asm["amdgcn"], grid, arguments, resident=RESIDENT, most_steps=10**9, **sizes)
        except UnknownInstruction as error:
            raise DeviceError(f"the virtual device cannot run this kernel: it knows not all instructions ({error})") from error
        except Fault as error:
            raise KernelError(f"{type(error).__name__}: {error}") from error

    return counted
