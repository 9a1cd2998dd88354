"""token_log_probs and its gradient, sample_token, and ids of kept tokens as a mask in bits."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from portable_softmax.errors import DtypeError
from portable_softmax.operators import arguments, checks, launch, reference
from portable_softmax.operators.operator import Operator
from portable_softmax.planning.problem import MAX_COLS, LogProbs
from portable_softmax.runtime import bind

SCORES = (
    "Tensor? mask, Tensor? scale, Tensor? temperature, float? scale_number, float? temperature_number, float? softcap, "
    "SymInt dim, SymInt ignore_index, bool entropy, bool lse, bool zero_rows)"
)


def _results_of(args: Any, options: Any) -> tuple[tuple[Any, Any], torch.dtype]:
    """Returns shapes of log-probabilities and statistics, and their dtype."""
    statistics = LogProbs(entropy=options.entropy).n_statistics, *checks.with_size(args.x, options.dim)
    return (args.ids.shape, statistics), torch.promote_types(args.x.dtype, torch.float32)


class _Tokens(Operator):
    schema = f"token_log_probs(Tensor x, Tensor ids, {SCORES} -> (Tensor, Tensor)"
    reference = staticmethod(reference.log_probs)

    def check(self, args: Any, *options: Any, name: str = "token_log_probs") -> Any:
        """Returns the options; errors are those of api.tokens.token_log_probs."""
        (x, ids, *_), (softcap, dim, ignore_index, entropy, lse, zero_rows) = args, options
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
        return self.Options(checks.softcap_of(name, softcap), dim, ignore_index, entropy, lse, zero_rows)

    def describe(self, args: Any, options: Any, invariant: bool, log_probs: LogProbs | None = None) -> dict[str, Any]:
        """Returns fields of Problem, of these numbers per row."""
        launch.check_supported(args.x, options.dim)
        return {
            "scores": launch.scores_of(args, options.softcap, zero_rows=options.zero_rows),
            "form": "log_softmax",
            "batch_invariant": invariant,
            "log_probs": log_probs or LogProbs(entropy=options.entropy, lse=options.lse),
            "sizes": {"n_ids": math.prod(args.ids.shape[args.x.dim() - 1 :]), "ignored": options.ignore_index},
        }

    def empty(self, args: Any, options: Any) -> tuple[Tensor, ...]:
        """Returns log-probabilities and statistics without contents."""
        shapes, dtype = _results_of(args, options)
        return tuple(torch.empty(shape, dtype=dtype, device=args.x.device) for shape in shapes)

    def saved(self, ctx: Any, args: Any, results: Any) -> tuple[Any, ...]:
        """Returns what gradients depend on."""
        return results[1], *args

    def gradients(self, ctx: Any, saved: list[Any], dresults: tuple[Any, ...]) -> tuple[Any, ...]:
        """Computes the gradient of x by a launch, in place if it may be; if others are required, all by the reference."""
        (statistics, *values), (d_out, d_rows), call = saved, dresults, ctx.call
        if True in ctx.needs[2:]:
            return reference.differentiate(self.reference, self.Args(*values), call.options, ctx.needs, dresults)
        (x, ids, *scores), d_lse, d_entropy = values, None, None
        if d_out is None:
            d_out = statistics.new_zeros(ids.shape)
        if d_rows is not None and call.options.lse:
            d_lse = d_rows[0]
        if d_rows is not None and call.options.entropy:
            d_entropy = d_rows[2]
        args = GRADIENT.Args(x, ids, statistics, d_out, d_lse, d_entropy, *scores)
        if call.in_place and GRADIENT.launch_into(dx := x.detach(), args, call.options, False):
            return dx, None, None, None, None
        return GRADIENT.compute_gradient(call, args, call.options), None, None, None, None


class _Gradient(Operator):
    schema = (
        "token_log_probs_backward(Tensor x, Tensor ids, Tensor statistics, Tensor d_out, Tensor? d_lse, Tensor? d_entropy, "
        f"{SCORES} -> Tensor"
    )
    reference = staticmethod(reference.log_probs_gradient)

    def check(self, args: Any, *options: Any) -> Any:
        """Returns the options; raises an error unless tensors are of the results' shapes, dtype and device."""
        checked = TOKENS.check(args, *options)
        (picked, statistics), dtype = _results_of(args, checked)
        for name, shape in {
            "statistics": statistics,
            "d_out": picked,
            "d_lse": statistics[1:],
            "d_entropy": statistics[1:],
        }.items():
            if getattr(args, name) is not None:
                checks.check_alike(self.name, name, getattr(args, name), args.x, shape, dtype)
        if args.d_entropy is not None and not checked.entropy:
            raise ValueError(f"{self.name}(): d_entropy requires entropy=True, which statistics depend on")
        return checked

    def describe(self, args: Any, options: Any, invariant: bool) -> dict[str, Any]:
        """Returns fields of Problem."""
        # A cap is differentiated at the score before a mask is added, and the kernel has the sum.
        if options.softcap is not None and args.mask is not None and args.mask.is_floating_point():
            raise launch.NoKernel("gradients behind a softcap and an added mask")
        many, has_entropy = args.ids.dim() == args.x.dim() and args.ids.shape[-1] != 1, args.d_entropy is not None
        wanted = LogProbs(gradient=True, many=many, entropy=has_entropy, lse=args.d_lse is not None)
        return TOKENS.describe(args, options, False, wanted)


