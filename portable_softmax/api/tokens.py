"""token_log_probs and sample_token: log-probabilities of chosen tokens and samples, for policy gradients and samplers."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from portable_softmax.errors import DtypeError
from portable_softmax.operators import checks, launch, reference
from portable_softmax.operators.checks import Factor
from portable_softmax.operators.operator import Call, Operator
from portable_softmax.planning.problem import MAX_COLS, LogProbs
from portable_softmax.runtime.bind import pack
from portable_softmax.runtime.compile import on_device

SCORES = (
    "Tensor? mask, Tensor? scale, Tensor? temperature, float? scale_number, float? temperature_number, float? softcap, "
    "SymInt dim, SymInt ignore_index, bool entropy, bool lse, bool zero_rows)"
)


class _Tokens(Operator):
    schema = f"token_log_probs(Tensor x, Tensor ids, {SCORES} -> (Tensor, Tensor)"
    reference = staticmethod(reference.log_probs)

    def check(self, args: Any, *options: Any, name: str = "token_log_probs") -> Any:
        """Returns the options; errors are those of api.tokens.token_log_probs."""
        (x, ids, *_), (softcap, dim, ignore_index, entropy, lse, zero_rows) = args, options
        checks.check_tensor(name, "logits", x)
        checks.check_tensor(name, "ids", ids, x)
        is_integer = ids.dtype is not torch.bool and not ids.is_floating_point() and not ids.is_complex()
        checks.require(is_integer, DtypeError, name, "ids", "hold integers, not {}", ids.dtype)
        checks.check_real(name, "logits", x.dtype)
        for argument, value in (("entropy", entropy), ("return_lse", lse)):
            checks.require(isinstance(value, bool), TypeError, name, argument, "be bool, not {}", type(value).__name__)
        ignore_index, dim = checks.as_integer(name, "ignore_index", ignore_index), checks.wrap_dim(name, dim, x.dim())
        has_tokens, rows = x.dim() and not checks.is_known(x.shape[dim] == 0), checks.with_size(x, dim)
        shape = "have at least one token per row, not the shape {}"
        checks.require(has_tokens, ValueError, name, "logits", shape, tuple(x.shape))
        is_of_rows = ids.dim() <= x.dim() and not checks.differ(ids.shape[: len(rows)], rows)
        shape = "have the shape {} of logits without dim, or one more dimension, not {}"
        checks.require(is_of_rows, ValueError, name, "ids", shape, rows, tuple(ids.shape))
        checks.check_scores(name, x, args, dim)
        return self.Options(checks.softcap_of(name, softcap), dim, ignore_index, entropy, lse, zero_rows)

    def describe(self, args: Any, options: Any, invariant: bool, log_probs: LogProbs | None = None) -> dict[str, Any]:
        return {
            "scores": launch.scores_of(args.x, options.dim, args, options.softcap, zero_rows=options.zero_rows),
            "form": "log_softmax",
            "dim": options.dim,
            "batch_invariant": invariant,
            "log_probs": log_probs or LogProbs(entropy=options.entropy, lse=options.lse),
        }

    def sizes(self, args: Any, options: Any) -> dict[str, int]:
        return {"n_ids": math.prod(args.ids.shape[args.x.dim() - 1 :]), "ignored": options.ignore_index}

    def results(self, args: Any, options: Any) -> Any:
        rows, dtype = checks.with_size(args.x, options.dim), torch.promote_types(args.x.dtype, torch.float32)
        return (args.ids.shape, dtype), ((LogProbs(entropy=options.entropy).n_statistics, *rows), dtype)

    def saved(self, call: Call, args: Any, results: Any) -> tuple[Any, ...]:
        return results[1], *args

    def gradient(self, call: Call, saved: list[Any], dresults: tuple[Any, ...]) -> Any:
        """Computes the gradient of x, in place if it may be."""
        (statistics, x, ids, *scores), (d_out, d_rows), d_lse, d_entropy = saved, dresults, None, None
        if d_out is None:
            d_out = statistics.new_zeros(ids.shape)
        if d_rows is not None and call.options.lse:
            d_lse = d_rows[0]
        if d_rows is not None and call.options.entropy:
            d_entropy = d_rows[2]
        args = GRADIENT.Args(x, ids, statistics, d_out, d_lse, d_entropy, *scores)
        if call.grad_inplace and GRADIENT.launch_into(dx := x.detach(), args, call.options, False):
            return dx
        return GRADIENT.compute_gradient(call, args, call.options)


class _Gradient(Operator):
    schema = (
        "token_log_probs_backward(Tensor x, Tensor ids, Tensor statistics, Tensor d_out, Tensor? d_lse, Tensor? d_entropy, "
        f"{SCORES} -> Tensor"
    )
    reference = staticmethod(reference.log_probs_gradient)
    sizes = _Tokens.sizes

    def check(self, args: Any, *options: Any) -> Any:
        """Returns the options; raises an error unless tensors are of the results' shapes, dtype and device."""
        checked = TOKENS.check(args, *options)
        (picked, dtype), (statistics, _) = TOKENS.results(args, checked)
        shapes = statistics, picked, statistics[1:], statistics[1:]
        for name, t, shape in zip(args._fields[2:6], args[2:6], shapes, strict=True):
            checks.check_alike(self.name, name, t, args.x, shape, dtype)
        if args.d_entropy is not None and not checked.entropy:
            raise ValueError(f"{self.name}(): d_entropy requires entropy=True, which statistics depend on")
        return checked

    def describe(self, args: Any, options: Any, invariant: bool) -> Any:
        # A cap is differentiated at the score before a mask is added, and the kernel has the sum.
        if options.softcap is not None and args.mask is not None and args.mask.is_floating_point():
            raise launch.NoKernel("gradients behind a softcap and an added mask")
        many, has_entropy = args.ids.dim() == args.x.dim() and args.ids.shape[-1] != 1, args.d_entropy is not None
        wanted = LogProbs(gradient=True, many=many, entropy=has_entropy, lse=args.d_lse is not None)
        return TOKENS.describe(args, options, False, wanted)  # it reduces nothing: no row depends on others


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
        has_tokens = x.dim() and not checks.is_known(x.shape[-1] == 0) and x.shape[-1] <= MAX_COLS
        shape = "have 1 to {} tokens per row, not the shape {}"
        checks.require(has_tokens, ValueError, name, "logits", shape, MAX_COLS, tuple(x.shape))
        checks.check_scores(name, x, args, x.dim() - 1)
        is_valid = not isinstance(args.min_p, float) or 0 <= args.min_p < 1
        checks.require(is_valid, ValueError, name, "min_p", "be at least 0 and below 1, not {}", args.min_p)
        for argument, value in (("seed", args.seed), ("position", args.position)):
            if isinstance(value, Tensor):
                checks.check_broadcast(name, argument, x, tuple(x.shape[:-1]), value)
                is_integer = value.dtype in (torch.int64, torch.int32)
                checks.require(is_integer, DtypeError, name, argument, "hold int64 or int32, not {}", value.dtype)
        return self.Options(checks.softcap_of(name, softcap))

    def describe(self, args: Any, options: Any, invariant: bool) -> Any:
        kinds = {name: launch.kind_of(getattr(args, name)) for name in ("min_p", "seed", "position")}
        about = {"form": "log_softmax", "batch_invariant": invariant, "log_probs": LogProbs(sample=True, **kinds)}
        dim = args.x.dim() - 1
        return {"scores": launch.scores_of(args.x, dim, args, options.softcap), "dim": dim, **about}

    def results(self, args: Any, options: Any) -> Any:
        rows = args.x.shape[:-1]
        return (rows, torch.int64), (rows, torch.promote_types(args.x.dtype, torch.float32))


