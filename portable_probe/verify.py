"""Runs the softmax or a user kernel on a local device, in the interpreter or on an emulator, and compares the result."""

import contextlib
import io
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from portable_probe import virtual
from portable_probe.bounds import checked, fault_in
from portable_probe.closeness import Distance, allowed_of_any, allowed_of_terms, distance, same
from portable_probe.loading import KernelFile
from portable_probe.report import SoftmaxProblem, Verified
from portable_softmax import softmax
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError, KernelError
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.row_kernels.arguments import axes_of
from portable_softmax.row_kernels.decorators import arguments_of, configuration, jit_function

GUARD = 16  # elements after a result that must keep their value
PEAK = 200.0  # its exponential overflows float32
MAX_EMULATED, MIN_ROWS = 2**19, 8  # elements that take seconds, and rows of several kinds
LONGEST = 60.0  # seconds that a launch may take


def wide_rows(n_rows: int, n_cols: int, dtype: torch.dtype, where: "torch.device | str") -> torch.Tensor:
    """Returns random rows like those of models, [n_rows, n_cols]; the same on every call on a device.

    Some span a range of about 100, are far from 0, or are masked (-inf) but for their last quarter. Even rows have one element
    far above the rest, in another column than the next row's: a result without it in the maximum is inf or nan.
    """
    x = torch.randn(n_rows, n_cols, dtype=dtype, device=where, generator=torch.Generator(where).manual_seed(0))
    x[1::2] *= 12
    x[2::3] -= 300
    x[4::5, : n_cols * 3 // 4] = -float("inf")
    rows = torch.arange(0, n_rows, 2, device=where)
    x[rows, (rows * 0.618034 % 1 * n_cols).long()] = PEAK
    return x


def guarded(values: torch.Tensor) -> torch.Tensor:
    """Returns a contiguous copy with GUARD elements of nan after it, which whole vectors at its end may read."""
    memory = torch.full((values.numel() + GUARD,), torch.nan, dtype=values.dtype, device=values.device)
    return memory[: values.numel()].view(values.shape).copy_(values)


def verify_softmax(case: SoftmaxProblem, launch_plan: LaunchPlan, device: Device) -> Verified:
    """Computes a softmax, or its gradient, by the public function, and compares it with float64.

    The emulator of an absent device runs its plan, on as many rows as take seconds.
    """
    is_emulated = device.index is None and device.backend != "interpreter"
    rows, where, executed, overwritten = case.n_rows, device.torch_name, None, 0
    terms: torch.Tensor | float = 0.0
    if is_emulated:
        rows, where = min(rows, max(MIN_ROWS, MAX_EMULATED // case.n_cols)), "cpu"
    x = wide_rows(rows, case.n_cols, getattr(torch, case.dtype), where)
    dy = torch.randn(x.shape, device=x.device, generator=torch.Generator(x.device).manual_seed(2)).to(x.dtype)
    y, result = x, guarded(torch.full_like(x, torch.nan))
    if is_emulated:
        y = softmax(x)
        executed = virtual.run_softmax(launch_plan, (result, *map(guarded, (dy, y) if case.backward else (x,))), device)
    elif case.backward:
        y = softmax(x.requires_grad_())
        (result,) = torch.autograd.grad(y, x, dy)
    else:
        softmax(guarded(x), out=result)
    if is_emulated or not case.backward:
        overwritten = int((~result.as_strided((GUARD,), (1,), result.numel()).isnan()).sum())
    exact = softmax(x.detach().double())
    if case.backward:  # that of the rounded result
        d, p = dy.double(), y.detach().double()
        exact, terms = p * (d - (d * p).sum(-1, keepdim=True)), p * (d.abs() + (d * p).abs().sum(-1, keepdim=True))
    return _outcome(distance(result, exact, allowed_of_terms(exact, result.dtype, terms)), overwritten, executed=executed)


def _outcome(measured: Distance, overwritten: int, **more: str | None) -> Verified:
    right = measured.worst <= 1 and not overwritten
    return Verified(max_error=measured.error, worst=measured.worst, overwritten=overwritten, right=right, **more)


class KernelCase(NamedTuple):
    """A launch of a user kernel, and its expected result: what the function of --case returns.

    Args:
        grid: numbers of programs, up to three, or a function of the arguments that returns them.
        arguments: those of `kernel[grid](...)` by name: numbers, tensors on the CPU, constexprs and options.
        expected: contents of tensors afterwards, by the parameter's name; all others should keep theirs.
    """

    grid: tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]]
    arguments: Mapping[str, Any]
    expected: Mapping[str, Any] = {}

    def grid_for(self, constants: Mapping[str, Any]) -> tuple[int, int, int]:
        """Returns the grid for the values of constexprs."""
        return axes_of(self.grid, {**self.arguments, **constants})


def load_case(file: KernelFile, name: str) -> KernelCase:
    """Calls the function in a kernel's file that returns its case; ValueError if it is missing, raises, or returns no case."""
    make = getattr(file.module, name, None)
    if not callable(make):
        raise ValueError(f"{file.module.__file__} has no function {name!r} that makes a case")
    try:
        made = make()
    except Exception as error:
        raise ValueError(f"the case {name}() raises {type(error).__name__}: {error}") from error
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[1], Mapping):
        raise ValueError(f"{name}() should return (grid, arguments, expected): a tuple, a dict and a dict, not {made!r:.80}")
    return KernelCase(*made)


