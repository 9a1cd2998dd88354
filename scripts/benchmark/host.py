"""Times how long the host is busy with calls, beside torch's: `python scripts/benchmark host`."""

import argparse
import gc
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmark.here import here
from benchmark.results import OURS, Result, write
from portable_softmax import current_device, log_softmax, softmax, token_log_probs

Call = Callable[[], object]
SHAPE = (128, 256)  # the device is done before the host is


def calls(where: str) -> Iterator[tuple[str, float, Call, Call]]:
    """Yields (name, the most that ours may take of the other, ours, the other)."""
    x, mask = torch.randn(SHAPE, device=where), torch.rand(SHAPE, device=where) < 0.7
    rows, out, dy = torch.rand(128, 1, device=where) + 0.5, torch.empty_like(x), torch.randn_like(x)
    leaf, ids, dids = x.clone().requires_grad_(), torch.randint(256, (128,), device=where), torch.randn(128, device=where)
    grad = torch.autograd.grad

    def composed(x: torch.Tensor, scale: torch.Tensor | float = rows) -> torch.Tensor:
        return torch.softmax((x * scale).masked_fill(~mask, -torch.inf), -1)

    def scaled() -> torch.Tensor:
        return grad(softmax(leaf, scale=rows, mask=mask), leaf, dy)[0]

    def log_probs() -> torch.Tensor:
        return grad(token_log_probs(leaf, ids), leaf, dids)[0]

    yield "forward", 2.2, lambda: softmax(x), lambda: torch.softmax(x, -1)
    yield "with gradient", math.inf, lambda: softmax(leaf), lambda: torch.softmax(leaf, -1)
    yield "out=", 2.2, lambda: softmax(x, out=out), lambda: torch.softmax(x, -1, out=out)
    yield "in place", math.inf, lambda: softmax(out, out=out), lambda: torch.softmax(out, -1, out=out)
    yield "both", 1.4, lambda: grad(softmax(leaf), leaf, dy), lambda: grad(torch.softmax(leaf, -1), leaf, dy)
    yield "mask, scales of rows", 1.0, lambda: softmax(x, scale=rows, mask=mask), lambda: composed(x)
    yield "mask, scale", 1.0, lambda: softmax(x, scale=0.5, mask=mask), lambda: composed(x, 0.5)
    yield "mask, scales of rows, both", 1.0, scaled, lambda: grad(composed(leaf), leaf, dy)
    yield "token_log_probs (log_softmax)", 1.3, lambda: token_log_probs(x, ids), lambda: log_softmax(x)
    yield "token_log_probs, both (log_softmax)", 1.3, log_probs, lambda: grad(log_softmax(leaf), leaf, dy)


def main() -> int:
    """Prints and writes microseconds of the host, ours and the other's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("host.csv"))
    options, columns = parser.parse_args(), here()
    where = current_device().vendor.torch_device_type

    def measured() -> Iterator[Result]:
        for name, bound, ours, other in calls(where):
            us, others = _microseconds(ours), _microseconds(other)
            print(f"{name:36} {us:8.2f} {others:8.2f} us {us / others:6.2f}{f' of {bound}' if bound < math.inf else ''}")
            cell = columns | {"sweep": "host", "shape": "128x256", "dim": 1, "dtype": "float32", "direction": name}
            yield from (Result(**cell, provider=provider, median_us=us) for provider, us in (("torch", others), (OURS, us)))

    write(options.out, measured())
    return 0


def _microseconds(call: Call, repeats: int = 7, calls: int = 200) -> float:
    """Returns the least of several means, because other work on the machine only adds time."""
    best = math.inf
    gc.disable()
    for _ in range(repeats):
        call()
        torch.get_device_module().synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls * 1e6)
    gc.enable()
    return best
