"""explain: how a call of softmax is computed."""

import torch

from portable_softmax.api.functional import Numbers
from portable_softmax.devices.detect import chosen
from portable_softmax.devices.device import Device
from portable_softmax.operators.arguments import dtype_of, int_of
from portable_softmax.operators.explained import explained
from portable_softmax.operators.log_probs.call import Given
from portable_softmax.operators.log_probs.explained import explained as log_probs_explained
from portable_softmax.operators.options import Options


def explain(
    x: torch.Tensor,
    dim: int = -1,
    dtype: torch.dtype | None = None,
    *,
    scale: Numbers = None,
    temperature: Numbers = None,
    mask: torch.Tensor | None = None,
    causal: bool | str = False,
    softcap: float | None = None,
    sink: Numbers = None,
    masked_rows: str = "nan",
    out: torch.Tensor | None = None,
    ids: torch.Tensor | None = None,
    entropy: bool = False,
    device: Device | str | None = None,
) -> str:
    """Says which kernel computes softmax(x, dim, dtype, ...), with the plan of its launch, or why torch computes it.

    The kernel is planned and compiled as by the call, with x's strides and alignment, and the autocast and batch_invariant that
    are in force here. None is launched, and nothing is copied. log_softmax is launched alike; softmin is softmax
    with a scale of -1.

    Args:
        x: the tensor, on its device, any shape, any strides; with `device` it may be on the CPU, or on meta, where it has no
            memory: `torch.empty(4096, 128256, device="meta")`.
        dim: the axis along which the result sums to 1.
        dtype: the type of the result, as softmax takes it.
        scale, temperature, mask, causal, softcap, sink, masked_rows, out: as softmax takes them.
        ids, entropy: as token_log_probs takes them; with ids it is that call which is explained.
        device: the device to plan for instead, in the forms that `plan` takes.

    Returns:
        Lines to print: what happens to x first, what is asked, the tile, the grid, what a program uses, how many fit, and the
        reasons.

    Raises:
        TypeError: x is not a tensor, or it is a DTensor: explain x.to_local().
        IndexError, TypeError, ValueError, RuntimeError, DtypeError, LayoutError, DeviceError, PlanError, CompileError: the call
            would raise it; or ids are given with what token_log_probs does not take.
        TypeError, ProfileError: the device, in the cases in which `plan` raises them.
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"explain(): argument 'x' must be Tensor, not {type(x).__name__}")
    if hasattr(x, "device_mesh"):
        raise TypeError("explain(): argument 'x' is a DTensor; give x.to_local()")
    given = Options(scale, temperature, mask, causal, softcap, sink, masked_rows)
    planned_for = None if device is None else chosen(device)
    if ids is not None:
        if dtype is not None or out is not None or given._replace(scale=None, temperature=None) != Options():
            raise ValueError(
                "explain(): ids were given, and of softmax's options token_log_probs takes scale and temperature alone"
            )
        return log_probs_explained(x, ids, Given(dim, scale, temperature, entropy=entropy), planned_for)
    return explained(x, int_of("explain", dim), dtype_of("explain", dtype), given, out, planned_for)
