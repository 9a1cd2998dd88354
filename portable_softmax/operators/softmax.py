"""softmax and log_softmax, and their gradient."""

from typing import Any

import torch
from torch import Tensor

from portable_softmax.operators import checks, launch, reference
from portable_softmax.operators.arguments import written
from portable_softmax.operators.operator import Call, Operator

FORMS = {False: "softmax", True: "log_softmax"}
CAUSAL = {False: None, None: None, True: "upper_left", "upper_left": "upper_left", "lower_right": "lower_right"}


def _check_gradient(args: Any, *options: Any) -> Any:
    """Raises an error unless a launch may read the tensors: of one shape and device, and of two types."""
    (dy, y, x, *_), (softcap, log, dim, voids, dtype), name = args, options, "softmax_backward"
    if (x is None) != (softcap is None):
        raise ValueError(f"{name}(): x is required with a softcap, and only with one")
    checks.check_tensor(name, "y", y)
    checks.check_alike(name, "dy", dy, y, y.shape, y.dtype)
    if x is not None:
        checks.check_alike(name, "x", x, y, y.shape, dtype)
    checks.check_real(name, "y", y.dtype)
    checks.check_real(name, "dtype", dtype)
    dim = checks.wrap_dim(name, dim, y.dim())
    checks.check_scores(name, y, args, dim)
    return GRADIENT.Options(checks.softcap_of(name, softcap), log, dim, voids, dtype)


def _gradient_described(args: Any, options: Any, invariant: bool) -> tuple[str, dict[str, Any]]:
    scores = launch.scores_of(args, options.softcap, mask="bool" if options.voids else None)
    about = {"form": FORMS[options.log], "backward": True, "batch_invariant": invariant}
    return launch.describe(args.y, options.dim, scores, options.dtype, **about)


GRADIENT = Operator(
    "softmax_backward(Tensor dy, Tensor y, Tensor? x, float?|Tensor? scale, float?|Tensor? temperature, float? softcap, "
    "bool log, SymInt dim, bool voids, ScalarType dtype) -> Tensor",
    check=_check_gradient,
    reference=reference.softmax_gradient,
    describe=_gradient_described,
    whole=3,
)


def _check(args: Any, *options: Any) -> Any:
    """Returns the options after checks of all arguments; errors are those of api.functional.softmax."""
    softcap, log, dim, dtype, causal, zero_rows = options
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
    return SOFTMAX.Options(softcap, log, dim, dtype, CAUSAL[causal], zero_rows)


def _described(args: Any, options: Any, invariant: bool) -> tuple[str, dict[str, Any]]:
    softcap, log, dim, dtype, causal, zero_rows = options
    scores = launch.scores_of(args, softcap, causal=causal, zero_rows=zero_rows)
    reason, about = launch.describe(args.x, dim, scores, dtype, form=FORMS[log], batch_invariant=invariant)
    if not reason and torch.promote_types(args.x.dtype, dtype) != dtype:  # torch rounds x first, and kernels do not
        reason = f"{args.x.dtype} to {dtype}"
    return reason, about


def _saved(call: Call, args: Any, y: Tensor) -> tuple[Any, ...]:
    """Returns what the gradient of x depends on; all arguments if another one requires a gradient."""
    if True in call.needs[1:]:
        return args
    softcap, log, dim, *_ = call.options
    x = args.x if softcap else None
    options = GRADIENT.Options(softcap, log, dim, reference.has_voids(args, call.options), args.x.dtype)
    return options, y, x, args.scale, args.temperature


def _gradients(call: Call, saved: list[Any], dresults: tuple[Any, ...]) -> tuple[Any, ...]:
    """Computes the gradient of x by a launch; if others are required, all of them by the reference."""
    if True in call.needs[1:]:
        return reference.differentiate(reference.softmax, SOFTMAX.Args(*saved), call.options, call.needs, dresults)
    options, *tensors = saved
    return GRADIENT.compute_gradient(call, GRADIENT.Args(*dresults, *tensors), options), None, None, None, None


SOFTMAX = Operator(
    "softmax(Tensor x, Tensor? mask, float?|Tensor? scale, float?|Tensor? temperature, Tensor? sink, float? softcap, "
    "bool log, SymInt dim, ScalarType dtype, str? causal, bool zero_rows) -> Tensor",
    check=_check,
    reference=reference.softmax,
    describe=_described,
    saved=_saved,
    gradients=_gradients,
)


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
