"""Allocation on a device by torch's fastest function."""

from collections.abc import Callable, Sequence

import torch

Empty = Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]


def allocator(where: torch.device) -> Empty:
    """Returns empty(shape, strides, dtype), which allocates on a device's current stream.

    The device must be the current one (guard.py). Programs that torch.compile makes allocate so too, past torch's dispatcher.
    """
    quick: Empty | None = getattr(torch._C._dynamo.guards, f"_empty_strided_{where.type}", None)
    if quick and type(torch.empty(0, device=where)) is torch.Tensor:  # and not of a class in place of the device
        return quick
    return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=where)
