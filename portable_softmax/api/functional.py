"""softmax, log_softmax, softmin and modules as in torch, with scale, mask and other options of attention and samplers."""

from typing import Any

import torch
from torch import Tensor

from portable_softmax.operators import checks, launch, reference
from portable_softmax.operators.checks import Factor
from portable_softmax.operators.operator import Call, Operator

FORMS = {False: "softmax", True: "log_softmax"}
CAUSAL = {False: None, None: None, True: "upper_left", "upper_left": "upper_left", "lower_right": "lower_right"}


class _Gradient(Operator):
    schema = (
        "softmax_backward(Tensor dy, Tensor y, Tensor? x, Tensor? scale, Tensor? temperature, float? scale_number, "
        "float? temperature_number, float? softcap, bool log, SymInt dim, bool voids, ScalarType dtype) -> Tensor"
    )
    whole = 3
    reference = staticmethod(reference.softmax_gradient)

    def check(self, args: Any, softcap: Any, log: Any, dim: Any, voids: Any, dtype: Any) -> Any:
        """Returns the options; raises an error unless tensors are of one shape and device, and of two types."""
        dy, y, x, *_ = args
        if (x is None) != (softcap is None):
            raise ValueError(f"{self.name}(): x is required with a softcap, and only with one")
        checks.check_tensor(self.name, "y", y)
        checks.check_alike(self.name, "dy", dy, y, y.shape, y.dtype)
        checks.check_alike(self.name, "x", x, y, y.shape, dtype)
        checks.check_real(self.name, "y", y.dtype)
        checks.check_real(self.name, "dtype", dtype)
        dim = checks.wrap_dim(self.name, dim, y.dim())
        checks.check_scores(self.name, y, args, dim)
        return self.Options(checks.softcap_of(self.name, softcap), log, dim, voids, dtype)

    def describe(self, args: Any, options: Any, invariant: bool) -> dict[str, Any]:
        mask = "bool" if options.voids else None
        scores = launch.scores_of(args.y, options.dim, args, options.softcap, options.dtype, mask=mask)
        about = {"dim": options.dim, "backward": True, "batch_invariant": invariant}
        return {"scores": scores, "form": FORMS[options.log], **about}


class _Softmax(Operator):
    schema = (
        "softmax(Tensor x, Tensor? mask, Tensor? scale, Tensor? temperature, Tensor? sink, float? scale_number, "
        "float? temperature_number, float? softcap, bool log, SymInt dim, ScalarType dtype, str? causal, "
        "bool zero_rows) -> Tensor"
    )
    reference = staticmethod(reference.softmax)

    def check(self, args: Any, softcap: Any, log: Any, dim: Any, dtype: Any, causal: Any, zero_rows: Any) -> Any:
        """Returns the options; errors are those of api.functional.softmax."""
        x, name = args.x, FORMS[log]
        softcap = checks.softcap_of(name, softcap)
        is_valid = isinstance(causal, (bool, str, type(None))) and causal in CAUSAL
        kinds = "be True, False, 'upper_left' or 'lower_right', not {!r}"
        checks.require(is_valid, ValueError, name, "causal", kinds, causal)
        dtype, is_plain = checks.dtype_of(x, dtype), softcap is None and not causal and not zero_rows
        if not is_plain or any(t is not None for t in args[1:]):  # else torch computes other layouts, or raises its error
            checks.check_tensor(name, "input", x)
            checks.check_real(name, "input", dtype)
        dim = checks.wrap_dim(name, dim, x.dim())
        if causal and (x.dim() < 2 or dim != x.dim() - 1):
            raise ValueError(f"{name}(): causal masks the last two dimensions, and dim must be the last; use mask= instead")
        checks.check_scores(name, x, args, dim)
        return self.Options(softcap, log, dim, dtype, CAUSAL[causal], zero_rows)

    def describe(self, args: Any, options: Any, invariant: bool) -> dict[str, Any]:
        softcap, log, dim, dtype, causal, zero_rows = options
        scores = launch.scores_of(args.x, dim, args, softcap, dtype, causal=causal, zero_rows=zero_rows)
        if torch.promote_types(args.x.dtype, dtype) != dtype:  # torch rounds x first, and kernels do not
            raise launch.NoKernel(f"{args.x.dtype} to {dtype}")
        return {"scores": scores, "form": FORMS[log], "dim": dim, "batch_invariant": invariant}

    def saved(self, call: Call, args: Any, y: Tensor) -> tuple[Any, ...]:
        softcap, log, dim, *_ = call.options
        options = GRADIENT.Options(softcap, log, dim, reference.has_voids(args, call.options), args.x.dtype)
        return options, y, args.x if softcap else None, args.scale, args.temperature

    def gradient(self, call: Call, saved: list[Any], dresults: tuple[Any, ...]) -> Any:
        options, *tensors = saved
        return GRADIENT.compute_gradient(call, GRADIENT.Args(*dresults, *tensors), options)


GRADIENT: Any = _Gradient()
SOFTMAX: Any = _Softmax()


