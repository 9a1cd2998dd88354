"""Launches of softmax, log_softmax and their gradient: tensors and numbers in the order of the kernels' parameters."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from portable_softmax.operators.arguments import DTYPES, HUGE, TINY, Inputs, Options
from portable_softmax.operators.launch import allocation, by_row, device_of, is_launched, row_shape
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
    scores = scores_of(inputs, options)
    if scores is None or not is_launched(x, options.dim, options.dtype):
        return None
    if torch.promote_types(x.dtype, options.dtype) != options.dtype:  # torch rounds x first, and kernels do not
        return None
    device = device_of(x)
    empty, rows = allocation(x.shape, options.dtype, x), row_shape(x, options.dim)
    result = empty(x) if out is None else out
    launch = bind((result, x), 1, options.dim, device, mask, form=FORMS[options.log], batch_invariant=invariant, scores=scores)

    def run(out: Tensor | None, inputs: Inputs) -> Tensor:
        x, mask, scale, temperature, sink, _ = inputs
        y = empty(x) if out is None else out
        if not scores:
            launch(y, x)
            return y
        of_rows, numbers = factors(scores, scale, temperature, rows, x)
        operands = [y, x, *of_rows] if mask is None else [y, x, mask, *of_rows]
        if sink is not None:
            operands.append(by_row(sink, rows, x))
        launch(*operands, *numbers)
        return y

    return run


def gradient(
    dy: Tensor, y: Tensor, factor: Any, log: bool, dim: int, voids: bool, dtype: torch.dtype, invariant: bool
) -> Callable[..., Tensor] | None:
    """Returns run(dy, y, factor), which launches `reference.gradient` of plain tensors; None if no kernel computes it."""
    if not is_launched(y, dim, dtype):
        return None
    scores = Scores(scale=_kind(factor), mask="bool" if voids else None)
    device = device_of(y)
    empty, rows = allocation(y.shape, dtype, y), row_shape(y, dim)
    launch = bind(
        (empty(y), dy, y), 1, dim, device, form=FORMS[log], backward=True, batch_invariant=invariant, scores=scores
    )  # fmt: skip

    def run(dy: Tensor, y: Tensor, factor: Any) -> Tensor:
        dx = empty(y)
        of_rows, numbers = factors(scores, factor, None, rows, y)
        launch(dx, dy, y, *of_rows, *numbers)
        return dx

    return run


def scores_of(inputs: Inputs, options: Options) -> Scores | None:
    """Returns what a kernel does to x ahead of a softmax; None if no kernel computes these scores."""
    _, mask, scale, temperature, sink, softcap = inputs
    if any(isinstance(t, Tensor) and t.dtype is torch.float64 for t in (mask, sink)):
        return None
    if mask is not None and mask.dtype is not torch.bool and mask.dtype not in DTYPES:
        return None
    fields = fields_of(scale, temperature, softcap)
    causal: Any = options.causal or None
    mask_type = None if mask is None else name_of(mask.dtype)
    more = {"mask": mask_type, "causal": causal, "sink": sink is not None, "zero_rows": options.zero_rows}
    return None if fields is None else Scores(**fields, **more)


def fields_of(scale: Any, temperature: Any, softcap: float | None) -> dict[str, Any] | None:
    """Returns the fields of Scores for factors and a cap; None if no kernel computes them."""
    if softcap is not None and not TINY < softcap < HUGE:
        return None
    if any(isinstance(t, Tensor) and t.dtype is torch.float64 for t in (scale, temperature)):
        return None
    return {"scale": _kind(scale), "temperature": _kind(temperature), "cap": None if softcap is None else float(softcap)}


def factors(
    scores: Scores, scale: Any, temperature: Any, shape: torch.Size, x: Tensor
) -> tuple[list[Tensor], list[float]]:  # fmt: skip
    """Returns (tensors of rows, numbers) of a launch, each in the kernel's order."""
    of_rows, numbers = [], []
    for kind, factor in ((scores.scale, scale), (scores.temperature, temperature)):
        if kind == "rows":
            of_rows.append(by_row(factor, shape, x))
        elif kind == "number":
            numbers.append(float(factor))
    return of_rows, numbers


def _kind(factor: Any) -> Any:
    """Returns how a kernel reads a factor: "number", "rows", or None for none."""
    return None if factor is None else "number" if not isinstance(factor, Tensor) and TINY < factor < HUGE else "rows"
