"""Log-probabilities and their gradient by one launch each; or by torch, for tensors on the CPU."""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import increment_version

from portable_softmax.operators.arguments import device_of
from portable_softmax.operators.launching import bound, by_torch
from portable_softmax.operators.log_probs import by_torch as torchs
from portable_softmax.operators.log_probs.asked import Asked, AskedGradient, call_of, call_of_gradient
from portable_softmax.operators.overlap import overlap_of
from portable_softmax.runtime.allocation import allocator
from portable_softmax.runtime.guard import guard_of

Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
Run = Callable[..., Results]


def forward(asked: Asked, batch_invariant: bool) -> Results:
    """Computes log-probabilities of chosen elements.

    Args:
        asked: what of; x is copied only if its strides or `batch_invariant` need it.
        batch_invariant: True if a row's bits may not depend on the other rows.

    Returns:
        (log-probabilities, of the shape of ids; numbers of rows, of `asked.statistics_shape`; ranks, int64, of the shape of
        ids, or None where none are asked for).

    Raises:
        IndexError, DtypeError, DeviceError, PlanError, CompileError: the cases of api.log_probs.token_log_probs.
    """
    if by_torch(asked.x):
        return torchs.forward(asked)
    run = Forward(asked, batch_invariant)
    return run(asked.x, asked.ids, *run.factors)


class Forward:
    """A launch of calls like one, and what it allocates.

    Args:
        asked: the call, of a tensor on an accelerator.
        batch_invariant: True if a row's bits may not depend on the other rows.
    """

    def __init__(self, asked: Asked, batch_invariant: bool) -> None:
        call, (x, *factors) = call_of(asked, batch_invariant)
        self.factors, self.ranked, self.dtype, self.empty = tuple(factors), asked.rank, asked.compute, allocator(x.device)
        self.ids_shape, self.ids_strides = tuple(asked.ids.shape), asked.ids.stride()
        self.shape = tuple(asked.statistics_shape)
        self.strides = torch.empty(self.shape, device="meta").stride()
        self.of_nothing = None if x.numel() else asked._replace(x=None, ids=None)  # type: ignore[arg-type]
        if self.of_nothing is None:
            self.current, self.number, self.made_current = guard_of(device_of(x))
            some = x.new_empty(0, dtype=self.dtype)
            self.launch = bound(call, (x, *factors, some, asked.ids, some, *((asked.ids,) if asked.rank else ())))

    def __call__(self, x: torch.Tensor, ids: torch.Tensor, *factors: torch.Tensor) -> Results:
        """Returns what `forward` does, of tensors like those of the call."""
        if self.of_nothing is not None:
            return _of_nothing(self.of_nothing._replace(x=x, ids=ids))
        if self.current() != self.number:
            with self.made_current():
                return self(x, ids, *factors)
        return self.into(self.empty(self.ids_shape, self.ids_strides, self.dtype), x, ids, *factors)

    def plainly(self, entropy: bool) -> Callable[..., Any]:
        """Returns the same without factors and ranks, in fewer steps: log-probabilities, or (log-probabilities, entropies)."""
        current, number, made_current, launch, empty = self.current, self.number, self.made_current, self.launch, self.empty
        ids_shape, ids_strides, shape, strides, dtype = self.ids_shape, self.ids_strides, self.shape, self.strides, self.dtype

        def run(x: torch.Tensor, ids: torch.Tensor) -> Any:
            if current() != number:
                with made_current():
                    return run(x, ids)
            picked, statistics = empty(ids_shape, ids_strides, dtype), empty(shape, strides, dtype)
            launch(x, statistics, ids, picked)
            return (picked, statistics[2]) if entropy else picked

        return run

    def into(self, picked: torch.Tensor, x: torch.Tensor, ids: torch.Tensor, *factors: torch.Tensor) -> Results:
        """Does the same, and writes log-probabilities to `picked`: contiguous, of the shape of ids."""
        statistics = self.empty(self.shape, self.strides, self.dtype)
        if self.ranked:
            ranks = self.empty(self.ids_shape, self.ids_strides, torch.int64).zero_()
            self.launch(x, *factors, statistics, ids, picked, ranks)
            return picked, statistics, ranks
        self.launch(x, *factors, statistics, ids, picked)
        return picked, statistics, None


def backward(given: AskedGradient, in_place: bool = False, launches: "dict[bool, Backward] | None" = None) -> torch.Tensor:
    """Computes the gradient of x: a new contiguous tensor, or x itself, which it is written over.

    Args:
        given: the gradient that is asked for.
        in_place: True to write it over x.
        launches: those of gradients like it, without an entropy's and with one, which are kept for more calls.

    Raises:
        RuntimeError: elements of x share memory, and it is to be written over.
        DtypeError, DeviceError, PlanError, CompileError: no kernel computes it.
    """
    x, launches, is_given = given.x, {} if launches is None else launches, given.dentropy is not None
    if not x.numel():
        return x.detach() if in_place else torch.empty_like(x, memory_format=torch.contiguous_format)
    if by_torch(x):
        return x.detach().copy_(torchs.backward(given)) if in_place else torchs.backward(given)
    if is_given not in launches:
        if in_place:
            overlap_of(x, x)
        launches[is_given] = Backward(given, in_place)
    dx = launches[is_given](given)
    if in_place:
        increment_version(x)
    return dx


class Backward:
    """A launch of gradients like one, and what it allocates.

    Args:
        given: the gradient that is asked for, of a tensor on an accelerator.
        in_place: True for one that is written over x.
    """

    def __init__(self, given: AskedGradient, in_place: bool) -> None:
        x, numbers = given.x, (given.statistics, given.ids, given.dpicked)
        call, operands = call_of_gradient(given)
        self.factors, self.in_place, self.empty, self.dtype = operands[1:], in_place, allocator(x.device), x.dtype
        self.shape, self.strides = tuple(x.shape), torch.empty(x.shape, device="meta").stride()
        self.current, self.number, self.made_current = guard_of(device_of(x))
        operands = (*operands, *numbers) if given.dentropy is None else (*operands, *numbers, given.dentropy)
        with self.made_current():
            out = x if in_place else self.empty(self.shape, self.strides, self.dtype)
            self.launch = bound(call, operands, out)

    def __call__(self, given: AskedGradient) -> torch.Tensor:
        """Returns the gradient, in the memory of x or in its own."""
        if self.current() != self.number:
            with self.made_current():
                return self(given)
        x, ids, statistics, dpicked, dentropy, *_ = given
        factors = self.factors if given.factors is None else (given.factors,)
        out = x if self.in_place else self.empty(self.shape, self.strides, self.dtype)
        if dentropy is None:
            self.launch(out, x, *factors, statistics, ids, dpicked)
        else:
            self.launch(out, x, *factors, statistics, ids, dpicked, dentropy)
        return out


def _of_nothing(asked: Asked) -> Results:
    """Returns results of rows without elements: nan, but 0 for ids that are ignored."""
    ids = asked.ids
    found = torch.where(ids == asked.ignore_index, 0.0, float("nan")).to(asked.compute)
    statistics = asked.x.new_zeros(asked.statistics_shape, dtype=asked.compute)
    return found, statistics, torch.zeros_like(ids) if asked.rank else None
