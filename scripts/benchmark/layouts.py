"""Times softmax of tensors that are no matrix of contiguous rows: permuted, cut, and along any dim.

Beside torch.softmax, torch.compile of it (--compile), and `copy`, a copy into a contiguous tensor, which is what this package
and torch.softmax write; torch.compile may write the strides of its input instead. GB/s counts x read and y written once.

    python scripts/benchmark layouts --dtype float32 bfloat16 --out layouts.csv
"""

import argparse
import csv
import functools
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from tabulate import tabulate
from tqdm import tqdm
from triton.testing import do_bench

from portable_softmax import current_device, softmax
from portable_softmax.probe.verify import allowed_error


class Layout(NamedTuple):
    """A tensor of a shape, a view of it that is computed, and the dim."""

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
    parser.add_argument("--backward", action="store_true", help="the gradient, by autograd, with dy of the same layout")
    parser.add_argument("--compile", action="store_true", help="torch.compile too, which takes seconds for each layout")
    parser.add_argument("--out", type=Path, default=Path("layouts.csv"))
    options = parser.parse_args()
    where = current_device().vendor.torch_device_type
    providers: dict[str, Callable[..., torch.Tensor]] = {"torch": torch.softmax, "ours": softmax}
    if options.compile:
        providers["compile"] = torch.compile(torch.softmax, dynamic=False)
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
    return int(any(row["ours"] == "WRONG" for row in rows))


def measure(
    layout: Layout, dtype: str, where: str, providers: dict[str, Callable[..., torch.Tensor]], backward: bool
) -> dict[str, float | str]:
    """Measures GB/s by provider; "WRONG" for one whose forward result is not that of float64."""
    x, dy = (layout.view(torch.randn(layout.shape, dtype=getattr(torch, dtype), device=where)) for _ in range(2))
    y = torch.empty(x.shape, dtype=x.dtype, device=where)
    calls: dict[str, Callable[[], torch.Tensor]] = {"copy": lambda: y.copy_(x)}
    for name, function in providers.items():
        calls[name] = _gradient(function, x, dy, layout.dim) if backward else functools.partial(function, x, layout.dim)
    wrong = set() if backward else {name for name in providers if not _right(calls[name](), x, layout.dim)}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name, call in TURNS * list(calls.items()):
        times[name].append(do_bench(call, warmup=2, rep=10, return_mode="median"))
    moved = 1e-6 * (3 if backward else 2) * x.numel() * x.element_size()
    return {name: "WRONG" if name in wrong else moved / statistics.median(each) for name, each in times.items()}


def _gradient(function: Callable[..., torch.Tensor], x: torch.Tensor, dy: torch.Tensor, dim: int) -> Callable[[], torch.Tensor]:
    leaf = x.detach().requires_grad_()
    y = function(leaf, dim)
    return lambda: torch.autograd.grad(y, leaf, dy, retain_graph=True)[0]


def _right(y: torch.Tensor, x: torch.Tensor, dim: int) -> bool:
    exact = torch.softmax(x.double(), dim)
    return bool(((y.double() - exact).abs() <= 20 * allowed_error(exact, y.dtype)).all())