TOKENS: Any = _Tokens()
GRADIENT: Any = _Gradient()
SAMPLE: Any = _Sample()


def compute(args: Any, options: tuple[Any, ...], grad_inplace: bool = False) -> tuple[Tensor, ...]:
    """Computes (log-probabilities, logsumexp if requested, entropies if requested); see token_log_probs."""
    if not args.scale is args.temperature is None:
        args = checks.normalized(TOKENS.name, args)
    (picked, statistics), (*_, entropy, lse, _) = TOKENS.call(args, options, grad_inplace), options
    requested = [at for at, is_requested in ((0, lse), (2, entropy)) if is_requested]
    return picked, *(statistics[at].clone() for at in requested)  # they are saved: a caller may modify copies


def mask_of(name: str, x: Tensor, kept: Tensor, mask: Any, dim: Any) -> Tensor:
    """Returns the mask of kept ids, after checks: in bits if a launch makes it, else boolean."""
    checks.check_tensor(name, "logits", x)
    checks.check_tensor(name, "kept", kept, x)
    dim = checks.wrap_dim(name, dim, x.dim())
    rows, is_integer = checks.with_size(x, dim), kept.dtype in (torch.int64, torch.int32)
    if mask is not None:
        raise ValueError(f"{name}(): arguments 'mask' and 'kept' exclude each other")
    checks.require(is_integer, DtypeError, name, "kept", "hold ids as int64 or int32, not {}", kept.dtype)
    is_of_rows = x.dim() and kept.dim() and not checks.differ(kept.shape[:-1], rows)
    checks.require(is_of_rows, ValueError, name, "kept", "have the shape {}, not {}", (*rows, "K"), tuple(kept.shape))
    size, is_plain = x.shape[dim], not is_compiling() and launch.key_of((kept,)) is not None
    if is_plain and kept.is_cpu and kept.numel():
        least, most = (int(t) for t in kept.aminmax())
        is_valid, required = least >= -1 and most < size, "hold ids below {}, or -1, not {} to {}"
        checks.require(is_valid, IndexError, name, "kept", required, size, least, most)
    if is_plain and (device := launch.device_of(kept)):
        return on_device(pack, device)(kept.to(torch.int64).contiguous(), size).movedim(-1, dim)
    ids = torch.where((kept >= 0) & (kept < size), kept, size).to(torch.int64)  # another than a token's is behind them
    keeps = torch.zeros((*rows, size + 1), dtype=torch.bool, device=ids.device).scatter(-1, ids, value=True)
    return keeps[..., :-1].movedim(-1, dim)


