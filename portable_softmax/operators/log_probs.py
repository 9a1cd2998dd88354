"""token_log_probs, and its gradient."""

from typing import Any

import torch
from torch import Tensor

from portable_softmax.errors import DtypeError
from portable_softmax.operators import launch, reference
from portable_softmax.operators.arguments import TokenArgs, TokenGradientArgs, TokenOptions, is_plain
from portable_softmax.operators.checks import (
    as_integer,
    check_alike,
    check_device,
    check_scores,
    check_tensor,
    differ,
    is_real,
    normalized,
    softcap_of,
    wrap_dim,
    wrong,
)
from portable_softmax.operators.operator import Call, Operator
from portable_softmax.planning.problem import LogProbs

NAME = "token_log_probs"
Results = tuple[Tensor, Tensor | None, Tensor | None]  # log-probabilities; logsumexp and entropies if they are requested


def check(name: str, args: Any, softcap: Any, dim: Any, ignore_index: Any, entropy: Any, lse: Any, zero_rows: Any) -> Any:
    """Returns the options after checks of all arguments; errors are those of api.log_probs.token_log_probs."""
    x, ids, *_ = args
    check_tensor(name, "logits", x)
    check_device(name, x, "ids", ids)
    if ids.dtype is torch.bool or ids.is_floating_point() or ids.is_complex():
        raise DtypeError(wrong(name, "ids", "hold integers", ids.dtype))
    if not is_real(x.dtype):
        raise DtypeError(wrong(name, "logits", "have a floating-point dtype of 16 bits or more", x.dtype))
    for argument, value in (("entropy", entropy), ("return_lse", lse)):
        if not isinstance(value, bool):
            raise TypeError(wrong(name, argument, "be bool", value))
    ignore_index, dim = as_integer(name, "ignore_index", ignore_index), wrap_dim(name, dim, x.dim())
    rows = rows_of(x, dim)
    if not x.dim() or ids.dim() > x.dim() or differ(ids.shape[: len(rows)], rows):
        required = f"have the shape {rows} of logits without dim, or one more dimension"
        raise ValueError(wrong(name, "ids", required, tuple(ids.shape)))
    check_scores(name, x, args, dim)
    return TokenOptions(softcap_of(name, softcap), dim, ignore_index, entropy, lse, zero_rows)


def rows_of(x: Tensor, dim: int) -> tuple[int, ...]:
    """Returns the shape of one number for each row."""
    return *x.shape[:dim], *x.shape[dim + 1 :]


def problem_of(args: Any, options: TokenOptions, invariant: bool, wanted: LogProbs) -> tuple[str, dict[str, Any]]:
    """Returns what no kernel supports, or "", and what Problem describes."""
    scores = launch.scores_of(args, options.softcap, zero_rows=options.zero_rows)
    about = {"form": "log_softmax", "batch_invariant": invariant, "scores": scores, "log_probs": wanted}
    return launch.reason(args.x, options.dim, scores), about


def n_ids_of(args: Any) -> int:
    """Returns the number of ids per row."""
    return args.ids.shape[-1] if args.ids.dim() == args.x.dim() else 1


def _check_gradient(args: TokenGradientArgs, *options: Any) -> TokenOptions:
    """Raises an error unless tensors that kernels read without strides are of the results' shapes, dtype and device."""
    checked, name = check(NAME, args, *options), "token_log_probs_backward"
    x, ids, statistics, dpicked, dlse, dentropy, *_ = args
    rows, like = rows_of(x, checked.dim), (torch.promote_types(x.dtype, torch.float32), x.device)
    check_alike(name, "statistics", statistics, (LogProbs(entropy=checked.entropy).n_statistics, *rows), *like)
    gradients = {"dpicked": (dpicked, ids.shape, True), "dlse": (dlse, rows, checked.lse)}
    gradients["dentropy"] = dentropy, rows, checked.entropy
    for argument, (dy, shape, requested) in gradients.items():
        if dy is not None:
            check_alike(name, argument, dy, shape, *like)
            if not requested:
                raise RuntimeError(f"{name}(): argument '{argument}' is the gradient of a result that was not requested")
    return checked


def _gradient_problem(args: Any, options: TokenOptions, invariant: bool) -> tuple[str, dict[str, Any]]:
    has_lse, has_entropy = args.dlse is not None, args.dentropy is not None
    wanted = LogProbs(gradient=True, many=n_ids_of(args) != 1, entropy=has_entropy, lse=has_lse)
    reason, about = problem_of(args, options, False, wanted)
    # The derivative of a cap is that of the score ahead of an added mask, and the kernel has the score behind it.
    if options.softcap is not None and args.mask is not None and args.mask.is_floating_point():
        reason = "gradients behind a softcap and an added mask"
    return reason, about


