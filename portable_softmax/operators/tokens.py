"""token_log_probs and its gradient, sample_token, and ids of kept tokens as a mask in bits."""

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from portable_softmax.errors import DtypeError
from portable_softmax.operators import arguments, checks, launch, reference
from portable_softmax.operators.operator import Call, Operator
from portable_softmax.planning.problem import MAX_COLS, LogProbs
from portable_softmax.runtime import bind

NAME, SAMPLE_NAME = "token_log_probs", "sample_token"
SCORES = (
    "Tensor? mask, float?|Tensor? scale, float?|Tensor? temperature, float? softcap, SymInt dim, SymInt ignore_index, "
    "bool entropy, bool lse, bool zero_rows)"
)
About = tuple[str, dict[str, Any]]


def check(name: str, args: Any, softcap: Any, dim: Any, ignore_index: Any, entropy: Any, lse: Any, zero_rows: Any) -> Any:
    """Returns the options after checks of all arguments; errors are those of api.tokens.token_log_probs."""
    x, ids, *_ = args
    checks.check_tensor(name, "logits", x)
    checks.check_tensor(name, "ids", ids, x)
    if ids.dtype is torch.bool or ids.is_floating_point() or ids.is_complex():
        raise DtypeError(checks.wrong(name, "ids", "hold integers", ids.dtype))
    checks.check_real(name, "logits", x.dtype)
    for argument, value in (("entropy", entropy), ("return_lse", lse)):
        if not isinstance(value, bool):
            raise checks.mistyped(name, argument, "bool", value)
    ignore_index, dim = checks.as_integer(name, "ignore_index", ignore_index), checks.wrap_dim(name, dim, x.dim())
    rows = checks.with_size(x, dim)
    if not x.dim() or ids.dim() > x.dim() or checks.differ(ids.shape[: len(rows)], rows):
        required = f"have the shape {rows} of logits without dim, or one more dimension"
        raise ValueError(checks.wrong(name, "ids", required, tuple(ids.shape)))
    checks.check_scores(name, x, args, dim)
    return TOKENS.Options(checks.softcap_of(name, softcap), dim, ignore_index, entropy, lse, zero_rows)


def _statistics_of(x: Tensor, options: Any) -> tuple[tuple[int, ...], torch.dtype]:
    """Returns shape and dtype of statistics."""
    shape = LogProbs(entropy=options.entropy).n_statistics, *checks.with_size(x, options.dim)
    return shape, torch.promote_types(x.dtype, torch.float32)


def _described(args: Any, options: Any, invariant: bool, wanted: LogProbs | None = None) -> About:
    wanted = wanted or LogProbs(entropy=options.entropy, lse=options.lse)
    n_ids = args.ids.shape[-1] if args.ids.dim() == args.x.dim() else 1
    scores = launch.scores_of(args, options.softcap, zero_rows=options.zero_rows)
    about = {"batch_invariant": invariant, "log_probs": wanted, "sizes": {"n_ids": n_ids, "ignored": options.ignore_index}}
    return launch.describe(args.x, options.dim, scores, form="log_softmax", **about)


def _check_gradient(args: Any, *options: Any) -> Any:
    """Raises an error unless tensors that kernels read without strides are of the results' shapes, dtype and device."""
    checked, name = check(NAME, args, *options), "token_log_probs_backward"
    x, ids, statistics, dpicked, dstatistics, *_ = args
    shape, dtype = _statistics_of(x, checked)
    checks.check_alike(name, "statistics", statistics, x, shape, dtype)
    for argument, t, size in (("dpicked", dpicked, ids.shape), ("dstatistics", dstatistics, shape)):
        if t is not None:
            checks.check_alike(name, argument, t, x, size, dtype)
    return checked


def _gradient_described(args: Any, options: Any, invariant: bool) -> About:
    # A cap is differentiated at the score before a mask is added, and the kernel has the sum.
    if options.softcap is not None and args.mask is not None and args.mask.is_floating_point():
        return "gradients behind a softcap and an added mask", {}
    many, has_rows = args.ids.dim() == args.x.dim() and args.ids.shape[-1] != 1, args.dstatistics is not None
    wanted = LogProbs(gradient=True, many=many, entropy=has_rows and options.entropy, lse=has_rows and options.lse)
    return _described(args, options, False, wanted)


def _gradient_converted(args: Any) -> tuple[Any, ...]:
    x, ids, statistics, dpicked, dstatistics, *scores = args
    dpicked = statistics.new_zeros(ids.shape) if dpicked is None else dpicked
    dlse = dentropy = None
    if dstatistics is not None:
        dlse, *_, dentropy = dstatistics.contiguous()
    return x, ids.to(torch.int64).contiguous(), statistics.contiguous(), dpicked.contiguous(), dlse, dentropy, *scores


GRADIENT = Operator(
    "token_log_probs_backward(Tensor x, Tensor ids, Tensor statistics, Tensor? dpicked, Tensor? dstatistics, "
    f"{SCORES} -> Tensor",
    check=_check_gradient,
    reference=reference.log_probs_gradient,
    describe=_gradient_described,
    operands=("x", "ids", "statistics", "d_out", "d_lse", "d_entropy", "mask", "scale", "temperature"),
    converted=_gradient_converted,
)


def _empty(args: Any, options: Any) -> tuple[Tensor, ...]:
    shape, dtype = _statistics_of(args.x, options)
    return tuple(torch.empty(size, dtype=dtype, device=args.x.device) for size in (args.ids.shape, shape))


