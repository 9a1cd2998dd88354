"""Ways to compute a log_softmax of a matrix whose columns are sharded, and the timed call of each."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import loss_parallel

from portable_softmax import log_softmax

DIRECTIONS = "forward", "both", "loss"
Call = Callable[[], torch.Tensor]


class Given(NamedTuple):
    """Operands of a shape: all columns, the same on every rank, and the range of this rank's columns."""

    x: torch.Tensor
    dy: torch.Tensor
    target: torch.Tensor  # a column for each row
    part: slice

    @classmethod
    def random(cls, n_rows: int, n_cols: int, where: torch.device) -> "Given":
        """Makes bfloat16 operands, and cuts columns like DTensor."""
        generator = torch.Generator(where).manual_seed(n_cols)
        x, dy = (torch.randn(n_rows, n_cols, generator=generator, device=where, dtype=torch.bfloat16) for _ in range(2))
        target = torch.randint(n_cols, (n_rows,), generator=generator, device=where)
        each = -(-n_cols // dist.get_world_size())
        first = min(dist.get_rank() * each, n_cols)
        return cls(4 * x, dy, target, slice(first, min(first + each, n_cols)))

    def own_x(self) -> torch.Tensor:
        """Returns this rank's columns of x, as a leaf."""
        return self.x[:, self.part].contiguous().requires_grad_()

    def sharded(self, part: torch.Tensor, placement: Any) -> Any:
        """Makes a DTensor with the whole matrix's shape from this rank's part."""
        mesh = init_device_mesh(part.device.type, (dist.get_world_size(),))
        return DTensor.from_local(part, mesh, [placement], run_check=False, shape=self.x.shape, stride=self.x.stride())


@dataclass(frozen=True)
class Provider:
    """Implementation of a log_softmax.

    Args:
        x: its leaf: a tensor of all columns or of this rank's, or a DTensor.
        log_softmax: the function of x.
        whole: True if each rank gets all columns.
        context: the context of each call.
        directions: the directions that it has.
    """

    x: Any
    log_softmax: Callable[[Any], Any]
    whole: bool = False
    context: Callable[[], Any] = contextlib.nullcontext
    directions: tuple[str, ...] = DIRECTIONS


def providers(given: Given) -> dict[str, Callable[[], Provider]]:
    """Returns a function for each name that makes the provider. Its memory is freed with the provider."""

    def ours() -> Provider:
        return Provider(given.own_x(), lambda x: log_softmax(x, group=dist.group.WORLD))

    def dtensor(function: Callable[[Any], Any], **options: Any) -> Callable[[], Provider]:
        return lambda: Provider(given.sharded(given.own_x().detach(), Shard(1)).requires_grad_(), function, **options)

    def alone(function: Callable[[Any], Any]) -> Callable[[], Provider]:
        return lambda: Provider(given.x.detach().requires_grad_(), function, whole=True)

    def by_torch(x: Any) -> Any:
        return torch.log_softmax(x, -1)

    def gathered(x: torch.Tensor) -> torch.Tensor:
        parts = x.new_empty(dist.get_world_size() * x.shape[0], x.shape[1])
        dist.all_gather_into_tensor(parts, x)
        return torch.log_softmax(parts.view(-1, *x.shape).movedim(0, 1).reshape(given.x.shape), -1)

    found = {"ours x1": alone(log_softmax), "torch x1": alone(by_torch), "ours": ours}
    found["ours DTensor"] = dtensor(log_softmax, directions=("forward", "both"))
    found["loss_parallel"] = dtensor(by_torch, context=loss_parallel, directions=("forward", "loss"))
    found["DTensor"] = dtensor(by_torch, whole=True)
    if given.x.shape[1] % dist.get_world_size() == 0:
        found["gather"] = lambda: Provider(given.own_x(), gathered, whole=True, directions=("forward",))
    return found


def call_of(provider: Provider, given: Given, direction: str) -> Call:
    """Returns the timed call of a provider. It gives y, or dx in the other directions, for the columns that the rank has."""
    if direction == "both":
        return _both(provider, given)
    if direction == "loss":
        return _loss_of_dtensor(provider, given) if isinstance(provider.x, DTensor) else _loss(provider, given)

    def forward() -> torch.Tensor:
        with torch.no_grad(), provider.context():
            return _local(provider.log_softmax(provider.x))

    return forward


def _both(provider: Provider, given: Given) -> Call:
    dy: Any = given.dy if provider.whole else given.dy[:, given.part].contiguous()
    if isinstance(provider.x, DTensor):
        dy = given.sharded(dy, Replicate() if provider.whole else Shard(1))

    def both() -> torch.Tensor:
        return _local(torch.autograd.grad(provider.log_softmax(provider.x), provider.x, dy)[0])

    return both


def _loss_of_dtensor(provider: Provider, given: Given) -> Call:
    mesh = provider.x.device_mesh
    target = DTensor.from_local(given.target, mesh, [Replicate()], run_check=False)

    def loss() -> torch.Tensor:
        with provider.context():
            return _local(torch.autograd.grad(functional.cross_entropy(provider.x, target), provider.x)[0])

    return loss


def _loss(provider: Provider, given: Given) -> Call:
    start = 0 if provider.whole else given.part.start
    width = provider.x.shape[1]
    mine = (given.target >= start) & (given.target < start + width)
    columns = (given.target - start).clamp(0, width - 1).unsqueeze(1)

    def loss() -> torch.Tensor:
        picked = provider.log_softmax(provider.x).gather(1, columns).squeeze(1).float().masked_fill(~mine, 0)
        if not provider.whole:
            dist.all_reduce(picked.detach().clone())  # as a training step reports the loss
        return _local(torch.autograd.grad(-picked.mean(), provider.x)[0])

    return loss


def _local(result: Any) -> torch.Tensor:
    local: torch.Tensor = result.to_local() if isinstance(result, DTensor) else result
    return local
