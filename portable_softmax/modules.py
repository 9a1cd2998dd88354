"""Modules like torch's, and a way to route torch's own functions here."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from portable_softmax.device import interpreting
from portable_softmax.ops import log_softmax, softmax, softmin


class Softmax(torch.nn.Module):
    """softmax along `dim` as a module, as torch.nn.Softmax; dim -1 where torch would guess and warn."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """log_softmax along `dim` as a module, as torch.nn.LogSoftmax; dim -1 where torch would guess and warn."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return log_softmax(input, self.dim)


@contextlib.contextmanager
def patch_torch() -> Iterator[None]:
    """Routes torch.softmax, Tensor.softmax, torch.nn.functional.softmax, and log_softmax and softmin alike, to this package.

    In the whole process, until the context ends, for calls with arguments that this package has: calls with `out`, with
    names of dimensions, or of tensors that are not on an accelerator, go to torch. What torch computes inside of other
    functions (scaled_dot_product_attention, cross_entropy) stays its own.
    """
    functional = torch.nn.functional
    places: list[tuple[Any, str, Callable[..., torch.Tensor]]] = [
        *((place, "softmax", softmax) for place in (torch, torch.Tensor, functional)),
        *((place, "log_softmax", log_softmax) for place in (torch, torch.Tensor, functional)),
        (functional, "softmin", softmin),
    ]
    before = [getattr(place, name) for place, name, _ in places]
    try:
        for (place, name, ours), theirs in zip(places, before, strict=True):
            setattr(place, name, _routed(ours, theirs, place is functional))
        yield
    finally:
        for (place, name, _), theirs in zip(places, before, strict=True):
            setattr(place, name, theirs)


def _routed(ours: Callable[..., torch.Tensor], theirs: Callable[..., Any], functional: bool) -> Callable[..., Any]:
    """`theirs`, but `ours` for what it computes; the third positional argument of functional forms is a stack level."""

    def call(*arguments: Any, **named: Any) -> Any:
        given = dict(zip(("input", "dim", "_stacklevel" if functional else "dtype", "dtype"), arguments, strict=False)) | named
        x, dim = given.get("input", given.get("self")), given.get("dim")
        known = given.keys() <= {"input", "dim", "dtype", "_stacklevel"}
        if known and isinstance(x, torch.Tensor) and isinstance(dim, int) and _on_accelerator(x):
            return ours(x, dim, given.get("dtype"))
        return theirs(*arguments, **named)

    return call


def _on_accelerator(x: torch.Tensor) -> bool:
    return x.device.type not in ("cpu", "meta") or (x.device.type == "cpu" and interpreting())