def verify_case(case: KernelCase, run: Callable[[], str | None]) -> Verified:
    """Runs a case, and compares its tensors with the expected ones by the tolerances of torch.testing.assert_close.

    `run` runs the kernel on them, and returns what ran, if it was an emulator. ValueError: no tensor of that shape is expected.
    """
    if not case.expected:
        raise ValueError("the case has no expected tensors, so there is nothing to verify: (grid, arguments, {NAME: tensor})")
    tensors = {name: value for name, value in case.arguments.items() if isinstance(value, torch.Tensor)}
    for name, expected in case.expected.items():
        if name not in tensors or getattr(expected, "shape", None) != tensors[name].shape:
            raise ValueError(f"the expected {name} must be a tensor of the shape of the argument {name}, which is a tensor too")
    before = {name: tensor.clone() for name, tensor in tensors.items() if name not in case.expected}
    executed = run()
    distances = {
        name: distance(tensors[name], exact, allowed_of_any(exact, tensors[name].dtype))
        for name, exact in ((name, expected.double()) for name, expected in case.expected.items())
    }
    changed = sum(int((~same(tensors[name], kept)).sum()) for name, kept in before.items())
    name, worst = max(distances.items(), key=lambda item: item[1].worst)
    whole = worst._replace(error=max(measured.error for measured in distances.values()))
    return _outcome(whole, changed, worst_at=f"{name}{list(worst.at)}" if worst.worst > 1 else None, executed=executed)


def run_here(kernel: Any, config: int | None, case: KernelCase, device: Device) -> None:
    """Launches a kernel on copies of a case's tensors on a local device, or in the interpreter, and copies contents back.

    In the interpreter every access is compared with the memory of the tensors. KernelError, DeviceError: the launch fails, or
    has not ended after LONGEST seconds.
    """
    jit, selected = jit_function(kernel), configuration(kernel, config)
    where = torch.device(device.torch_name)
    module, on_device = getattr(torch, where.type), placed(case.arguments, where)
    with contextlib.nullcontext() if device.index is None else module.device(device.index):
        try:
            with checked(on_device) if device.backend == "interpreter" else contextlib.nullcontext():
                jit[case.grid](**arguments_of(kernel, selected, on_device, launches=True))
            if device.index is not None:
                _wait(module)
        except (DeviceError, TypeError):  # a TypeError is of missing arguments
            raise
        except Exception as error:  # Triton, and kernels that Python interprets, have exceptions of all kinds
            if fault := fault_in(error, jit.fn.__code__.co_filename):
                raise fault from error
            raise KernelError(f"the launch fails: {type(error).__name__}: {error}") from error
    for name, value in case.arguments.items():
        if isinstance(value, torch.Tensor):
            value.copy_(on_device[name])


def placed(arguments: Mapping[str, Any], where: torch.device) -> dict[str, Any]:
    """Returns arguments with tensors, and those in tensor descriptors, on a device, with their strides and shared memory."""
    inner = {name: value for name, value in arguments.items() if isinstance(getattr(value, "base", value), torch.Tensor)}
    file = io.BytesIO()
    torch.save(inner, file)  # keeps strides, and tensors that share memory
    file.seek(0)
    return {**arguments, **torch.load(file, map_location=where, weights_only=False)}  # the file is our own


def _wait(module: Any) -> None:
    """Waits until the launch has ended; DeviceError after LONGEST seconds."""
    event, begun = module.Event(), time.monotonic()
    event.record()
    while not event.query():
        if time.monotonic() - begun > LONGEST:
            raise DeviceError(f"the kernel has not ended after {LONGEST:g} seconds; end this process")
        time.sleep(0.001)
