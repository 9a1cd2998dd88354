"""Launches of softmax, log_softmax and their gradient: tensors and numbers in the order of the kernels' parameters."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from portable_softmax.operators.arguments import DTYPES, HUGE, TINY, Inputs, Options
from portable_softmax.operators.launch import allocation, bits_of, by_row, device_of, is_launched, row_shape
from portable_softmax.planning.scores import Scores
from portable_softmax.runtime.launch import name_of
from portable_softmax.runtime.layout import bind

FORMS = {False: "softmax", True: "log_softmax"}


def softmax(inputs: Inputs, options: Options, invariant: bool, out: Tensor | None = None) -> Callable[..., Tensor] | None:
    """Returns run(out, inputs), which launches calls like this one; None if no kernel computes them.

    Args:
        inputs: of plain tensors.
        options: what is computed.
        invariant: the bits of a row must not depend on other rows.
        out: what is written: x itself, or separate memory of its shape; None for a new contiguous tensor.

    Raises:
        DeviceError, PlanError, CompileError: the kernel cannot run on the device.
    """
    x, mask = inputs[:2]
    scored = scores_of(inputs, options)
    if scored is None or not is_launched(x, options.dim, options.dtype):
        return None
    scores, factor = scored
    device = device_of(x)
    empty, rows, in_rows = allocation(x.shape, options.dtype, x), row_shape(x, options.dim), scores.factor == "rows"
    result = empty(x) if out is None else out
    launch = bind((result, x), 1, options.dim, device, mask, form=FORMS[options.log], batch_invariant=invariant, scores=scores)

    def run(out: Tensor | None, inputs: Inputs) -> Tensor:
        x, mask, scale, temperature, sink, _ = inputs
        y = empty(x) if out is None else out
        if not scores:
            launch(y, x)
            return y
        by = factor(scale, temperature)
        operands = [y, x] if mask is None else [y, x, mask]
        if in_rows:
            operands.append(by_row(by, rows, x))
        if sink is not None:
            operands.append(by_row(sink, rows, x))
        launch(*operands) if in_rows else launch(*operands, bits_of(by))
        return y

    return run


def gradient(
    dy: Tensor, y: Tensor, factor: Any, log: bool, dim: int, voids: bool, dtype: torch.dtype, invariant: bool
) -> Callable[..., Tensor] | None:
    """Returns run(dy, y, factor), which launches `reference.gradient` of plain tensors; None if no kernel computes it."""
    if not is_launched(y, dim, dtype):
        return None
    kind = _kind(factor)
    scores = Scores(factor=kind, mask="bool" if voids else None)
    device = device_of(y)
    empty, rows = allocation(y.shape, dtype, y), row_shape(y, dim)
    launch = bind(
        (empty(y), dy, y), 1, dim, device, form=FORMS[log], backward=True, batch_invariant=invariant, scores=scores
    )  # fmt: skip

    def run(dy: Tensor, y: Tensor, factor: Any) -> Tensor:
        dx = empty(y)
        if not scores:
            launch(dx, dy, y)
        elif kind == "rows":
            launch(dx, dy, y, by_row(factor, rows, y))
        else:
            launch(dx, dy, y, bits_of(1.0 if factor is None else factor))
        return dx

    return run


def scores_of(inputs: Inputs, options: Options) -> tuple[Scores, Callable[[Any, Any], Any]] | None:
    """Returns what a kernel does to x ahead of a softmax, and the function of (scale, temperature) that is its factor.

    The factor multiplies, or divides where rows may be greedy. None if no kernel computes these scores.
    """
    _, mask, scale, temperature, sink, softcap = inputs
    if any(isinstance(t, Tensor) and t.dtype is torch.float64 for t in (mask, scale, temperature, sink)):
        return None
    if mask is not None and mask.dtype is not torch.bool and mask.dtype not in DTYPES:
        return None
    found = factor_of(scale, temperature, softcap)
    if found is None:
        return None
    fields, factor = found
    mask_type = None if mask is None else name_of(mask.dtype)
    causal: Any = options.causal or None
    scores = Scores(
        **fields,
        mask=mask_type,
        causal=causal,
        sink=sink is not None,
        zero_rows=options.zero_rows,
    )
    return scores, factor


def factor_of(scale: Any, temperature: Any, softcap: float | None) -> tuple[dict[str, Any], Callable[[Any, Any], Any]] | None:
    """Returns (fields of Scores, the factor as a function of scale and temperature), or None if no kernel computes them.

    A number that scales ahead of a softcap is compiled. Rows that may be greedy are divided by their factor.
    """
    fields: dict[str, Any] = {}
    if softcap is not None:
        if not TINY < softcap < HUGE or isinstance(scale, Tensor) or (scale is not None and not TINY < abs(scale) < HUGE):
            return None
        fields = {"cap": float(softcap), "cap_scale": 1.0 if scale is None else float(scale)}
        scale = None
    greedy = isinstance(temperature, Tensor) or (temperature is not None and not TINY < temperature < HUGE)
    if greedy and scale is not None and (isinstance(scale, Tensor) or not TINY < scale < HUGE):
        return None
    fields |= {"factor": "rows" if greedy else _kind(temperature if scale is None else scale), "divides": greedy}
    capped = softcap is not None

    def factor(scale: Any, temperature: Any) -> Any:
        scale = None if capped else _wide(scale)
        if greedy:
            return temperature if scale is None else _wide(temperature) / scale
        one = 1.0 if scale is None else scale
        return one if temperature is None else one / temperature

    return fields, factor


def _kind(factor: Any) -> Any:
    """Returns how a kernel reads a factor: "number", "rows", or None for none."""
    return None if factor is None else "number" if not isinstance(factor, Tensor) and TINY < factor < HUGE else "rows"


def _wide(factor: Any) -> Any:
    return factor.to(torch.float32) if isinstance(factor, Tensor) else factor