def _check_inplace(name: str, x: Any) -> None:
    """Raises RuntimeError unless the gradient of logits that autograd records may be written over them."""
    if is_compiling() or launch.transforms_are_active() or not launch.is_recorded((x,)) or launch.key_of((x,)) is None:
        return
    # No public name says why a view may not be written; torch's own compilers use this one (2.6 to 2.13).
    views, base = torch._C._autograd, x._base
    if x.is_leaf or (base is not None and base.is_leaf and base.requires_grad):
        reason = "are a leaf or a view of one, and its elements would be lost"
    elif x._is_view() and views._get_creation_meta(x) != views.CreationMeta.DEFAULT:
        reason = "are a view that autograd forbids to write to, such as a part of split() or unbind(); pass the whole tensor"
    elif launch.overlaps(x):
        reason = f"share memory among themselves, by strides of {x.stride()}; use contiguous()"
    else:
        return
    raise RuntimeError(f"{name}(): grad_inplace=True would write over logits that {reason}")


def token_log_probs(
    logits: Tensor, ids: Tensor, *, dim: int = -1, scale: Factor = None, temperature: Factor = None,
    softcap: float | None = None, mask: Tensor | None = None, kept: Tensor | None = None, masked_rows: str = "nan",
    ignore_index: int = -100, entropy: bool = False, return_lse: bool = False, grad_inplace: bool = False,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    """Computes log_softmax(scores, dim, dtype=float32).gather(dim, ids) in one read of the logits, without the log_softmax.

    Scores, gradients and errors are those of `softmax`; the logits, the mask and two numbers per row are saved. A row with only
    ignored ids has a gradient of 0, even if its logits are nan, unless entropies or the logsumexp are requested; such rows are
    not read by the gradient, nor by a call of many rows.

    Args:
        logits: a tensor of at least one dimension, with any strides; a slice such as `logits[:, :-1]` is not copied.
        ids: integers, of the shape of logits without `dim`, or with one more dimension, for K tokens per row.
        dim, scale, temperature, softcap: see `softmax`.
        mask: as in `softmax`. Results are those of the kept tokens. Others have log-probability -inf and, unless the mask is
            added, gradient 0, also where they are in `ids`.
        kept: ids of the kept tokens in place of a mask: int64 or int32 of the shape of logits without `dim`, and K per row,
            -1 where a row keeps fewer; an id may occur twice. Other ids out of range keep no token; eager calls on a CPU, where
            the host reads them, raise an IndexError.
        masked_rows: "nan" for rows without a kept token; "zero" for a log-probability of -inf, entropy and gradient of 0.
        ignore_index: the id of ignored positions, which have a log-probability and gradient of 0.
        entropy: True to also return the entropy of each row, including ignored ones. Masked logits (-inf) add 0 to it.
        return_lse: True to also return the logsumexp of each row's scores, inf if one of them is. In greedy rows it has no
            gradient.
        grad_inplace: True to write the gradient over the logits, which are lost, if a kernel computes it: not on the CPU, nor
            under torch.compile or torch.func, nor for a batch of gradients, nor with those of mask, scale or temperature.

    Returns:
        Log-probabilities of the shape of ids, in float32 (float64 for float64 logits), nan for ids out of range. With
        `return_lse` or `entropy`, (log-probabilities, logsumexp, entropies); these have the shape of logits without `dim`.

    Raises:
        ValueError: there is no token, ids or `kept` have another shape, or there are `mask` and `kept`.
        RuntimeError: with `grad_inplace`, logits are a leaf, a part of split() or unbind(), or share memory with each other.
        DtypeError: logits are not floating-point numbers of 16 bits or more, ids are not integers, or a mask has another dtype.
        others: see `softmax`.
    """
    name, kind = TOKENS.name, type(grad_inplace).__name__
    checks.require(kind == "bool", TypeError, name, "grad_inplace", "be bool, not {}", kind)
    options = softcap, dim, ignore_index, entropy, return_lse, checks.zero_rows_of(name, masked_rows)
    if kept is not None:
        mask = mask_of(name, logits, kept, mask, dim)
    if grad_inplace:
        _check_inplace(name, logits)
    return launch.returned(compute(TOKENS.Args(logits, ids, mask, scale, temperature), options, grad_inplace))


def sample_token(
    logits: Tensor, *, temperature: Factor = None, min_p: Factor = None, softcap: float | None = None,
    mask: Tensor | None = None, seed: int | Tensor, position: int | Tensor = 0, generator: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Draws a token per row from softmax(scores, dim=-1), in one read of the logits, and returns its log-probability.

    A token depends on the scores of its row, which are those of `softmax`, the seed and the position alone: not on other rows,
    the layout or dtype of the logits, the launch or, for all but one row in a million, the device. It is the maximum of scores
    with Gumbel noise from Philox4x32-7: noise for the logsumexp of 8 adjacent tokens, then for each of these. A mask of other
    tokens than the one drawn may change it.

    Args:
        logits: a tensor of at least one dimension, the last of which is the vocabulary, with any strides.
        temperature, softcap, mask: see `softmax`. Temperature 0 draws the lowest id of the largest scores.
        min_p: tokens with a probability below min_p times the largest are not drawn: a number of at least 0 and below 1, or a
            tensor as `temperature`. A row is read once more if such a token is drawn first.
        seed: an integer of 64 bits, also negative, or a tensor of int64 or int32 that broadcasts against ids. Rows of the same
            seed and position have the same noise.
        position: likewise: the number of the token in its sequence, or anything else that differs between draws of a seed. In
            a CUDA graph, a tensor, as a number is that of the capture.
        generator: not supported, as its state would depend on other calls.

    Returns:
        (ids, log_probs) of the shape of logits without the last dimension: int64, and float32 (float64 for float64 logits).
        Log-probabilities are those of the masked, tempered scores before `min_p`, and under `batch_invariant` equal in bits to
        `token_log_probs` of the same scores. A row with nan, +inf or no kept token has id -1 and log-probability nan. Neither
        has a gradient: compute that of a log-probability with `token_log_probs`.

    Raises:
        TypeError, ValueError: `generator` is not None; `min_p`, an integer or the vocabulary is out of range.
        others: see `token_log_probs`.
    """
    kind = type(generator).__name__
    checks.require(generator is None, TypeError, SAMPLE.name, "generator", "be None, not {}; pass seed= and position=", kind)
    args = checks.normalized(SAMPLE.name, SAMPLE.Args(logits, mask, temperature, min_p, seed, position))
    results: tuple[Tensor, Tensor] = SAMPLE.call(args, (softcap,))
    return results
