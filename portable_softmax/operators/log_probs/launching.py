"""Log-probabilities and their gradient by one launch each; or by torch, for tensors on the CPU."""

from collections.abc import Callable

import torch
from torch.autograd.graph import increment_version

from portable_softmax.operators.arguments import device_of
from portable_softmax.operators.call import Operands
from portable_softmax.operators.launching import bound, by_torch
from portable_softmax.operators.log_probs import by_torch as torchs
from portable_softmax.operators.log_probs.asked import Asked, AskedGradient, call_of, call_of_gradient
from portable_softmax.operators.overlap import overlap_of
from portable_softmax.runtime.allocation import allocator
from portable_softmax.runtime.guard import guard_of

Results = tuple[torch.Tensor, torch.Tensor]
Run = Callable[..., Results]
Gradient = Callable[..., torch.Tensor]  # of x, factors in a tuple, and the numbers of rows, AskedGradient.of_rows


def forward(asked: Asked, batch_invariant: bool) -> Results:
    """Computes log-probabilities of chosen elements.

    Args:
        asked: what of; x is copied only if its strides or `batch_invariant` need it.
        batch_invariant: True if a row's bits may not depend on the other rows.

    Returns:
        (log-probabilities, of the shape of ids; numbers of rows, of `asked.statistics_shape`).

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
        self.factors, self.dtype, self.empty = tuple(factors), asked.compute, allocator(x.device)
        self.ids_shape, self.ids_strides = tuple(asked.ids.shape), asked.ids.stride()
        self.shape = tuple(asked.statistics_shape)
        self.strides = torch.empty(self.shape, device="meta").stride()
        self.of_nothing = None if x.numel() else asked._replace(x=None, ids=None)  # type: ignore[arg-type]
        if self.of_nothing is None:
            self.current, self.number, self.made_current = guard_of(device_of(x))
            some = x.new_empty(0, dtype=self.dtype)
            self.launch = bound(call, (x, *factors, some, asked.ids, some))

    def __call__(self, x: torch.Tensor, ids: torch.Tensor, *factors: torch.Tensor) -> Results:
        """Returns what `forward` does, of tensors like those of the call."""
        if self.of_nothing is not None:
            return _of_nothing(self.of_nothing._replace(x=x, ids=ids))
        if self.current() != self.number:
            with self.made_current():
                return self(x, ids, *factors)
        return self.into(self.empty(self.ids_shape, self.ids_strides, self.dtype), x, ids, *factors)

    @property
    def quickly(self) -> Run:
        """Returns a function that does the same, in fewer steps where there are no factors."""
        if self.of_nothing is not None or self.factors:
            return self
        current, number, launch, empty = self.current, self.number, self.launch, self.empty
        ids_shape, ids_strides, shape, strides, dtype = self.ids_shape, self.ids_strides, self.shape, self.strides, self.dtype

        def run(x: torch.Tensor, ids: torch.Tensor) -> Results:
            if current() != number:
                return self(x, ids)
            picked, statistics = empty(ids_shape, ids_strides, dtype), empty(shape, strides, dtype)
            launch(x, statistics, ids, picked)
            return picked, statistics

        return run

    def into(self, picked: torch.Tensor, x: torch.Tensor, ids: torch.Tensor, *factors: torch.Tensor) -> Results:
        """Does the same, and writes log-probabilities to `picked`: contiguous, of the shape of ids."""
        statistics = self.empty(self.shape, self.strides, self.dtype)
        self.launch(x, *factors, statistics, ids, picked)
        return picked, statistics


def backward(given: AskedGradient, in_place: bool = False, gradients: dict[bool, Gradient] | None = None) -> torch.Tensor:
    """Computes the gradient of x: a new contiguous tensor, or x itself, which it is written over.

    Args:
        given: the gradient that is asked for.
        in_place: True to write it over x.
        gradients: those like it, without an entropy's and with one, which are kept for more calls.

    Raises:
        RuntimeError: elements of x share memory, and it is to be written over.
        DtypeError, DeviceError, PlanError, CompileError: no kernel computes it.
    """
    x, is_given = given.x, given.dentropy is not None
    if not x.numel():
        return x.detach() if in_place else torch.empty_like(x, memory_format=torch.contiguous_format)
    if by_torch(x):
        dx = torchs.backward(given)
        return x.detach().copy_(dx) if in_place else dx
    gradients = {} if gradients is None else gradients
    if is_given not in gradients:
        if in_place:
            overlap_of(x, x)
        gradients[is_given] = _gradient_like(given, in_place)
    return gradients[is_given](x, given.numbers, *given.of_rows)


def _gradient_like(given: AskedGradient, in_place: bool) -> Gradient:
    """Returns gradient(x, factors, *numbers), a launch of gradients like one of a tensor on an accelerator."""
    call, (x, *factors) = call_of_gradient(given)
    own = () if given.numbers else tuple(factors)  # made of a number
    shape, strides, dtype, empty = tuple(x.shape), torch.empty(x.shape, device="meta").stride(), x.dtype, allocator(x.device)
    current, number, made_current = guard_of(device_of(x))
    with made_current():
        out = x if in_place else empty(shape, strides, dtype)
        launch = bound(call, (x, *factors, *given.of_rows), out)

    def gradient(x: torch.Tensor, factors: Operands, *numbers: torch.Tensor) -> torch.Tensor:
        if current() != number:
            with made_current():
                return gradient(x, factors, *numbers)
        out = x if in_place else empty(shape, strides, dtype)
        launch(out, x, *(factors or own), *numbers)
        if in_place:
            increment_version(x)
        return out

    return gradient


def _of_nothing(asked: Asked) -> Results:
    """Returns results of rows without elements: nan, but 0 for ids that are ignored."""
    ids = asked.ids
    found = torch.where(ids == asked.ignore_index, 0.0, float("nan")).to(asked.compute)
    statistics = asked.x.new_zeros(asked.statistics_shape, dtype=asked.compute)
    return found, statistics