def _gradients(call: Call, saved: list[Any], dresults: tuple[Any, ...]) -> tuple[Any, ...]:
    """Computes the gradient of x by a launch, in place if it may be; if others are required, all of them by the reference."""
    statistics, x, ids, *scores = saved
    if True in call.needs[2:]:
        return reference.differentiate(reference.log_probs, TOKENS.Args(x, ids, *scores), call.options, call.needs, dresults)
    args = GRADIENT.Args(x, ids, statistics, *dresults, *scores)
    if call.in_place and GRADIENT.launch_into(dx := x.detach(), args, call.options, False):
        return dx, None, None, None, None
    return GRADIENT.compute_gradient(call, args, call.options), None, None, None, None


TOKENS = Operator(
    f"{NAME}(Tensor x, Tensor ids, {SCORES} -> (Tensor, Tensor)",
    check=lambda args, *options: check(NAME, args, *options),
    reference=reference.log_probs,
    describe=_described,
    empty=_empty,
    converted=lambda args: (args[0], args[1].to(torch.int64).contiguous(), *args[2:]),
    saved=lambda call, args, results: (results[1], *args),
    gradients=_gradients,
)


def compute(args: Any, options: tuple[Any, ...], grad_inplace: bool = False) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Computes (log-probabilities, logsumexp or None, entropies or None); see api.tokens.token_log_probs."""
    if not args.scale is args.temperature is None:
        args = checks.normalized(NAME, args)
    (picked, statistics), (*_, entropy, has_lse, _) = TOKENS.call(args, options, grad_inplace), options
    if not entropy and not has_lse:
        return picked, None, None
    lse, *_, entropies = statistics.unbind()  # which are saved: a caller may modify copies
    return picked, lse.clone() if has_lse else None, entropies.clone() if entropy else None


def _check_sample(args: Any, softcap: Any) -> Any:
    """Returns the options after checks of all arguments; errors are those of api.tokens.sample_token."""
    name, x = SAMPLE_NAME, args.x
    checks.check_tensor(name, "logits", x)
    checks.check_real(name, "logits", x.dtype)
    if not x.dim() or checks.is_known(x.shape[-1] == 0) or x.shape[-1] > MAX_COLS:
        raise ValueError(checks.wrong(name, "logits", f"have 1 to {MAX_COLS} tokens per row", f"the shape {tuple(x.shape)}"))
    checks.check_scores(name, x, args, x.dim() - 1)
    if type(args.min_p) is float and not 0 <= args.min_p < 1:
        raise ValueError(checks.wrong(name, "min_p", "be at least 0 and below 1", args.min_p))
    for argument, value in (("seed", args.seed), ("position", args.position)):
        if isinstance(value, Tensor):
            checks.check_broadcast(name, argument, x, tuple(x.shape[:-1]), value)
            if value.dtype not in (torch.int64, torch.int32):
                raise DtypeError(checks.wrong(name, argument, "hold int64 or int32", value.dtype))
    return SAMPLE.Options(checks.softcap_of(name, softcap))


def _sample_described(args: Any, options: Any, invariant: bool) -> About:
    kinds = {name: launch.kind_of(getattr(args, name)) for name in ("min_p", "seed", "position")}
    about = {"batch_invariant": invariant, "log_probs": LogProbs(sample=True, **kinds)}
    scores = launch.scores_of(args, options.softcap)
    return launch.describe(args.x, args.x.dim() - 1, scores, form="log_softmax", **about)


def _empty_sample(args: Any, options: Any) -> tuple[Tensor, ...]:
    dtypes = torch.int64, torch.promote_types(args.x.dtype, torch.float32)
    return tuple(args.x.new_empty(args.x.shape[:-1], dtype=dtype) for dtype in dtypes)


SAMPLE = Operator(
    f"{SAMPLE_NAME}(Tensor x, Tensor? mask, float?|Tensor? temperature, float?|Tensor? min_p, SymInt?|Tensor? seed, "
    "SymInt?|Tensor? position, float? softcap) -> (Tensor, Tensor)",
    check=_check_sample,
    reference=reference.sample,
    describe=_sample_described,
    empty=_empty_sample,
)


def mask_of(name: str, x: Tensor, kept: Any, mask: Any, dim: Any) -> Tensor:
    """Returns the mask of kept ids, after checks: in bits if a launch makes it, else boolean."""
    checks.check_tensor(name, "logits", x)
    checks.check_tensor(name, "kept", kept, x)
    dim = checks.wrap_dim(name, dim, x.dim())
    rows = checks.with_size(x, dim)
    if mask is not None:
        raise ValueError(f"{name}(): arguments 'mask' and 'kept' exclude each other")
    if kept.dtype not in (torch.int32, torch.int64):
        raise DtypeError(checks.wrong(name, "kept", "hold ids as int64 or int32", kept.dtype))
    if not x.dim() or not kept.dim() or checks.differ(kept.shape[:-1], rows):
        raise ValueError(checks.wrong(name, "kept", f"have the shape {(*rows, 'K')}", tuple(kept.shape)))
    size, is_plain = x.shape[dim], not is_compiling() and arguments.is_plain(kept)
    if is_plain and kept.is_cpu and ((kept < -1) | (kept >= size)).any():
        raise IndexError(checks.wrong(name, "kept", f"hold ids below {size}, or -1", f"{kept.min()} to {kept.max()}"))
    if is_plain and launch.has_kernels(kept):
        packed = bind.guarded(bind.pack, launch.device_of(kept))
        return packed(kept.to(torch.int64).contiguous(), size).movedim(-1, dim)
    return reference.keeps(kept, size).movedim(-1, dim)