class _Sample(Operator):
    schema = (
        "sample_token(Tensor x, Tensor? mask, Tensor? temperature, Tensor? min_p, Tensor? seed, Tensor? position, "
        "float? temperature_number, float? min_p_number, SymInt? seed_number, SymInt? position_number, float? softcap) "
        "-> (Tensor, Tensor)"
    )
    reference = staticmethod(reference.sample)

    def check(self, args: Any, softcap: Any) -> Any:
        """Returns the options; errors are those of api.tokens.sample_token."""
        name, x = self.name, args.x
        checks.check_tensor(name, "logits", x)
        checks.check_real(name, "logits", x.dtype)
        if not x.dim() or checks.is_known(x.shape[-1] == 0) or x.shape[-1] > MAX_COLS:
            raise ValueError(
                checks.wrong(name, "logits", f"have 1 to {MAX_COLS} tokens per row", f"the shape {tuple(x.shape)}")
            )
        checks.check_scores(name, x, args, x.dim() - 1)
        if type(args.min_p) is float and not 0 <= args.min_p < 1:
            raise ValueError(checks.wrong(name, "min_p", "be at least 0 and below 1", args.min_p))
        for argument, value in (("seed", args.seed), ("position", args.position)):
            if isinstance(value, Tensor):
                checks.check_broadcast(name, argument, x, tuple(x.shape[:-1]), value)
                if value.dtype not in (torch.int64, torch.int32):
                    raise DtypeError(checks.wrong(name, argument, "hold int64 or int32", value.dtype))
        return self.Options(checks.softcap_of(name, softcap))

    def describe(self, args: Any, options: Any, invariant: bool) -> dict[str, Any]:
        """Returns fields of Problem."""
        launch.check_supported(args.x, args.x.dim() - 1)
        kinds = {name: launch.kind_of(getattr(args, name)) for name in ("min_p", "seed", "position")}
        about = {"form": "log_softmax", "batch_invariant": invariant, "log_probs": LogProbs(sample=True, **kinds)}
        return {"scores": launch.scores_of(args, options.softcap), **about}

    def empty(self, args: Any, options: Any) -> tuple[Tensor, ...]:
        """Returns ids and log-probabilities without contents."""
        dtypes = torch.int64, torch.promote_types(args.x.dtype, torch.float32)
        return tuple(args.x.new_empty(args.x.shape[:-1], dtype=dtype) for dtype in dtypes)


TOKENS, GRADIENT, SAMPLE = _Tokens(), _Gradient(), _Sample()


def compute(args: Any, options: tuple[Any, ...], grad_inplace: bool = False) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Computes (log-probabilities, logsumexp or None, entropies or None); see api.tokens.token_log_probs."""
    if not args.scale is args.temperature is None:
        args = checks.normalized(TOKENS.name, args)
    (picked, statistics), (*_, entropy, has_lse, _) = TOKENS.call(args, options, grad_inplace), options
    if not entropy and not has_lse:
        return picked, None, None
    lse, *_, entropies = statistics.unbind()  # which are saved: a caller may modify copies
    return picked, lse.clone() if has_lse else None, entropies.clone() if entropy else None


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
