"""softmax and log_softmax, and their gradient."""

from typing import Any

import torch
from torch import Tensor

from portable_softmax.operators import checks, launch, reference
from portable_softmax.operators.arguments import written
from portable_softmax.operators.operator import Operator

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
        if x is not None:
            checks.check_alike(self.name, "x", x, y, y.shape, dtype)
        checks.check_real(self.name, "y", y.dtype)
        checks.check_real(self.name, "dtype", dtype)
        dim = checks.wrap_dim(self.name, dim, y.dim())
        checks.check_scores(self.name, y, args, dim)
        return self.Options(checks.softcap_of(self.name, softcap), log, dim, voids, dtype)

    def describe(self, args: Any, options: Any, invariant: bool) -> dict[str, Any]:
        """Returns fields of Problem; a mask in it is for elements without weight."""
        launch.check_supported(args.y, options.dim, options.dtype)
        scores = launch.scores_of(args, options.softcap, mask="bool" if options.voids else None)
        return {"scores": scores, "form": FORMS[options.log], "backward": True, "batch_invariant": invariant}


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
        if not isinstance(causal, (bool, str, type(None))) or causal not in CAUSAL:
            raise ValueError(checks.wrong(name, "causal", "be True, False, 'upper_left' or 'lower_right'", repr(causal)))
        is_plain = softcap is None and not causal and not zero_rows and all(t is None for t in args[1:])
        if not is_plain:  # torch computes a plain one of other layouts, or raises its error
            checks.check_tensor(name, "input", x)
        dim, dtype = checks.wrap_dim(name, dim, x.dim()), checks.dtype_of(x, dtype)
        if causal and (x.dim() < 2 or dim != x.dim() - 1):
            raise ValueError(f"{name}(): causal masks the last two dimensions, and dim must be the last; use mask= instead")
        checks.check_scores(name, x, args, dim)
        if not is_plain:
            checks.check_real(name, "input", dtype)
        return self.Options(softcap, log, dim, dtype, CAUSAL[causal], zero_rows)

    def describe(self, args: Any, options: Any, invariant: bool) -> dict[str, Any]:
        """Returns fields of Problem."""
        softcap, log, dim, dtype, causal, zero_rows = options
        launch.check_supported(args.x, dim, dtype)
        if torch.promote_types(args.x.dtype, dtype) != dtype:  # torch rounds x first, and kernels do not
            raise launch.NoKernel(f"{args.x.dtype} to {dtype}")
        scores = launch.scores_of(args, softcap, causal=causal, zero_rows=zero_rows)
        return {"scores": scores, "form": FORMS[log], "batch_invariant": invariant}

    def saved(self, ctx: Any, args: Any, y: Tensor) -> tuple[Any, ...]:
        """Returns what the gradient of x depends on; all arguments if another one requires a gradient."""
        if True in ctx.needs[1:]:
            return args
        softcap, log, dim, *_ = ctx.call.options
        x = args.x if softcap else None
        options = GRADIENT.Options(softcap, log, dim, reference.has_voids(args, ctx.call.options), args.x.dtype)
        return options, y, x, args.scale, args.temperature

    def gradients(self, ctx: Any, saved: list[Any], dresults: tuple[Any, ...]) -> tuple[Any, ...]:
        """Computes the gradient of x by a launch; if others are required, all of them by the reference."""
        if True in ctx.needs[1:]:
            return reference.differentiate(self.reference, self.Args(*saved), ctx.call.options, ctx.needs, dresults)
        options, *tensors = saved
        return GRADIENT.compute_gradient(ctx.call, GRADIENT.Args(*dresults, *tensors), options), None, None, None, None


GRADIENT, SOFTMAX = _Gradient(), _Softmax()


def compute(
    log: bool, inputs: tuple[Any, ...], softcap: Any, dim: Any, dtype: Any, causal: Any, masked_rows: Any, out: Any = None
) -> Tensor:
    """Computes a softmax of arguments as the caller passed them; see api.functional.softmax."""
    x, _, scale, temperature, sink = args = SOFTMAX.Args(*inputs)
    name = FORMS[log]
    for argument, t in (("input", x), ("out", x if out is None else out)):
        if not isinstance(t, Tensor):
            raise checks.mistyped(name, argument, "Tensor", t)
    if not scale is temperature is sink is None:
        args = checks.normalized(name, args)
    checks.check_masked_rows(name, masked_rows)
    if dtype is None:
        dtype = checks.dtype_of(x)
    options = softcap, log, dim, dtype, causal, masked_rows == "zero"
    if out is None:
        return SOFTMAX.call(args, options)
    return out if SOFTMAX.launch_into(out, args, options) else written(name, out, SOFTMAX.call(args, options))
