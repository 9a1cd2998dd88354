"""Runs the softmax on a local device, in the interpreter or on an emulator, and compares the result with float64."""

import contextlib
from collections.abc import Mapping
from typing import Any

import torch

from portable_probe import virtual
from portable_probe.closeness import Distance, allowed_of_terms, distance
from portable_probe.report import SoftmaxProblem, Verified
from portable_softmax import log_softmax, softmax
from portable_softmax.devices.device import Device
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.problem import Scores

GUARD = 16  # elements after each row that must keep their value
PEAK = 200.0  # its exponential overflows float32
GOLDEN = (5**0.5 - 1) / 2  # its multiples modulo 1 are spread evenly
FACTOR = 1.25  # scale or temperature
SEEN = 0.7  # share of a mask's elements that take part


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
    options = _options(case.scores or Scores(), x)
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


def _outcome(measured: Distance, overwritten: int, executed: str | None) -> Verified:
    right = measured.worst <= 1 and not overwritten
    return Verified(max_error=measured.error, worst=measured.worst, overwritten=overwritten, right=right, executed=executed)


def _place(device: Device) -> torch.device:
    return torch.device(device.vendor.torch_device_type + ("" if device.index is None else f":{device.index}"))
