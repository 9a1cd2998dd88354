"""linear_token_log_probs: log-probabilities of tokens from hidden states, with the logits of one chunk of rows at a time."""

from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo  # torch.compiler.disable imports dynamo at once, which takes seconds

from portable_softmax.api.tokens import TOKENS, compute, mask_of
from portable_softmax.operators.checks import Factor, check_tensor, normalized, require, zero_rows_of
from portable_softmax.operators.launch import returned
from portable_softmax.operators.operator import save, saved

NAME = "linear_token_log_probs"
CHUNK_BYTES = 3 << 27  # of logits; with smaller chunks the gradient of the weight is read and written more often


@_disable_dynamo
def linear_token_log_probs(
    hidden: Tensor, weight: Tensor, ids: Tensor, *, bias: Tensor | None = None, chunk_rows: int | None = None,
    accumulate: torch.dtype | None = None, scale: Factor = None, temperature: Factor = None, softcap: float | None = None,
    mask: Tensor | None = None, kept: Tensor | None = None, masked_rows: str = "nan", ignore_index: int = -100,
    entropy: bool = False, return_lse: bool = False,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    """Computes token_log_probs(hidden @ weight.T + bias, ids), and its gradients, without the logits of all rows at once.

    torch.mm computes the logits of `chunk_rows` rows at a time, and once more in the backward, which writes their gradient over
    them. Chunks of ignored ids alone are skipped, unless `entropy` or `return_lse` is requested: for that the host waits for
    the ids, except while a CUDA graph is captured. Works under torch.autocast and checkpoints; torch.compile breaks its graph.

    Args:
        hidden, weight, bias: floating-point numbers of shape (..., H), (V, H) and (V,); `bias` may be None.
        chunk_rows: rows of a chunk. None: as many multiples of 128 as have at most 400 MB of logits.
        accumulate: torch.float32 to sum the gradient of the weight over chunks in float32, which takes 4 bytes per element and
            a summand as large as the weight. None: in the dtype of the weight, rounded once per chunk.
        others, results: see `token_log_probs` of logits of shape (..., V); mask, scale and temperature have no gradient.

    Raises:
        ValueError: shapes do not match, `chunk_rows` is not a positive integer, or `accumulate` is another dtype.
        NotImplementedError: a factor requires a gradient, or a second derivative is; the weight has no storage, as after FSDP.
        others: see `token_log_probs` and torch.mm.
    """
    for argument, t in (("hidden", hidden), ("weight", weight), ("bias", weight if bias is None else bias)):
        check_tensor(NAME, argument, t)
    if weight.dim() != 2 or hidden.shape[-1:] != weight.shape[1:] or (bias is not None and bias.shape != weight.shape[:1]):
        shapes = ", ".join(f"{tuple(t.shape)}" for t in (hidden, weight, bias) if t is not None)
        raise ValueError(f"{NAME}(): requires hidden of shape (..., H), weight (V, H) and bias (V,), not {shapes}")
    is_size, kinds = chunk_rows is None or (type(chunk_rows) is int and chunk_rows > 0), (None, torch.float32)
    require(is_size, ValueError, NAME, "chunk_rows", "be a positive integer or None, not {!r}", chunk_rows)
    require(accumulate in kinds, ValueError, NAME, "accumulate", "be torch.float32 or None, not {!r}", accumulate)
    lead, n_rows = hidden.shape[:-1], hidden.shape[:-1].numel()
    logits = hidden.new_empty(()).expand(*lead, len(weight))  # for checks, which read no elements
    mask = mask if kept is None else mask_of(NAME, logits, kept, mask, -1)
    args = normalized(NAME, TOKENS.Args(logits, ids, mask, scale, temperature))
    options = TOKENS.check(args, softcap, -1, ignore_index, entropy, return_lse, zero_rows_of(NAME, masked_rows), name=NAME)
    if any(isinstance(t, Tensor) and t.requires_grad for t in args[2:]):
        raise NotImplementedError(f"{NAME}(): mask, scale and temperature have no gradient; pass .detach() of them")
    rows = list(args[2:])
    for at, t in enumerate(rows):  # of one row if all have the same
        if isinstance(t, Tensor) and t.dim():
            is_shared = t.shape[:-1].numel() == 1
            rows[at] = t.reshape(1, -1) if is_shared else t.expand(*lead, t.shape[-1]).reshape(n_rows, t.shape[-1])
    if torch.is_autocast_enabled(hidden.device.type):  # here, so that autograd casts the gradients back
        dtype = torch.get_autocast_dtype(hidden.device.type)
        hidden, weight, bias = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    chunk_rows = chunk_rows or max(1, CHUNK_BYTES // max(1, len(weight) * hidden.element_size()) // 128) * 128
    inputs = hidden.reshape(n_rows, weight.shape[1]), weight, bias, ids.reshape(n_rows, *ids.shape[len(lead) :]), *rows
    results = _Chunks.apply(chunk_rows, accumulate, options._replace(dim=-1), *inputs)  # type: ignore[no-untyped-call]
    return returned([y.reshape(lead + y.shape[1:]) for y in results])


class _Chunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, chunk_rows: int, accumulate: Any, options: Any, *inputs: Any) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        save(ctx, inputs)
        hidden, _, _, ids, *_ = inputs
        chunks = [slice(at, at + chunk_rows) for at in range(0, len(ids), chunk_rows)]
        is_capturing = getattr(torch.get_device_module(ids.device), "is_current_stream_capturing", bool)
        if chunks and not (options.entropy or options.lse or is_capturing()):
            have_tokens = torch.stack([(ids[chunk] != options.ignore_index).any() for chunk in chunks]).tolist()
            chunks = [chunk for chunk, has_tokens in zip(chunks, have_tokens, strict=True) if has_tokens]
        ctx.rest = chunks, accumulate, options
        picked = hidden.new_zeros(ids.shape, dtype=torch.promote_types(hidden.dtype, torch.float32))
        results = picked, *(picked.new_zeros(len(ids)) for is_requested in (options.lse, options.entropy) if is_requested)
        for chunk in chunks:
            for result, part in zip(results, compute(_args_of(chunk, *inputs), options), strict=True):
                result[chunk] = part
        return results

    @staticmethod
    def backward(ctx: Any, *dresults: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise NotImplementedError(f"{NAME}() has no second derivatives; use token_log_probs of all logits")
        inputs, (chunks, accumulate, options) = saved(ctx), ctx.rest
        dtypes = None, accumulate, torch.promote_types(inputs[0].dtype, torch.float32)
        of_inputs = zip(inputs, dtypes, ctx.needs_input_grad[3:6], strict=False)
        sums = [torch.zeros_like(t, dtype=dtype) if needed else None for t, dtype, needed in of_inputs]
        for chunk in chunks if any(dy is not None for dy in dresults) else ():
            _add_gradients(sums, chunk, inputs, options, dresults)  # nothing of a chunk outlives it
        return None, None, None, *sums, None, None, None, None  # autograd rounds them to the types of inputs


def _add_gradients(sums: list[Tensor | None], chunk: slice, inputs: Any, options: Any, dresults: Any) -> None:
    """Adds the gradients of a chunk to those of (hidden, weight, bias)."""
    (hidden, weight, *_), (dhidden, dweight, dbias), args = inputs, sums, _args_of(chunk, *inputs)
    with torch.enable_grad():  # of a view: a gradient in place is not written over a leaf
        parts = compute(args._replace(x=args.x.requires_grad_().view_as(args.x)), options, True)
    used, dused = zip(*((y, dy[chunk]) for y, dy in zip(parts, dresults, strict=True) if dy is not None), strict=True)
    (dlogits,) = torch.autograd.grad(used, args.x, dused)
    if dhidden is not None:
        torch.mm(dlogits, weight, out=dhidden[chunk])
    if dweight is not None and dweight.dtype == hidden.dtype:
        dweight.addmm_(dlogits.t(), hidden[chunk])
    elif dweight is not None:
        dweight += torch.mm(dlogits.t(), hidden[chunk])
    if dbias is not None:
        dbias += dlogits.sum(0, dtype=dbias.dtype)


def _args_of(chunk: slice, hidden: Tensor, weight: Tensor, bias: Tensor | None, *rows: Any) -> Any:
    if weight.numel() and not weight.untyped_storage().size():
        raise NotImplementedError(f"{NAME}(): 'weight' has no storage, as after resharding; call this in its module's forward")
    logits = torch.mm(hidden[chunk], weight.t()) if bias is None else torch.addmm(bias, hidden[chunk], weight.t())
    return TOKENS.Args(logits, *(t[chunk] if isinstance(t, Tensor) and t.dim() and len(t) > 1 else t for t in rows))
