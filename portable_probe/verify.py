"""Runs the softmax or a user kernel on a local device, in the interpreter or on an emulator, and compares the result."""

import contextlib
import dataclasses
import io
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from portable_probe import virtual
from portable_probe.closeness import Distance, allowed_of_any, allowed_of_terms, distance, same
from portable_probe.loading import KernelFile
from portable_probe.report import SoftmaxProblem, Verified
from portable_softmax import log_softmax, softmax
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.problem import Scores
from portable_softmax.row_kernels.arguments import constant_of, read_arguments
from portable_softmax.row_kernels.decorators import configuration, decorated

GUARD = 16  # elements after each row that must keep their value
PEAK = 200.0  # its exponential overflows float32
GOLDEN = (5**0.5 - 1) / 2  # its multiples modulo 1 are spread evenly
FACTOR = 1.25  # scale or temperature
SEEN = 0.7  # share of a mask's elements that take part
LONGEST = 60.0  # seconds that a launch may take


def wide_rows(n_rows: int, n_cols: int, dtype: torch.dtype, where: "torch.device | str") -> torch.Tensor:
    """Returns random rows like those of models, [n_rows, n_cols]; the same on every call on a device.

    Every second one spans a range of about 100, every third one is far from 0, and every fifth one is masked (-inf) but for
    its last quarter. Each of the others of every two has one element so far above the rest that a result without it in the
    maximum is inf or nan; its column differs from row to row.
    """
    x = torch.randn(n_rows, n_cols, dtype=dtype, device=where, generator=torch.Generator(where).manual_seed(0))
    x[1::2] *= 12
    x[2::3] -= 300
    x[4::5, : n_cols * 3 // 4] = -float("inf")
    rows = torch.arange(0, n_rows, 2, device=where)
    x[rows, (rows * GOLDEN % 1 * n_cols).long()] = PEAK
    return x


def guarded(values: torch.Tensor) -> torch.Tensor:
    """Returns a copy of a matrix in memory of its own, with GUARD elements of nan after each row."""
    n_rows, n_cols = values.shape
    memory = torch.full((n_rows * (n_cols + GUARD) + GUARD,), torch.nan, dtype=values.dtype, device=values.device)
    return memory.as_strided((n_rows, n_cols), (n_cols + GUARD, 1)).copy_(values)


def verify_softmax(case: SoftmaxProblem, launch_plan: LaunchPlan | None, device: Device) -> Verified:
    """Computes a softmax, or its gradient, by the public function, and compares it with float64.

    Args:
        case: what is computed.
        launch_plan: its plan, for an absent device; the emulator runs it on as many rows as take seconds.
        device: where it runs.

    Raises:
        DtypeError, PlanError, CompileError: the kernel cannot run on the device.
        DeviceError: the emulator is not installed, or lacks an instruction.
        KernelError: the kernel did what none should.
    """
    emulated = launch_plan if device.index is None and device.backend != "interpreter" else None
    rows = virtual.rows_of(case, emulated) if emulated else case.n_rows
    x = wide_rows(rows, case.n_cols, getattr(torch, case.dtype), "cpu" if emulated else _place(device))
    options = _options(case.scores, x)
    exact, terms = _exact(x, options)
    dy = virtual.allocated(x.shape, x.stride(), x.dtype).to(x.device).copy_(_random(x, 2))
    context: Any = virtual.emulated(emulated, device) if emulated else contextlib.nullcontext([])
    with context as steps:
        if case.backward:
            leaf = guarded(x).requires_grad_()
            y = softmax(leaf, **options)
            y.backward(dy)  # type: ignore[no-untyped-call]
            result = leaf.grad
            assert result is not None
            exact, terms = _exact_gradient(y.detach(), dy, options)
        else:
            result = softmax(guarded(x), out=guarded(torch.full_like(x, torch.nan)), **options)
    ran = f"{virtual.executed(device, sum(steps))} for {rows} rows" if emulated else None
    return _outcome(distance(result, exact, allowed_of_terms(exact, result.dtype, terms)), _overwritten(result), executed=ran)


def _options(scores: Scores, x: torch.Tensor) -> dict[str, Any]:
    """Returns arguments of `softmax` that mean these scores."""
    options: dict[str, Any] = {"causal": scores.causal or False, "softcap": scores.cap}
    rows = _random(x, 3, torch.float32)[:, :1].abs() + 0.75
    factors = {"scale": scores.scale, "temperature": scores.temperature}
    options |= {name: rows if kind == "rows" else FACTOR for name, kind in factors.items() if kind}
    if scores.mask:
        seen = torch.rand(x.shape, device=x.device, generator=torch.Generator(x.device).manual_seed(4)) < SEEN
        seen[:, 0] = seen[:, -1] = True
        added = scores.mask != "bool"
        options["mask"] = _random(x, 5, getattr(torch, scores.mask)).masked_fill(~seen, -torch.inf) if added else seen
    if scores.sink:
        options["sink"] = _random(x, 6, torch.float32)[:, :1] * 3
    return options


def _random(x: torch.Tensor, seed: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    generator = torch.Generator(x.device).manual_seed(seed)
    return torch.randn(x.shape, dtype=dtype or x.dtype, device=x.device, generator=generator)


def _wide(options: Mapping[str, Any]) -> dict[str, Any]:
    floating = {name for name, value in options.items() if isinstance(value, torch.Tensor) and value.is_floating_point()}
    return {name: value.double() if name in floating else value for name, value in options.items()}


def _exact(x: torch.Tensor, options: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor | float]:
    """Returns the softmax in float64, and the size of what is rounded in its exponents; 0 for a plain softmax."""
    wide = _wide(options)
    exact = softmax(x.double(), **wide)
    if not any(value is not None and value is not False for value in options.values()):
        return exact, 0.0
    z = x.double() * wide.get("scale", 1.0)
    z = wide["softcap"] * torch.tanh(z / wide["softcap"]) if wide["softcap"] else z
    z = z / wide.get("temperature", 1.0)
    mask = wide.get("mask")
    z = z if mask is None or mask.dtype is torch.bool else z + mask
    top = z - log_softmax(x.double(), **wide)
    size = torch.where(z.isfinite() & top.isfinite(), z.abs() + top.abs(), 0.0)
    return exact, exact.nan_to_num(0.0) * size


def _exact_gradient(y: torch.Tensor, dy: torch.Tensor, options: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the gradient in float64 from the rounded result, as the kernel computes it, and the size of its terms."""
    wide, d, p = _wide(options), dy.double(), y.double().nan_to_num(0.0)
    factor = wide.get("scale", 1.0) / wide.get("temperature", 1.0)
    exact = p * (d - (d * p).sum(-1, keepdim=True))
    return exact * factor, p * (d.abs() + (d * p).abs().sum(-1, keepdim=True)) * factor


def _overwritten(result: torch.Tensor) -> int:
    """Counts the elements around a result in memory of `guarded` that changed."""
    whole = result.as_strided((result.untyped_storage().nbytes() // result.element_size(),), (1,), 0)
    around = torch.ones_like(whole, dtype=torch.bool)
    around.as_strided(result.shape, result.stride()).fill_(False)
    return int((~whole[around].isnan()).sum())


def _outcome(measured: Distance, overwritten: int, **more: str | None) -> Verified:
    right = measured.worst <= 1 and not overwritten
    return Verified(max_error=measured.error, worst=measured.worst, overwritten=overwritten, right=right, **more)


def _place(device: Device) -> torch.device:
    return torch.device(device.vendor.torch_device_type + ("" if device.index is None else f":{device.index}"))


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

    def with_values(self, jit: Any, words: Mapping[str, str]) -> "KernelCase":
        """Returns the case with the values of --args; a type or shape leaves the case's own value."""
        read, typed = read_arguments(jit, {name: text for name, text in words.items() if name in jit.arg_names})
        values = {name: value for name, value in read.items() if name not in typed and not hasattr(value, "dtype")}
        values |= {name: constant_of(text) for name, text in words.items() if name not in jit.arg_names}
        return self._replace(arguments={**self.arguments, **values})

    def grid_for(self, constants: Mapping[str, Any]) -> tuple[int, int, int]:
        """Returns the grid for the values of constexprs."""
        grid = self.grid({**self.arguments, **constants}) if callable(self.grid) else self.grid
        width, height, depth = (*grid, 1, 1)[:3]
        return width, height, depth


def load_case(file: KernelFile, name: str) -> KernelCase:
    """Calls the function in a kernel's file that returns its case; ValueError if there is none, or it returns none."""
    make = getattr(file.module, name, None)
    if not callable(make):
        raise ValueError(f"{file.module.__file__} has no function {name!r} that makes a case")
    made = make()
    with contextlib.suppress(TypeError):
        case = KernelCase(*made)
        if (callable(case.grid) or isinstance(case.grid, tuple)) and isinstance(case.arguments, Mapping):
            return case
    raise ValueError(f"{name}() should return (grid, arguments, expected): a tuple, a dict and a dict, not {made!r:.80}")


def verify_case(case: KernelCase, run: Callable[[], str | None]) -> Verified:
    """Runs a case, and compares its tensors with the expected ones by the tolerances of torch.testing.assert_close.

    Args:
        case: the arguments, and what is expected.
        run: runs the kernel on the case's own tensors, and returns what ran, if it was an emulator.

    Raises:
        ValueError: nothing is expected, or it is expected of no tensor among the arguments, or has another shape.
    """
    if not case.expected:
        raise ValueError("the case expects nothing, so there is nothing to verify: (grid, arguments, {NAME: tensor})")
    tensors = {name: value for name, value in case.arguments.items() if isinstance(value, torch.Tensor)}
    if unknown := case.expected.keys() - tensors.keys():
        raise ValueError(f"the case expects {', '.join(sorted(unknown))}, which are no tensors among its arguments")
    for name, expected in case.expected.items():
        if expected.shape != tensors[name].shape:
            raise ValueError(f"{name} is {list(tensors[name].shape)}, and {list(expected.shape)} is expected of it")
    before = {name: tensor.clone() for name, tensor in tensors.items() if name not in case.expected}
    executed = run()
    distances = {}
    for name, expected in case.expected.items():
        exact = expected.double()
        distances[name] = distance(tensors[name], exact, allowed_of_any(exact, tensors[name].dtype))
    changed = sum(int((~same(tensors[name], kept)).sum()) for name, kept in before.items())
    name, worst = max(distances.items(), key=lambda item: item[1].worst)
    whole = worst._replace(error=max(measured.error for measured in distances.values()))
    return _outcome(whole, changed, worst_at=f"{name}{list(worst.at)}" if worst.worst > 1 else None, executed=executed)


def run_here(kernel: Any, config: int | None, case: KernelCase, device: Device) -> None:
    """Launches a kernel on copies of a case's tensors, and copies their contents back.

    Args:
        kernel: the @triton.jit function, with its decorators.
        config: number of one of the configurations of @triton.autotune.
        case: the launch.
        device: where it runs: a local device, or the interpreter.

    Raises:
        ValueError: there are several configurations and none was chosen, or no such one.
        DeviceError: the launch fails, or has not ended after LONGEST seconds.
    """
    outermost = decorated(kernel, configuration(kernel, config), case.arguments.keys(), launches=True)
    where = _place(device)
    module, on_device = getattr(torch, where.type), placed(case.arguments, where)
    with contextlib.nullcontext() if device.index is None else module.device(device.index):
        try:
            outermost[case.grid](**on_device)
            if device.index is not None:
                _wait(module)
        except DeviceError:
            raise
        except Exception as error:  # Triton, and kernels that Python interprets, have exceptions of all kinds
            raise DeviceError(f"the launch fails: {type(error).__name__}: {error}") from error
    for name, value in case.arguments.items():
        if isinstance(value, torch.Tensor):
            value.copy_(on_device[name])


def placed(arguments: Mapping[str, Any], where: torch.device) -> dict[str, Any]:
    """Returns arguments with tensors, and those in tensor descriptors, on a device, with their strides and shared memory."""
    inner = {name: getattr(value, "base", value) for name, value in arguments.items()}  # a descriptor's tensor
    tensors = {name: value for name, value in inner.items() if isinstance(value, torch.Tensor)}
    file = io.BytesIO()
    torch.save(tensors, file)  # keeps strides, and tensors that share memory
    file.seek(0)
    moved: dict[str, Any] = torch.load(file, map_location=where, weights_only=True)
    descriptors = {name for name in moved if not isinstance(arguments[name], torch.Tensor)}
    return {**arguments, **moved, **{name: dataclasses.replace(arguments[name], base=moved[name]) for name in descriptors}}


def _wait(module: Any) -> None:
    """Waits until the launch has ended; DeviceError after LONGEST seconds."""
    event, begun = module.Event(), time.monotonic()
    event.record()
    while not event.query():
        if time.monotonic() - begun > LONGEST:
            raise DeviceError(f"the kernel has not ended after {LONGEST:g} seconds; end this process")
        time.sleep(0.001)
