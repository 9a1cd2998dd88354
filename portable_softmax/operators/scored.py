"""The softmax of scores, and its gradient, by one launch each."""

import torch

from portable_softmax.planning.scores import Scores


def forward(
    x: torch.Tensor,
    dim: int,
    dtype: torch.dtype | None,
    form: str,
    batch_invariant: bool,
    scores: Scores,
    mask: torch.Tensor | None,
    factor: "float | torch.Tensor | None",
    cap: float | None,
    sink: torch.Tensor | None,
) -> torch.Tensor:
    """Computes the softmax of the scores of x along dim.

    Args:
        x: any shape and strides, of one of the kernel's types.
        dim: the axis along which the result sums to 1, counted from 0.
        dtype: type of the result; None for that of x.
        form: softmax, log_softmax or softmin.
        batch_invariant: True if a row's bits may not depend on the other rows.
        scores: what becomes of x first.
        mask: of x's rank, with sizes that are those of x or 1, and any strides.
        factor: a number, or one for each row: contiguous, of the type that is computed in, in the order of x's shape without dim.
        cap: of softcap.
        sink: one for each row, as `factor`.

    Raises:
        DtypeError, DeviceError, PlanError, CompileError: the cases of api.functional.softmax.
    """
    raise NotImplementedError


def backward(
    dy: torch.Tensor,
    y: torch.Tensor,
    dim: int,
    x_dtype: torch.dtype,
    form: str,
    batch_invariant: bool,
    scores: Scores,
    factor: "float | torch.Tensor | None",
) -> torch.Tensor:
    """Computes the gradient of x, without the derivative of softcap, from that of y, and y.

    Args:
        dy, y: of one shape and type, any strides.
        dim, form, batch_invariant, scores, factor: as in `forward`.
        x_dtype: type of the result.

    Raises:
        DtypeError, DeviceError, PlanError, CompileError: no kernel computes it.
    """
    raise NotImplementedError
