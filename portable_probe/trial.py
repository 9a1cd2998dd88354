"""A trial of the softmax or its gradient, of scores too: operands in guarded memory, and what should come out in float64."""

from typing import NamedTuple

import torch

from portable_probe.closeness import Distance, Terms, allowed_of_terms, distance
from portable_probe.report_types import SoftmaxProblem, Verified
from portable_softmax.devices.device import Device
from portable_softmax.planning.lines import lines_of, lines_of_scores
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.scores import NONE, Scores
from portable_softmax.runtime.guard import guard_of, launch_on
from portable_softmax.runtime.launch import bind_problem, problem_from

GUARD = 16  # elements after each row that must stay as they are
PEAK = 200.0  # exp of it is more than float32 holds
GOLDEN = (5**0.5 - 1) / 2  # its multiples, modulo 1, are spread evenly, however many there are
INF = float("inf")
FACTOR = 1.25  # of 1 over it, and of scores: what is far apart stays so
SOME = 0.7  # of a mask's elements


def guarded(values: torch.Tensor) -> torch.Tensor:
    """Copies a matrix into memory of its own, with GUARD elements of nan behind each row."""
    n_rows, n_cols = values.shape
    memory = torch.full((n_rows * (n_cols + GUARD) + GUARD,), torch.nan, dtype=values.dtype, device=values.device)
    return memory.as_strided((n_rows, n_cols), (n_cols + GUARD, 1)).copy_(values)


