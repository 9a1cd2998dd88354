"""Log-probabilities and entropies of a vocabulary that is split over ranks, as in tensor parallelism; with gradients.

Every rank reads its columns once, any number of them; one all-reduce of three numbers per row and rank combines the results.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from portable_softmax import token_log_probs


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


def vocab_parallel_log_probs(logits: Tensor, ids: Tensor, first: int, **scores: float) -> tuple[Tensor, Tensor]:
    """Returns (log-probabilities of ids, entropies) of all columns; this rank's logits are those from column `first` on."""
    own = (ids >= first) & (ids < first + logits.shape[-1])
    local = torch.where(own, ids - first, -100)
    log_probs, lse, entropies = token_log_probs(logits, local, entropy=True, return_lse=True, **scores)
    chosen, mean = torch.where(own, log_probs + lse, 0.0), lse - entropies  # the chosen score, and the mean of all scores
    lses, chosen, means = Parts.apply(torch.stack([lse, chosen, mean])).unbind(1)
    total = lses.logsumexp(0)
    weights = (lses - total).exp()  # of each rank
    return chosen.sum(0) - total, total - torch.where(weights > 0, weights * means, 0.0).sum(0)


def main(rank: int, store: str) -> None:
    """Compares a rank's results and gradients with those of the whole vocabulary in float64."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    whole, ids = torch.randn(6, 37, dtype=torch.float64, requires_grad=True), torch.tensor([0, 17, 18, 19, 35, 36])
    first, last = ((0, 19), (19, 37))[rank]
    shard = whole[:, first:last].float().detach().requires_grad_()
    results = vocab_parallel_log_probs(shard, ids, first, temperature=0.7)
    logs = (whole / 0.7).log_softmax(-1)
    exact = logs[range(6), ids], -(logs.exp() * logs).sum(-1)
    torch.testing.assert_close(results, exact, check_dtype=False)
    gradients = [torch.autograd.grad(sum(y.sin().sum() for y in ys), x)[0] for ys, x in ((results, shard), (exact, whole))]
    torch.testing.assert_close(gradients[0], gradients[1][:, first:last].float())
    print(f"rank {rank}: {last - first} columns, as the whole vocabulary")
    dist.destroy_process_group()


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(main, (f"{folder}/store",), nprocs=2)
