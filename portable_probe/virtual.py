"""Runs kernels of absent AMD devices on the emulator amdgcn-cpu, a separate distribution."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError, KernelError
from portable_softmax.planning.operands import contiguous_problem
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.row_kernels.inspection import Launched
from portable_softmax.runtime.bind import bind
from portable_softmax.runtime.compile import Start, compiled
from portable_softmax.runtime.kernel import Kernel, kernels_of

RAN = "ran {} code on a CPU emulator, {} wave instructions"
RESIDENT = 16  # programs at once, so that many take little memory


def run_softmax(launch_plan: LaunchPlan, operands: Sequence[torch.Tensor], device: Device) -> str:
    """Runs the planned softmax of rows of contiguous matrices (result, x), or its gradient (result, dy, y); says what ran."""
    steps: list[int] = []

    def load(kernel: Kernel) -> Start:
        return lambda grid, arguments: steps.append(_run(compiled(kernel, device), grid, kernel.at_run_time(arguments)))

    (n_rows, n_cols), planned = operands[0].shape, launch_plan.problem
    fewer_rows = contiguous_problem(n_rows, n_cols, planned.x_dtype, backward=planned.backward)
    plan = launch_plan.resized(fewer_rows)
    kernels = kernels_of(plan.problem, plan.tiling, device)
    names = ("result_ptr", "dy_ptr", "y_ptr") if planned.backward else ("result_ptr", "x_ptr")
    named = dict(zip(names, operands, strict=True))
    launch = bind(plan, [(kernel, load(kernel)) for kernel in kernels], operands[0].device)
    launch(*map(named.get, kernels[0].operands))
    return f"{RAN.format(device.arch, sum(steps))} for {n_rows} rows"


def run_case(launch: Launched, case: Any, device: Device) -> str:
    """Runs a compiled user kernel on the tensors of its KernelCase, and returns what ran.

    DeviceError, KernelError: the emulator does not support an instruction or is not installed, or detected a fault.
    """
    values = {name: case.arguments[name] for name in launch.arguments}
    try:
        return RAN.format(device.arch, _run(launch.compiled, case.grid_for(launch.constants), [*values.values()]))
    except KernelError as error:
        raise KernelError(in_the_kernels_words(str(error), launch.compiled.asm["amdgcn"], values)) from error


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


def _run(compiled: Any, grid: tuple[int, int, int], arguments: Sequence[Any]) -> int:
    """Runs a compiled kernel on its arguments by position, and counts the instructions."""
    try:
        from amdgcn_cpu import Fault, UnknownInstruction, run
    except ImportError as error:
        why = f"the emulator is not installed ({error})"
        raise DeviceError(f"{why}: pip install ./amdgcn_cpu in a clone of this project") from error
    sizes = {"num_warps": compiled.metadata.num_warps, "shared_bytes": compiled.metadata.shared}
    try:
        return run(compiled.asm["amdgcn"], grid, [*arguments], resident=RESIDENT, most_steps=10**9, **sizes)
    except UnknownInstruction as error:
        raise DeviceError(f"the emulator does not support an instruction of this kernel: {error}") from error
    except Fault as error:
        raise KernelError(f"{type(error).__name__}: {error}") from error