def compared(result: torch.Tensor, exact: torch.Tensor, terms: Terms = 0.0) -> Verified:
    """Compares what a kernel wrote into memory of `guarded` with float64; see `allowed_of_terms`."""
    found = distance(result, exact, allowed_of_terms(exact, result.dtype, terms))
    whole = result.as_strided((result.untyped_storage().nbytes() // result.element_size(),), (1,), 0)
    around = torch.ones_like(whole, dtype=torch.bool)
    around.as_strided(result.shape, result.stride()).fill_(False)
    return outcome(found, int((~whole[around].isnan()).sum()))


def outcome(found: Distance, overwritten: int) -> Verified:
    """Returns what a report says: every element should be within the allowed error, and nothing else written."""
    right = found.worst <= 1 and not overwritten
    return Verified(max_error=found.error, worst=found.worst, overwritten=overwritten, right=right)


def wide_rows(n_rows: int, n_cols: int, dtype: torch.dtype, where: "torch.device | str") -> torch.Tensor:
    """Makes random rows like those of models, [n_rows, n_cols]; the same on every call on a device.

    Every second one spans a range of about 100, every third one is far from 0, and every fifth one is masked (-inf) but for
    its last quarter. Each of the others of every two has one element so far above the rest that a result without it in the
    maximum is inf or nan; it stands in another column in each row.
    """
    x = torch.randn(n_rows, n_cols, dtype=dtype, device=where, generator=torch.Generator(where).manual_seed(0))
    x[1::2] *= 12
    x[2::3] -= 300
    x[4::5, : n_cols * 3 // 4] = -float("inf")
    rows = torch.arange(0, n_rows, 2, device=where)
    x[rows, (rows * GOLDEN % 1 * n_cols).long()] = PEAK
    return x


class Trial(NamedTuple):
    """A launch, and what should come out of it.

    Args:
        problem: what is launched.
        operands: as the kernel takes them, the result first; nothing is around each but nan.
        numbers: operands behind the tensors: the factor of all rows.
        exact: the result in float64.
        terms: the size of what the result is a sum of, which is rounded too; 0 where nothing cancels.
    """

    problem: Problem
    operands: tuple[torch.Tensor, ...]
    numbers: tuple[float, ...]
    exact: torch.Tensor
    terms: torch.Tensor | float

    def compared(self, result: torch.Tensor | None = None) -> Verified:
        """Compares what a kernel wrote, into the first operand or a tensor that lies like it."""
        return compared(self.operands[0] if result is None else result, self.exact, self.terms)


def verify_here(case: SoftmaxProblem, device: Device) -> Verified:
    """Runs a softmax on a device that is here, or in the interpreter, and compares it with float64.

    Raises:
        DtypeError, PlanError, CompileError: the kernel cannot run on the device.
    """
    where = torch.device(device.vendor.torch_device_type + ("" if device.index is None else f":{device.index}"))
    tried = trial(case, case.n_rows, device, where)
    launch = bind_problem(tried.problem, device, where)
    launch_on(guard_of(device), launch, *tried.operands, *tried.numbers)
    return tried.compared()


def trial(case: SoftmaxProblem, n_rows: int, device: Device, where: "torch.device | str") -> Trial:
    """Makes a trial of so many of a case's rows.

    Args:
        case: what is computed.
        n_rows: at most those of the case.
        device: what the launch is for.
        where: torch's name of the device of the operands.
    """
    scores, dtype = case.scores or NONE, getattr(torch, case.dtype)
    x = wide_rows(n_rows, case.n_cols, dtype, where)
    given = _Given(scores, x)
    exact, terms = given.softmax()
    if case.backward:
        y, dy = exact.nan_to_num(0.0).to(dtype), given.random(dtype)
        exact, terms = given.gradient(dy, y)
        operands = tuple(guarded(each) for each in (torch.full_like(dy, torch.nan), dy, y))
        more: tuple[torch.Tensor | None, ...] = (given.factors,)
    else:
        operands = tuple(guarded(each) for each in (torch.full_like(x, torch.nan), x))
        more = given.mask, given.factors, given.sinks
    problem = _described(operands, scores, None if case.backward else given.mask, device)
    operands += tuple(each for each in more if each is not None)
    numbers = (FACTOR,) if "number" in (scores.scale, scores.temperature) else ()
    return Trial(problem, operands, numbers, exact, terms)


def _described(operands: tuple[torch.Tensor, ...], scores: Scores, mask: torch.Tensor | None, device: Device) -> Problem:
    shape, strides = operands[0].shape, [each.stride() for each in operands]
    if scores:
        lines = lines_of_scores(shape, 1, strides, (0, 0) if mask is None else mask.stride(), bool(scores.causal))
    else:
        lines = lines_of(shape, 1, strides, device.vendor.scattered_rows)
    assert lines, "rows are taken as they lie"
    return problem_from(operands, lines, "softmax", len(operands) == 3, False, scores=scores, mask=mask)


class _Given:
    """Everything that scores need beside x, and the formula in float64, whose steps are rounded as the kernel's are."""

    def __init__(self, scores: Scores, x: torch.Tensor) -> None:
        self.scores, self.x = scores, x
        self.compute = torch.promote_types(x.dtype, torch.float32)
        self.generator = torch.Generator(x.device).manual_seed(1)
        self.mask = self._mask()
        kind = scores.scale or scores.temperature
        self.factors = self._rows().abs().add(0.75) if kind == "rows" else None
        factor: torch.Tensor | float = FACTOR if kind == "number" else 1.0
        self.factor = factor if self.factors is None else self.factors.double().unsqueeze(-1)
        self.sinks = self._rows() * 3 if scores.sink else None

    def random(self, dtype: torch.dtype) -> torch.Tensor:
        """Returns random numbers of the shape of x."""
        return torch.randn(self.x.shape, dtype=dtype, device=self.x.device, generator=self.generator)

    def _rows(self) -> torch.Tensor:
        return torch.randn(len(self.x), dtype=self.compute, device=self.x.device, generator=self.generator)

    def _mask(self) -> torch.Tensor | None:
        if not self.scores.mask:
            return None
        seen = torch.rand(self.x.shape, device=self.x.device, generator=self.generator) < SOME
        seen[:, 0] = True
        if self.scores.mask == "bool":
            return seen
        return self.random(getattr(torch, self.scores.mask)).masked_fill(~seen, -INF)

    def softmax(self) -> tuple[torch.Tensor, torch.Tensor | float]:
        """Computes the softmax of the scores, and the size of its terms."""
        z = self._scores().double()
        top = z.amax(-1, keepdim=True)
        if self.sinks is not None:
            top = torch.maximum(top, self.sinks.double().unsqueeze(-1))
        e = (z - top).exp()
        total = e.sum(-1, keepdim=True)
        if self.sinks is not None:
            total += (self.sinks.double().unsqueeze(-1) - top).exp()
        exact = e / total
        size = torch.where(z.isfinite(), z.abs() + (top + total.log()).nan_to_num(0, 0, 0).abs(), 0.0)
        return exact, exact.nan_to_num(0.0) * size if self.scores else 0.0

    def _scores(self) -> torch.Tensor:
        scores, z = self.scores, self.x.to(self.compute)
        if scores.scale:
            z = (z * self.factor).to(self.compute)
        if scores.cap:
            z = (scores.cap * torch.tanh(z.double() / scores.cap)).to(self.compute)
        if scores.temperature:
            z = (z / self.factor).to(self.compute)
        if self.mask is not None:
            z = z.masked_fill(~self.mask, -INF) if scores.mask == "bool" else z + self.mask.to(self.compute)
        if scores.causal:
            rows, cols = z.shape
            seen = torch.ones_like(z, dtype=torch.bool).tril(cols - rows if scores.causal == "lower_right" else 0)
            z = z.masked_fill(~seen, -INF)
        return z

    def gradient(self, dy: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes the gradient of x from that of y, and y, without the derivative of a cap; and the size of its terms."""
        d, p = dy.double(), y.double()
        exact = p * (d - (d * p).sum(-1, keepdim=True))
        terms = p * (d.abs() + (d * p).abs().sum(-1, keepdim=True))
        factor = 1 / self.factor if self.scores.temperature else self.factor
        return exact * factor, terms * factor
