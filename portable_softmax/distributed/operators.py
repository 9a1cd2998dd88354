"""Operators portable_softmax::reduce_shard and ::map_shard, so that torch.compile sees the collectives between them alone."""

import torch

from portable_softmax.distributed import steps

_library = torch.library.Library("portable_softmax", "FRAGMENT")
_tag = torch.Tag.pt2_compliant_tag
_library.define("reduce_shard(Tensor a, Tensor b, int dim, ScalarType dtype, str form, bool backward) -> Tensor", tags=_tag)
_library.define(
    "map_shard(Tensor a, Tensor b, Tensor numbers, Tensor(o!) out, int dim, str form, bool backward) -> ()", tags=_tag
)


def _reduce_fake(a: torch.Tensor, b: torch.Tensor, dim: int, dtype: torch.dtype, form: str, backward: bool) -> torch.Tensor:
    steps.check(form, a, b)
    return steps.statistics_like(a, dim, dtype, backward)


def _map_fake(
    a: torch.Tensor, b: torch.Tensor, numbers: torch.Tensor, out: torch.Tensor, dim: int, form: str, backward: bool
) -> None:
    steps.check(form, a, b, numbers, out)  # and allocates nothing


for _function, _fake in ((steps.reduce_shard, _reduce_fake), (steps.map_shard, _map_fake)):
    _library.impl(_function.__name__, _function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"portable_softmax::{_function.__name__}", _fake, lib=_library)

reduce_shard = torch.ops.portable_softmax.reduce_shard.default
map_shard = torch.ops.portable_softmax.map_shard.default
