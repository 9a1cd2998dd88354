"""Log-probabilities and entropies of a vocabulary that is split over ranks, as in tensor parallelism; with gradients.

Every rank has the rows of the weight for its tokens, any number of them. Its logits exist for one chunk of rows at a time, and
are read once; one all-reduce of three numbers per row and rank combines the results.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from portable_softmax import linear_token_log_probs


class Parts(torch.autograd.Function):
    """Stacks the parts of all ranks. All ranks compute the same loss, so a rank's gradient is that of its own part."""

    @staticmethod
    def forward(ctx, part: Tensor) -> Tensor:  # noqa: D102
        parts = part.new_zeros(dist.get_world_size(), *part.shape)
        parts[dist.get_rank()] = part
        dist.all_reduce(parts)
        return parts

    @staticmethod
    def backward(ctx, dparts: Tensor) -> Tensor:  # noqa: D102
        return dparts[dist.get_rank()]


class Copies(torch.autograd.Function):
    """Returns hidden states, which all ranks have copies of: their gradient is the sum of all ranks'."""

    @staticmethod
    def forward(ctx, hidden: Tensor) -> Tensor:  # noqa: D102
        return hidden.view_as(hidden)

    @staticmethod
    def backward(ctx, dhidden: Tensor) -> Tensor:  # noqa: D102
        dist.all_reduce(dhidden := dhidden.contiguous())
        return dhidden


def vocab_parallel_log_probs(hidden: Tensor, weight: Tensor, ids: Tensor, first: int, **scores: float) -> tuple[Tensor, Tensor]:
    """Returns (log-probabilities of ids, entropies) over all tokens; this rank's weight is that of tokens from `first` on."""
    own = (ids >= first) & (ids < first + len(weight))
    local, options = torch.where(own, ids - first, -100), {"entropy": True, "return_lse": True, **scores}
    log_probs, lse, entropies = linear_token_log_probs(Copies.apply(hidden), weight, local, **options)
    chosen, mean = torch.where(own, log_probs + lse, 0.0), lse - entropies  # the chosen score, and the mean of all scores
    lses, chosen, means = Parts.apply(torch.stack([lse, chosen, mean])).unbind(1)
    total = lses.logsumexp(0)
    weights = (lses - total).exp()  # of each rank
    return chosen.sum(0) - total, total - torch.where(weights > 0, weights * means, 0.0).sum(0)


def main(rank: int, store: str) -> None:
    """Compares a rank's results and gradients with those of the whole vocabulary in float64."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    states, whole = (torch.randn(n, 16, dtype=torch.float64).div(2).requires_grad_() for n in (6, 37))
    first, last = ((0, 19), (19, 37))[rank]
    hidden, shard = states.float().detach().requires_grad_(), whole[first:last].float().detach().requires_grad_()
    ids = torch.tensor([0, 17, 18, 19, 35, 36])
    results = vocab_parallel_log_probs(hidden, shard, ids, first, temperature=0.7)
    logs = (states @ whole.t() / 0.7).log_softmax(-1)
    exact = logs[range(6), ids], -(logs.exp() * logs).sum(-1)
    torch.testing.assert_close(results, exact, check_dtype=False)
    losses = [sum(y.sin().sum() for y in ys) for ys in (results, exact)]
    gradients = torch.autograd.grad(losses[0], (hidden, shard))
    dstates, dwhole = torch.autograd.grad(losses[1], (states, whole))
    torch.testing.assert_close(gradients, (dstates, dwhole[first:last]), check_dtype=False, rtol=1e-4, atol=1e-5)
    print(f"rank {rank}: {last - first} columns, as the whole vocabulary\n", end="")  # in one piece
    dist.destroy_process_group()


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(main, (f"{folder}/store",), nprocs=2)
