"""Times softmax of tensors that are not a matrix of contiguous rows: permuted, cut, and along any dim.

The peers are torch.softmax, those that take any dim (--peers: torch.compile, and FlagGems if it is installed), and `copy`,
which copies into a contiguous tensor. This package and torch.softmax also write a contiguous tensor; torch.compile may write
the strides of its input. GB/s counts x read once and y written once. --backward times the gradient alone: dy has the layout of
x, y is as torch.softmax wrote it, and `copy` adds both into a contiguous tensor.

    python scripts/benchmark layouts --dtype float32 bfloat16 --out layouts.csv
"""

import argparse
import csv
import functools
import importlib.util
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tabulate import tabulate
from tqdm import tqdm
from triton.testing import do_bench

from portable_softmax import current_device, softmax
from portable_softmax.probe.verify import allowed_error


class Layout(NamedTuple):
    """A shape, a view of a tensor of that shape, and the dim of the softmax."""

    shape: tuple[int, ...]
    dim: int
    view: Callable[[torch.Tensor], torch.Tensor] = lambda x: x


LAYOUTS = {
    "heads": Layout((8, 2048, 16, 128), -1, lambda x: x.transpose(1, 2)),
    "short heads": Layout((4, 4096, 16, 64), -1, lambda x: x.transpose(1, 2)),
    "slice": Layout((64, 2048, 512), -1, lambda x: x[:, :1024]),
    "t()": Layout((8192, 4096), -1, lambda x: x.t()),
    "t(), other dim": Layout((4096, 8192), 0, lambda x: x.t()),
    "channels last": Layout((64, 64, 64, 64), -1, lambda x: x.permute(0, 2, 3, 1)),
    "columns": Layout((4096, 4096), 0),
    "many columns": Layout((1200, 32_768), 0),
    "vocabulary first": Layout((50257, 1024), 0),
    "one long line": Layout((1, 151_936, 16), 1),
    "batch of columns": Layout((32, 2048, 128), 1),
    "channels of 49": Layout((64, 1000, 49), 1),
    "segmentation": Layout((8, 19, 512, 1024), 1),
    "three channels": Layout((16, 3, 1024, 1024), 1),
    "three neighbours": Layout((1_000_000, 7, 3), 1),
    "eight neighbours": Layout((500_000, 10, 8), 1),
    "fifteen neighbours": Layout((20_000, 100, 15), 1),
    "first of three": Layout((1000, 64, 200), 0),
    "small": Layout((1000, 7, 3), 1),
}
TURNS = 3


def main() -> int:
    """Times each layout in each type, checks it against float64, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layout", nargs="+", choices=tuple(LAYOUTS), default=list(LAYOUTS))
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16", "float16"), default=["float32", "bfloat16"])
    parser.add_argument("--backward", action="store_true", help="the gradient instead")
    parser.add_argument("--peers", action="store_true", help="torch.compile and FlagGems too, which compile for seconds")
    parser.add_argument("--out", type=Path, default=Path("layouts.csv"))
    options = parser.parse_args()
    where = current_device().vendor.torch_device_type
    providers = GRADIENTS if options.backward else FUNCTIONS
    if options.peers:
        providers = providers | _peers(options.backward)
    cells = tqdm([(name, dtype) for dtype in options.dtype for name in options.layout])
    rows = [
        {"layout": name, "dtype": dtype} | measure(LAYOUTS[name], dtype, where, providers, options.backward)
        for name, dtype in cells
    ]
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(tabulate(rows, headers="keys", floatfmt=".0f"))
    return int(any(isinstance(row["ours"], str) for row in rows))


def measure(
    layout: Layout, dtype: str, where: str, providers: dict[str, Callable[..., torch.Tensor]], backward: bool
) -> dict[str, float | str]:
    """Returns GB/s by provider; "WRONG" for a result that differs from float64, "refused" for none."""
    torch._dynamo.reset()  # torch.compile runs eagerly after too many recompilations
    x, dy = (layout.view(torch.randn(layout.shape, dtype=getattr(torch, dtype), device=where)) for _ in range(2))
    out = torch.empty(x.shape, dtype=x.dtype, device=where)
    given: tuple[torch.Tensor, ...] = (x,)
    if backward:
        y = torch.softmax(x, layout.dim)
        given, fastest = (dy, y), functools.partial(torch.add, dy, y, out=out)
        exact = _naive_gradient(dy.double(), y.double(), layout.dim)
    else:
        fastest = functools.partial(out.copy_, x)
        exact = torch.softmax(x.double(), layout.dim)
    calls = {"copy": fastest} | {name: functools.partial(call, *given, layout.dim) for name, call in providers.items()}
    errors = {name: _error(calls[name], exact) for name in providers}
    calls = {name: call for name, call in calls.items() if not errors.get(name)}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name, call in TURNS * list(calls.items()):
        times[name].append(do_bench(call, warmup=2, rep=10, return_mode="median"))
    moved = 1e-6 * (1 + len(given)) * x.numel() * x.element_size()
    rates = {name: moved / statistics.median(each) for name, each in times.items()}
    return {name: rates.get(name, error) for name, error in ({"copy": ""} | errors).items()}


def _peers(backward: bool) -> dict[str, Callable[..., torch.Tensor]]:
    found = {"compile": torch.compile(_naive_gradient if backward else torch.softmax, dynamic=False)}
    if importlib.util.find_spec("flag_gems"):
        operators = importlib.import_module("flag_gems").ops
        found["flaggems"] = _gradient_by(operators.softmax_backward) if backward else operators.softmax
    return found


def _error(call: Callable[[], torch.Tensor], exact: torch.Tensor) -> str:
    """Returns "WRONG", "refused", or "" for a result that agrees with float64."""
    try:
        return "" if _right(call(), exact) else "WRONG"
    except Exception as refusal:  # each peer refuses a tensor in its own way
        tqdm.write(f"{type(refusal).__name__}: {str(refusal)[:100]}", file=sys.stderr)
        return "refused"


def _naive_gradient(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    return y * (dy - (dy * y).sum(dim, keepdim=True))


def _gradient_by(operator: Any) -> Callable[..., torch.Tensor]:
    return lambda dy, y, dim: operator(dy, y, dim, y.dtype)


FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {"torch": torch.softmax, "ours": softmax}
GRADIENTS = {
    "torch": _gradient_by(torch.ops.aten._softmax_backward_data),
    "ours": _gradient_by(torch.ops.portable_softmax.softmax_backward),
}


def _right(result: torch.Tensor, exact: torch.Tensor) -> bool:
    """Compares with float64. Small gradients are allowed the error of larger ones, because terms of both signs cancel."""
    allowed = 20 * allowed_error(exact.abs().maximum(exact.abs().mean()), result.dtype)
    return bool(((result.double() - exact).abs() <= allowed).all())