def _compute(
    log: bool, inputs: tuple[Any, ...], softcap: Any, dim: Any, dtype: Any, causal: Any, masked_rows: Any, out: Tensor | None
) -> Tensor:
    name, x, args = FORMS[log], inputs[0], SOFTMAX.Args(*inputs)
    for argument, t in (("input", x), ("out", x if out is None else out)):
        if not isinstance(t, Tensor):
            raise TypeError(f"{name}(): argument '{argument}' must be Tensor, not {type(t).__name__}")
    if any(t is not None for t in (args.scale, args.temperature, args.sink)):  # numbers become floats, a sink a tensor
        args = checks.normalized(name, args)
    if dtype is None:
        dtype = checks.dtype_of(x)
    options = softcap, log, dim, dtype, causal, checks.zero_rows_of(name, masked_rows)
    if out is not None and SOFTMAX.launch_into(out, args, options):
        return out
    y: Tensor = SOFTMAX.call(args, options)
    if out is None:
        return y
    checks.check_tensor(name, "out", out, y)
    if out.dtype != y.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {y.dtype}, but got {out.dtype} instead")
    return torch.mul(y, 1, out=out)  # resized with torch's warning, or refused with its errors


def softmax(
    input: Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, scale: Factor = None, temperature: Factor = None,
    mask: Tensor | None = None, causal: bool | str = False, softcap: float | None = None, sink: Factor = None,
    masked_rows: str = "nan", out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Computes the softmax of scores along `dim` by one fused kernel: softcap * tanh(scale * input / softcap) / temperature.

    Options are applied in the order scale, softcap, temperature, mask and causal, sink. A kernel computes strided tensors in
    float16, bfloat16 or float32 on an accelerator, and with TRITON_INTERPRET=1 on the CPU; PyTorch's operators compute all
    others. Differentiable in every mode: the gradient of the input is a second fused kernel, which needs the output alone if
    there are no options; if scale, temperature, mask or sink require one, PyTorch's operators compute all gradients.

    Args:
        input: a tensor of any shape and strides.
        dim: the dimension along which the result sums to 1.
        dtype: the dtype that the input is cast to first, and that of the result. None: the dtype of the input, but float32 for
            16-bit inputs under torch.autocast.
        scale: a number, or a tensor that broadcasts against the input, with size 1 along `dim`. Negative numbers, and those
            outside of 2**-60 to 2**60, become a tensor at each call.
        temperature: a number or tensor as `scale`, by which the scores are divided. A row with temperature 0 is greedy: its
            largest unmasked scores share the weight, regardless of the sink and an added mask, and its gradients are 0.
        mask: a tensor that broadcasts against the input: boolean, True to keep an element; floating-point, which is added; or
            int32 with ceil(n / 32) words along `dim` for n elements, of which bit j of word k keeps element 32 k + j.
        causal: True or "upper_left" keeps column j of row i if j <= i, in the last two dimensions; "lower_right" aligns the
            last row with the last column. `dim` must be the last dimension.
        softcap: a positive number, or None.
        sink: an additional logit of each row, in the denominator only: a number, a tensor that broadcasts against the input
            with size 1 along `dim`, or for inputs of more than two dimensions one number per head (dimension -3).
        masked_rows: "nan" returns nan for rows with scores of -inf alone, as torch does; "zero" returns 0 (-inf for
            log_softmax) with gradients of 0, as a sink does. With "zero", a sink, a boolean mask or causal, gradients are 0 in
            nan rows and where scores are -inf; an added mask alone leaves them to torch's rule, as `input + mask` does.
        out: the tensor to write the result to, of the same dtype and device, resized as by torch. It is written directly if it
            is the input or shares no memory with inputs; otherwise the result is copied. Not differentiable.

    Returns:
        A contiguous tensor of the input's shape, or `out`.

    Raises:
        IndexError, TypeError: `dim` is out of range; an argument has another type.
        ValueError: `causal`, `softcap` or `masked_rows` is none of the above.
        RuntimeError: `out` has another dtype or device, or a gradient is required; a tensor has another shape or device.
        DtypeError, LayoutError: options require a floating-point dtype, and strided tensors; both are a NotImplementedError.
        DeviceError, PlanError, CompileError: the kernel cannot run on the tensor's device.
    """
    return _compute(False, (input, mask, scale, temperature, sink), softcap, dim, dtype, causal, masked_rows, out)


def log_softmax(
    input: Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, scale: Factor = None, temperature: Factor = None,
    mask: Tensor | None = None, causal: bool | str = False, softcap: float | None = None, sink: Factor = None,
    masked_rows: str = "nan", out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Computes the logarithm of `softmax` by one fused kernel. Arguments, result and errors are those of `softmax`."""
    return _compute(True, (input, mask, scale, temperature, sink), softcap, dim, dtype, causal, masked_rows, out)


def softmin(input: Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, scale: Factor = None, **options: Any) -> Tensor:
    """Computes `softmax` with the negative of `scale`. Arguments, result and errors are those of `softmax`."""
    scale = checks.as_float("softmin", "scale", scale)
    return softmax(input, dim, dtype, scale=-1.0 if scale is None else -scale, **options)


class Softmax(torch.nn.Softmax):
    """Applies `softmax` along `dim` with these options, of which tensors stay on their device; a torch.nn.Softmax."""

    function: Any = staticmethod(softmax)

    def __init__(self, dim: int = -1, **options: Any) -> None:
        super().__init__(dim)
        self.options = options

    def forward(self, input: Tensor, **options: Any) -> Tensor:
        """Computes the function of a tensor; options such as a mask extend or replace those of the module."""
        return self.function(input, self.dim, **self.options | options)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Returns dim and the options as text."""
        return ", ".join(f"{name}={option!r}" for name, option in ({"dim": self.dim} | self.options).items())


class LogSoftmax(Softmax, torch.nn.LogSoftmax):
    """Applies `log_softmax` along `dim` with these options; a torch.nn.LogSoftmax."""

    function = staticmethod(log_softmax)
