"""Times softmax of tensors that are not a matrix of contiguous rows: permuted, cut, and along any dim.

The peers are torch.softmax, those that take any dim (--peers: torch.compile, and FlagGems if it is installed), and `copy`,
which copies into a contiguous tensor. This package and torch.softmax also write a contiguous tensor; torch.compile may write
the strides of its input. `backward` times the gradient alone: dy has the layout of x, y is as torch.softmax wrote it, and
`copy` adds both into a contiguous tensor. The CSV has the columns of scripts/results/README.md.

    python scripts/benchmark layouts --direction forward backward --out layouts.csv
"""

import argparse
import functools
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmark.directions import DIRECTIONS, Inputs, worst_error
from benchmark.here import here
from benchmark.report import text_of
from benchmark.results import OURS, Result, write
from benchmark.timing import results_of
from portable_probe.output import counted_out
from portable_softmax import current_device, softmax


class Layout(NamedTuple):
    """A shape, a view of a tensor of that shape, in torch's words, and the dim of the softmax."""

    shape: tuple[int, ...]
    dim: int
    view: str = "contiguous"

    @property
    def sweep(self) -> str:
        """Returns the class that states.py has such tensors in."""
        return "across" if self.view == "contiguous" else "transposed" if self.view in TRANSPOSED else "heads"

    def of(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the view of a tensor of the shape."""
        return x if self.view == "contiguous" else VIEWS[self.view](x)


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transpose(1, 2)": lambda x: x.transpose(1, 2),
    "[:, :1024]": lambda x: x[:, :1024],
    "t()": lambda x: x.t(),
    "permute(0, 2, 3, 1)": lambda x: x.permute(0, 2, 3, 1),
}
TRANSPOSED = ("t()", "permute(0, 2, 3, 1)")
LAYOUTS = {
    "heads": Layout((8, 2048, 16, 128), -1, "transpose(1, 2)"),
    "short heads": Layout((4, 4096, 16, 64), -1, "transpose(1, 2)"),
    "slice": Layout((64, 2048, 512), -1, "[:, :1024]"),
    "t()": Layout((8192, 4096), -1, "t()"),
    "t(), other dim": Layout((4096, 8192), 0, "t()"),
    "channels last": Layout((64, 64, 64, 64), -1, "permute(0, 2, 3, 1)"),
    "columns": Layout((4096, 4096), 0),
    "many columns": Layout((1200, 32_768), 0),
    "vocabulary first": Layout((50257, 1024), 0),
    "one long line": Layout((1, 151_936, 16), 1),
    "batch of columns": Layout((32, 2048, 128), 1),
    "odd columns": Layout((5, 20_000, 333), 1),
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
    parser.add_argument("--direction", nargs="+", choices=tuple(FUNCTIONS), default=["forward"])
    parser.add_argument("--peers", action="store_true", help="torch.compile and FlagGems too, which compile for seconds")
    parser.add_argument("--out", type=Path, default=Path("layouts.csv"))
    options = parser.parse_args()
    where, told = current_device().vendor.torch_device_type, here()
    wanted = [(way, dtype, name) for way in options.direction for dtype in options.dtype for name in options.layout]
    found = write(
        options.out,
        (
            each
            for direction, dtype, name in counted_out(wanted, "tensor")
            for each in measure(told, LAYOUTS[name], dtype, where, direction, functions(direction, options.peers))
        ),
    )
    print(text_of(found))
    return int(any(each.failure for each in found if each.provider == OURS))


def functions(direction: str, with_peers: bool) -> dict[str, Callable[..., torch.Tensor]]:
    """Returns the providers' functions of a direction, by name."""
    return FUNCTIONS[direction] | (_peers(direction == "backward") if with_peers else {})


def measure(
    told: Mapping[str, Any],
    layout: Layout,
    dtype: str,
    where: str,
    direction: str,
    providers: dict[str, Callable[..., torch.Tensor]],
) -> list[Result]:
    """Returns a result of each provider, and one of the copy."""
    torch._dynamo.reset()  # torch.compile runs eagerly after too many recompilations
    x, dy = (layout.of(torch.randn(layout.shape, dtype=getattr(torch, dtype), device=where)) for _ in range(2))
    y, out = torch.softmax(x, layout.dim), torch.empty(x.shape, dtype=x.dtype, device=where)
    given: tuple[torch.Tensor, ...] = (dy, y) if direction == "backward" else (x,)
    fastest = functools.partial(torch.add, dy, y, out=out) if direction == "backward" else functools.partial(out.copy_, x)
    calls = {"copy": fastest} | {name: functools.partial(call, *given, layout.dim) for name, call in providers.items()}
    dim = layout.dim % x.ndim
    inputs = Inputs(*(_rows(each, dim) for each in (x, y, dy)))

    def error_of(result: torch.Tensor) -> float:
        return worst_error(_rows(result, dim), inputs, DIRECTIONS[direction])

    cell = {"sweep": layout.sweep, "shape": "x".join(map(str, x.shape)), "layout": layout.view, "dim": dim}
    return results_of({**told, **cell, "dtype": dtype, "direction": direction}, calls, error_of, TURNS)


def _rows(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns the elements of a tensor as a matrix whose rows are along `dim`."""
    return x.movedim(dim, -1).reshape(-1, x.shape[dim])


def _peers(backward: bool) -> dict[str, Callable[..., torch.Tensor]]:
    found = {"compile": torch.compile(_naive_gradient if backward else torch.softmax, dynamic=False)}
    if importlib.util.find_spec("flag_gems"):
        operators = importlib.import_module("flag_gems").ops
        found["flaggems"] = _gradient_by(operators.softmax_backward) if backward else operators.softmax
    return found


def _naive_gradient(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    return y * (dy - (dy * y).sum(dim, keepdim=True))


def _gradient_by(operator: Any) -> Callable[..., torch.Tensor]:
    return lambda dy, y, dim: operator(dy, y, dim, y.dtype)


FUNCTIONS: dict[str, dict[str, Callable[..., torch.Tensor]]] = {
    "forward": {"torch": torch.softmax, OURS: softmax},
    "backward": {
        "torch": _gradient_by(torch.ops.aten._softmax_backward_data),
        OURS: _gradient_by(torch.ops.portable_softmax.softmax_backward),
    },
}
