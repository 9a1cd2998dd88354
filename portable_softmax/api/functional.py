"""softmax, log_softmax, softmin and modules as in torch, with scale, mask and other options of attention and samplers."""

from typing import Any

import torch

from portable_softmax.operators.arguments import Factor
from portable_softmax.operators.checks import as_float
from portable_softmax.operators.softmax import compute


def softmax(
    input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, scale: Factor = None, temperature: Factor = None,
    mask: torch.Tensor | None = None, causal: bool | str = False, softcap: float | None = None, sink: Factor = None,
    masked_rows: str = "nan", out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Computes the softmax of scores along `dim` by one fused kernel: softcap * tanh(scale * input / softcap) / temperature.

    Options are applied in the order scale, softcap, temperature, mask and causal, sink. A kernel computes strided tensors in
    float16, bfloat16 or float32 on an accelerator, and with TRITON_INTERPRET=1 on the CPU; PyTorch's operators compute all
    others. Differentiable in every mode: the gradient of the input is a second fused kernel, which needs the output alone if
    there are no options; those of scale, temperature, mask and sink are computed by PyTorch's operators.

    Args:
        input: a tensor of any shape and strides.
        dim: the dimension along which the result sums to 1.
        dtype: the dtype that the input is cast to first, and that of the result. None: the dtype of the input, but float32 for
            16-bit inputs under torch.autocast.
        scale: a number, or a tensor that broadcasts against the input, with size 1 along `dim`.
        temperature: a number or tensor as `scale`, by which the scores are divided. A row with temperature 0 is greedy: its
            largest unmasked scores share the weight equally, regardless of the sink and an added mask, and its gradients are
            0. Tensors are never read by the host.
        mask: a tensor that broadcasts against the input: boolean, True to keep an element; floating-point, which is added; or
            int32 with ceil(n / 32) words along `dim` for n elements, of which bit j of word k keeps element 32 k + j, as in
            xgrammar, vLLM and SGLang.
        causal: True or "upper_left" keeps column j of row i if j <= i, in the last two dimensions; "lower_right" aligns the
            last row with the last column. `dim` must be the last dimension.
        softcap: a positive number, or None.
        sink: an additional logit of each row, in the denominator only: a number, a tensor that broadcasts against the input
            with size 1 along `dim`, or for inputs of more than two dimensions one number per head (dimension -3).
        masked_rows: "nan" returns nan for rows with scores of -inf alone, as torch does; "zero" returns 0 (-inf for
            log_softmax) with gradients of 0, as a sink does. With "zero", a sink, a boolean mask or causal, gradients are 0 in
            nan rows and where scores are -inf; an added mask alone leaves them to torch's rule, as `input + mask` does.
        out: the tensor to write the result to, of the same dtype and device. It is written directly if it is the input or
            shares no memory with inputs; otherwise the result is copied. It is resized as by torch. Not differentiable.

    Returns:
        A contiguous tensor of the input's shape, or `out`.

    Raises:
        IndexError, TypeError: `dim` is out of range; an argument has another type.
        ValueError: `causal`, `softcap` or `masked_rows` is none of the above.
        RuntimeError: `out` has another dtype or device, or a gradient is required; a tensor has another shape or device.
        DtypeError, LayoutError: options require a floating-point dtype, and strided tensors; both are a NotImplementedError.
        DeviceError, PlanError, CompileError: the kernel cannot run on the tensor's device.
    """
    return compute(False, (input, mask, scale, temperature, sink), softcap, dim, dtype, causal, masked_rows, out)


def log_softmax(
    input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, scale: Factor = None, temperature: Factor = None,
    mask: torch.Tensor | None = None, causal: bool | str = False, softcap: float | None = None, sink: Factor = None,
    masked_rows: str = "nan", out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Computes the logarithm of `softmax` by one fused kernel. Arguments, result and errors are those of `softmax`."""
    return compute(True, (input, mask, scale, temperature, sink), softcap, dim, dtype, causal, masked_rows, out)


def softmin(
    input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, scale: Factor = None, temperature: Factor = None,
    mask: torch.Tensor | None = None, causal: bool | str = False, softcap: float | None = None, sink: Factor = None,
    masked_rows: str = "nan", out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Computes `softmax` with the negative of `scale`. Arguments, result and errors are those of `softmax`."""
    scale = as_float("softmin", "scale", scale)
    scale = -1.0 if scale is None else -scale
    return compute(False, (input, mask, scale, temperature, sink), softcap, dim, dtype, causal, masked_rows, out)


class Softmax(torch.nn.Softmax):
    """Applies `softmax` along `dim`; a subclass of torch.nn.Softmax with a default `dim` of -1.

    Args:
        dim: the dimension along which the result sums to 1.
        options: those of `softmax`. Tensors stay on their device: rather pass them to calls.
    """

    function: Any = staticmethod(softmax)

    def __init__(self, dim: int = -1, **options: Any) -> None:
        super().__init__(dim)
        self.options = options

    def forward(self, input: torch.Tensor, **options: Any) -> torch.Tensor:
        """Computes the function of a tensor; options such as a mask extend or replace those of the module."""
        return self.function(input, self.dim, **self.options | options)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Returns dim and the options as text."""
        return ", ".join(f"{name}={option!r}" for name, option in ({"dim": self.dim} | self.options).items())


class LogSoftmax(Softmax, torch.nn.LogSoftmax):
    """Applies `log_softmax` along `dim`; a subclass of torch.nn.LogSoftmax. Arguments are those of `Softmax`."""

    function = staticmethod(log_softmax)