def _bind_gradient(args: Any, options: TokenOptions, about: dict[str, Any], out: Tensor | None) -> launch.Run:
    is_int64, are_contiguous = args.ids.dtype is torch.int64, all(t is None or t.is_contiguous() for t in args[1:6])

    def converted(args: Any) -> Any:
        x, ids, statistics, dpicked, dlse, dentropy, *rest = args
        ids = ids if is_int64 else ids.to(torch.int64)
        dpicked = statistics.new_zeros(ids.shape) if dpicked is None else dpicked
        tensors = [ids, statistics, dpicked, dlse, dentropy]
        return x, *(tensors if are_contiguous else [t if t is None else t.contiguous() for t in tensors]), *rest

    sizes = {"n_ids": n_ids_of(args), "ignored": options.ignore_index}
    return launch.like_input(args, 1, options.dim, args.x.dtype, about | {"sizes": sizes}, out, converted)


GRADIENT = Operator(
    "token_log_probs_backward",
    TokenGradientArgs,
    TokenOptions,
    check=_check_gradient,
    reference=reference.log_probs_gradient,
    problem=_gradient_problem,
    bind=_bind_gradient,
    empty=lambda args, options: torch.empty(args.x.shape, dtype=args.x.dtype, device=args.x.device),
)


def _problem(args: Any, options: TokenOptions, invariant: bool) -> tuple[str, dict[str, Any]]:
    return problem_of(args, options, invariant, LogProbs(entropy=options.entropy, lse=options.lse))


def _bind(args: Any, options: TokenOptions, about: dict[str, Any], out: None) -> launch.Run:
    as_is = args.ids.dtype is torch.int64 and args.ids.is_contiguous()

    def converted(args: Any) -> Any:
        x, ids, *rest = args
        return x, ids.to(torch.int64).contiguous(), *rest

    sizes = {"n_ids": n_ids_of(args), "ignored": options.ignore_index}
    return launch.per_row(args, options.dim, about | {"sizes": sizes}, _empty(args, options), None if as_is else converted)


def _empty(args: Any, options: TokenOptions) -> tuple[Tensor, Tensor]:
    x, dtype = args.x, torch.promote_types(args.x.dtype, torch.float32)
    shapes = args.ids.shape, (LogProbs(entropy=options.entropy).n_statistics, *rows_of(x, options.dim))
    picked, statistics = (torch.empty(shape, dtype=dtype, device=x.device) for shape in shapes)
    return picked, statistics


def _stored(args: Any, options: TokenOptions) -> tuple[Tensor, Tensor]:
    picked, lse, entropies = reference.log_probs(args, options._replace(lse=True))
    assert lse is not None, "it is requested"
    rows = (lse, torch.zeros_like(lse)) if entropies is None else (lse, torch.zeros_like(lse), entropies)
    return picked.contiguous(), torch.stack(rows)


def _finished(options: TokenOptions, results: Any) -> Results:
    """Returns results that a caller may modify: none of them is saved."""
    picked, statistics = results
    return picked, statistics[0].clone() if options.lse else None, statistics[-1].clone() if options.entropy else None


def _dresults(options: TokenOptions, dpicked: Any, dstatistics: Any) -> tuple[Any, Any, Any]:
    if dstatistics is None:
        return dpicked, None, None
    return dpicked, dstatistics[0] if options.lse else None, dstatistics[-1] if options.entropy else None


def _gradients(call: Call, in_place: bool, saved: list[Any], dresults: tuple[Any, ...]) -> tuple[Any, ...]:
    """Computes the gradients, all of them ahead of x being written over: by a launch that of x alone."""
    statistics, x, ids, mask, scale, temperature = saved
    # In the reference, the logsumexp of a greedy row has no gradient.
    if torch.is_grad_enabled() or any(call.needs[2:]) or (dresults[1] is not None and temperature is not None):
        args = TokenArgs(x, ids, mask, scale, temperature)
        dx, *others = reference.differentiate(reference.log_probs, args, call.options, call.needs, dresults)
    else:
        dpicked, dlse, dentropy = dresults
        gradient_args = TokenGradientArgs(x, ids, statistics, dpicked, dlse, dentropy, mask, scale, temperature)
        if in_place and GRADIENT.into(over := x.detach(), gradient_args, call.gradient, (), False):
            return over, None, None, None, None
        dx, *others = GRADIENT.of_call(call, gradient_args, call.gradient), None, None, None, None
    if in_place and not torch.is_grad_enabled() and dx is not None and is_plain(dx) and is_plain(x):
        dx = x.detach().copy_(dx)
    return dx, *others


TOKENS = Operator(
    NAME,
    TokenArgs,
    TokenOptions,
    check=lambda args, *options: check(NAME, args, *options),
    reference=reference.log_probs,
    problem=_problem,
    bind=_bind,
    empty=_empty,
    results="(Tensor, Tensor)",
    finished=_finished,
    stored=_stored,
    dresults=_dresults,
    saved=lambda call, args, results: (results[1], *args),
    gradients=_gradients,
)


def compute(args: TokenArgs, options: tuple[Any, ...], grad_inplace: bool = False) -> Results:
    """Computes log-probabilities of arguments and options as the caller passed them; see api.log_probs.token_log_probs."""
    if not args.scale is args.temperature is None:
        args = normalized(NAME, args)
    return TOKENS(args, options, tuple(map(type, options)), grad_inplace)
