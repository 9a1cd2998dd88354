"""Times the row kernels of examples/, launched by `persistent`, against peers' kernels of the same and a copy.

The ceiling is torch's copy of as many bytes. The CSV has the columns of scripts/results/README.md.

    python scripts/benchmark own --out own.csv
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from benchmark.ahead import compile_ahead
from benchmark.here import ROOT, here
from benchmark.report import text_of
from benchmark.results import COPY, OURS, Result, write
from benchmark.timing import results_of
from portable_probe.closeness import allowed_of_any, distance
from portable_softmax import current_device
from portable_softmax.row_kernels.launcher import Launcher

EPS = 1e-6
ROWS, COLS = (4096, 16384, 65536), (1024, 3000, 4096, 8192, 16384)
CHECKED = 256  # rows that are compared with float64
Wanted = tuple[str, str, int, int]  # kernel, dtype, rows, columns
Call = Callable[["Operands"], torch.Tensor]


class Operands(NamedTuple):
    """Operands of a cell: rows, weights and biases of their columns, and a target for each row."""

    x: torch.Tensor
    w: torch.Tensor
    b: torch.Tensor
    target: torch.Tensor
    wide: tuple[torch.Tensor, torch.Tensor]  # weights and biases in float32

    @classmethod
    def random(cls, dtype: str, rows: int, cols: int, where: str) -> "Operands":
        """Makes operands of a normal distribution."""
        kind = getattr(torch, dtype)
        x, w, b = (torch.randn(size, device=where, dtype=kind) for size in ((rows, cols), (cols,), (cols,)))
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
    except Exception as error:  # it requires a GPU that it knows
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


def main() -> int:
    """Times each kernel, type and size, checks it against float64, and prints tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", nargs="+", default=["rms_norm", "layer_norm", "cross_entropy"])
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16", "float16"), default=["bfloat16", "float32"])
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS)
    parser.add_argument("--cols", nargs="+", type=int, default=COLS)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1), help="processes that compile ahead")
    parser.add_argument("--out", type=Path, default=Path("own.csv"))
    options = parser.parse_args()
    where, columns = current_device().vendor.torch_device_type, here()
    wanted = [
        (name, kind, m, n) for name in options.kernel for kind in options.dtype for n in options.cols for m in options.rows
    ]
    compile_ahead(wanted, partial(_calls, where), options.jobs)
    results = write(options.out, (result for cell in wanted for result in measure(columns, cell, where, options.turns)))
    print(text_of(results))
    return int(any(result.failure for result in results if result.provider == OURS))


def _calls(where: str, wanted: Wanted) -> list[Callable[[], object]]:
    name, dtype, rows, cols = wanted
    kernel, operands = kernels()[name], Operands.random(dtype, rows, cols, where)
    ours = partial(kernel.launcher, *kernel.arguments(operands, kernel.result(operands.x)))
    return [ours, *(partial(call, operands) for call in kernel.peers.values())]


def measure(columns: dict[str, Any], wanted: Wanted, where: str, turns: int) -> list[Result]:
    """Returns a result of each provider, and one of the copy."""
    name, dtype, rows, cols = wanted
    torch._dynamo.reset()  # torch.compile runs eagerly after too many recompilations
    kernel, operands = kernels()[name], Operands.random(dtype, rows, cols, where)
    source = operands.x[: max(1, int(rows * kernel.copied))]

    def ours() -> torch.Tensor:
        y = kernel.result(operands.x)
        kernel.launcher(*kernel.arguments(operands, y))
        return y

    calls = {COPY: partial(torch.clone, source)} | {peer: partial(call, operands) for peer, call in kernel.peers.items()}
    few = operands.x[:CHECKED].double()
    exact = kernel.plain(Operands(few, operands.w.double(), operands.b.double(), operands.target[:CHECKED], operands.wide))
    allowed = allowed_of_any(exact, operands.x.dtype)

    def error_of(result: torch.Tensor) -> float:
        return distance(result[:CHECKED], exact, allowed).worst

    cell = {"sweep": "own", "shape": f"{rows}x{cols}", "dim": 1, "dtype": dtype, "direction": name}
    results = results_of({**columns, **cell}, {**calls, OURS: ours}, error_of, turns)
    plan = kernel.launcher.plan(*kernel.arguments(operands, kernel.result(operands.x)))
    launch = " ".join(f"{key}={value}" for key, value in {"num_programs": plan.num_programs, **plan.meta}.items())
    return [msgspec.structs.replace(result, launch=launch) if result.provider == OURS else result for result in results]
