"""Row kernels of examples/, launched by `persistent`, peers' kernels of the same, and torch's copy of as many bytes."""

import importlib
import sys
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, NamedTuple

import torch

from benchmark.here import ROOT
from benchmark.problems import Problem
from benchmark.results import COPY, OURS
from benchmark.timing import Timed
from portable_probe.closeness import allowed_of_any, distance
from portable_softmax.row_kernels.launcher import Launcher

EPS = 1e-6
CHECKED = 256  # rows that are compared with float64
Call = Callable[["Operands"], torch.Tensor]


class Operands(NamedTuple):
    """Operands of a cell: rows, weights and biases of their columns, and a target for each row."""

    x: torch.Tensor
    w: torch.Tensor
    b: torch.Tensor
    target: torch.Tensor
    wide: tuple[torch.Tensor, torch.Tensor]  # weights and biases in float32

    @classmethod
    def random(cls, problem: Problem, where: str) -> "Operands":
        """Makes operands of a normal distribution."""
        rows, cols = problem.shape
        x, w, b = (
            torch.randn(size, device=where, dtype=getattr(torch, problem.dtype)) for size in ((rows, cols), (cols,), (cols,))
        )
        return cls(x, w, b, torch.randint(cols, (rows,), device=where), (w.float(), b.float()))


class Kernel(NamedTuple):
    """A kernel of examples/: how it is launched, and what it computes.

    Args:
        launcher: of `persistent`.
        arguments: of the launcher, for operands and a result.
        result: an empty one, for rows of x.
        copied: part of the rows that a copy reads and writes, so that it moves as many bytes.
        plain: the same by torch's operators, in any type.
        peers: the same by others, by name.
    """

    launcher: Launcher
    arguments: Callable[[Operands, torch.Tensor], tuple[Any, ...]]
    result: Callable[[torch.Tensor], torch.Tensor]
    copied: float
    plain: Call
    peers: dict[str, Call]


def _rows_of(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape[0], device=x.device)


def _rms_norm(o: Operands) -> torch.Tensor:
    return torch.nn.functional.rms_norm(o.x, o.x.shape[1:], o.w, EPS)


def _layer_norm(o: Operands) -> torch.Tensor:
    return torch.nn.functional.layer_norm(o.x, o.x.shape[1:], o.w, o.b, EPS)


def _cross_entropy(o: Operands) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(o.x, o.target, reduction="none")


def _liger(name: str) -> dict[str, Call]:
    """Returns Liger's forward of a kernel, which computes no gradient of what needs none."""
    try:
        module = importlib.import_module(f"liger_kernel.ops.{name}")
    except ImportError as error:
        print(f"without liger: {error}", file=sys.stderr)
        return {}
    calls: dict[str, Call] = {
        "rms_norm": lambda o: module.rms_norm_forward(o.x, o.w, EPS, 0.0, "llama", None)[0],
        "layer_norm": lambda o: module.layer_norm_forward(o.x, o.w, o.b, EPS)[0],
        "cross_entropy": lambda o: module.cross_entropy_forward(o.x, o.target, None, -100, 0.0, 0.0, "none", None, False)[0],
    }
    return {"liger": calls[name]}


def _quack(name: str) -> dict[str, Call]:
    """Returns QuACK's forward of a kernel; weights and biases of its layer norm are float32."""
    try:
        module = importlib.import_module("quack.cross_entropy" if name == "cross_entropy" else "quack.rmsnorm")
    except Exception as error:  # it requires a supported GPU
        print(f"without quack: {type(error).__name__}: {error}", file=sys.stderr)
        return {}
    calls: dict[str, Call] = {
        "rms_norm": lambda o: module.rmsnorm_fwd(o.x, o.w, eps=EPS)[0],
        "layer_norm": lambda o: module.layernorm_fwd(o.x, *o.wide, EPS),
        "cross_entropy": lambda o: module.cross_entropy_fwd(o.x, o.target),
    }
    return {"quack": calls[name]}


@cache
def kernels() -> dict[str, Kernel]:
    """Returns the kernels by name, with the peers that can be imported."""
    sys.path.insert(0, str(ROOT / "examples"))

    def kernel(name: str, arguments: Any, result: Any, copied: float, plain: Call) -> Kernel:
        peers = {"torch": plain, "compile": torch.compile(plain, dynamic=False), **_liger(name), **_quack(name)}
        return Kernel(importlib.import_module(name).forward, arguments, result, copied, plain, peers)

    return {
        "rms_norm": kernel("rms_norm", lambda o, y: (o.x, o.w, y, *o.x.shape, EPS), torch.empty_like, 1, _rms_norm),
        "layer_norm": kernel("layer_norm", lambda o, y: (o.x, o.w, o.b, y, *o.x.shape, EPS), torch.empty_like, 1, _layer_norm),
        "cross_entropy": kernel("cross_entropy", lambda o, y: (o.x, o.target, y, *o.x.shape), _rows_of, 0.5, _cross_entropy),
    }


def timed(problem: Problem, where: str, names: Iterable[str]) -> Timed:
    """Makes a problem's operands and the calls of the providers that are named."""
    kernel, operands = kernels()[problem.direction], Operands.random(problem, where)
    source = operands.x[: max(1, int(len(operands.x) * kernel.copied))]

    def ours() -> torch.Tensor:
        y = kernel.result(operands.x)
        kernel.launcher(*kernel.arguments(operands, y))
        return y

    calls: dict[str, Callable[[], torch.Tensor]] = {COPY: partial(torch.clone, source)}
    calls |= {peer: partial(call, operands) for peer, call in kernel.peers.items()} | {OURS: ours}
    few = operands.x[:CHECKED].double()
    exact = kernel.plain(Operands(few, operands.w.double(), operands.b.double(), operands.target[:CHECKED], operands.wide))
    allowed = allowed_of_any(exact, operands.x.dtype)

    def error_of(result: torch.Tensor) -> float:
        return distance(result[:CHECKED], exact, allowed).worst

    return Timed({name: call for name, call in calls.items() if name in names}, error_of)
