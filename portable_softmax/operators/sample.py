"""sample_token: ids and their log-probabilities, which have no gradient."""

from typing import Any

import torch
from torch import Tensor

from portable_softmax.errors import DtypeError
from portable_softmax.operators import launch, reference
from portable_softmax.operators.arguments import SampleArgs, SampleOptions
from portable_softmax.operators.checks import check_broadcast, check_scores, check_tensor, is_real, softcap_of, wrong
from portable_softmax.operators.operator import Operator
from portable_softmax.planning.problem import MAX_COLS, LogProbs

NAME = "sample_token"


def _check(args: SampleArgs, softcap: Any) -> SampleOptions:
    """Returns the options after checks of all arguments; errors are those of api.sample.sample_token."""
    x = args.x
    check_tensor(NAME, "logits", x)
    if not x.dim() or not is_real(x.dtype):
        required = "have a dimension and a floating-point dtype of 16 bits or more"
        raise DtypeError(wrong(NAME, "logits", required, f"{x.dtype} of shape {tuple(x.shape)}"))
    if x.shape[-1] > MAX_COLS:
        raise ValueError(f"{NAME}(): argument 'logits' has {x.shape[-1]} tokens per row; at most {MAX_COLS} are numbered")
    check_scores(NAME, x, args, x.dim() - 1)
    for argument, value in (("seed", args.seed), ("position", args.position)):
        if isinstance(value, Tensor):
            if value.dtype not in (torch.int64, torch.int32):
                raise DtypeError(wrong(NAME, argument, "hold int64 or int32", value.dtype))
            check_broadcast(NAME, argument, x[..., 0], value)
    return SampleOptions(softcap_of(NAME, softcap))


def _problem(args: SampleArgs, options: SampleOptions, invariant: bool) -> tuple[str, dict[str, Any]]:
    kinds = {name: launch.kind_of(getattr(args, name)) for name in ("min_p", "seed", "position")}
    scores = launch.scores_of(args, options.softcap)
    about = {"form": "log_softmax", "batch_invariant": invariant, "scores": scores}
    return launch.reason(args.x, args.x.dim() - 1, scores), about | {"log_probs": LogProbs(sample=True, **kinds)}


def _empty(args: SampleArgs, options: SampleOptions) -> tuple[Tensor, Tensor]:
    rows, dtype = args.x.shape[:-1], torch.promote_types(args.x.dtype, torch.float32)
    return args.x.new_empty(rows, dtype=torch.int64), args.x.new_empty(rows, dtype=dtype)


SAMPLE = Operator(
    NAME,
    SampleArgs,
    SampleOptions,
    check=_check,
    reference=reference.sample,
    problem=_problem,
    bind=lambda args, options, about, out: launch.per_row(args, args.x.dim() - 1, about, _empty(args, options)),
    empty=_empty,
    results="(Tensor, Tensor)",
)
