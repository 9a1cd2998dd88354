"""softmax, log_softmax and softmin as torch has them, with scale, mask and what else attention and samplers need."""

import torch

from portable_softmax.operators.arguments import Factor
from portable_softmax.operators.softmax import compute


def softmax(
    input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, scale: Factor = None, temperature: Factor = None,
    mask: torch.Tensor | None = None, causal: bool | str = False, softcap: float | None = None, sink: Factor = None,
    masked_rows: str = "nan", out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Computes the softmax of scores along `dim` by one fused kernel: softcap * tanh(scale * input / softcap) / temperature.

    The order is scale, softcap, temperature, mask and causal, sink. A kernel computes strided tensors in float16, bfloat16 or
    float32 on an accelerator, and with TRITON_INTERPRET=1 on the CPU; torch's operators compute all others, float64 included.
    Differentiable in every mode: the first gradient is one more fused kernel, or two with that of a mask; gradients of scale,
    temperature and sink are composed of torch's operators. Without options only the output is saved.

    Args:
        input: any shape, any strides.
        dim: the axis along which the result sums to 1.
        dtype: the type that the input is rounded to first, and that of the result; that of the input if None, but float32 for
            16 bits under torch.autocast.
        scale: a number, or a tensor that broadcasts against the input with 1 along `dim`.
        temperature: likewise; the scores are divided by it. A row of temperature 0 is greedy: all weight is on the largest
            score that mask and causal leave, shared among equals, whatever the sink and other values of the mask are; its
            gradients are 0. The host never reads a tensor.
        mask: a tensor that broadcasts against the input: boolean, True where an element takes part, or floating, and added.
        causal: True or "upper_left" for column j of row i to take part where j <= i, in the last two dimensions; "lower_right"
            for the last row to have all columns. `dim` is the last then.
        softcap: a positive number; None for none.
        sink: one more logit of each row, in the denominator alone: a number; a tensor that broadcasts against the input with 1
            along `dim`; or, if the input has more than two dimensions, one number for each head, the third from the end.
        masked_rows: "nan" for rows with all scores -inf to be nan, as in torch, or "zero" for 0, or -inf of
            log_softmax, and gradients of 0. With a sink they are so anyway. Gradients of what a boolean mask or causal hides
            are 0, and so are those of rows that are nan beside it.
        out: what the result is written to, of its type and device: directly if it is the input itself, or has memory of its
            own; else the result is computed and copied. Of another shape, it is resized as by torch. Not differentiable.

    Returns:
        A contiguous tensor of the input's shape, or `out`.

    Raises:
        IndexError: there is no such dim.
        TypeError: an argument has another type, as in torch.
        ValueError: `causal`, `softcap` or `masked_rows` is none of the above.
        RuntimeError: `out` has another type or device, or a gradient is needed; a tensor does not broadcast, has not 1 along
            `dim`, or is on another device.
        DtypeError: the device does not compute that type, or options are combined with integers; a NotImplementedError.
        LayoutError: options are combined with a nested or sparse tensor; a NotImplementedError too.
        DeviceError, PlanError, CompileError: the kernel cannot run on the tensor's device.
    """
    return compute(False, (input, mask, scale, temperature, sink, softcap), dim, dtype, causal, masked_rows, out)


def log_softmax(
    input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, scale: Factor = None, temperature: Factor = None,
    mask: torch.Tensor | None = None, causal: bool | str = False, softcap: float | None = None, sink: Factor = None,
    masked_rows: str = "nan", out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Computes the logarithm of `softmax` by one fused kernel. Arguments, result and errors are those of `softmax`."""
    return compute(True, (input, mask, scale, temperature, sink, softcap), dim, dtype, causal, masked_rows, out)


def softmin(
    input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, scale: Factor = None, temperature: Factor = None,
    mask: torch.Tensor | None = None, causal: bool | str = False, softcap: float | None = None, sink: Factor = None,
    masked_rows: str = "nan", out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Computes `softmax` with the scale times -1; arguments, result and errors are its own."""
    scale = -1.0 if scale is None else -scale
    return compute(False, (input, mask, scale, temperature, sink, softcap), dim, dtype, causal, masked_rows, out)
