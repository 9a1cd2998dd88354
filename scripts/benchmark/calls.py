"""Calls on the host, and rows that are ignored, on the current device.

python scripts/benchmark/calls.py            # host times beside torch's, with the bound of each
python scripts/benchmark/calls.py --ignored  # 97% of rows ignored, beside none
"""

import argparse
import gc
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from portable_softmax import log_softmax, softmax, token_log_probs
from portable_softmax.devices.detect import current_device

Call = Callable[[], object]
DEVICE = current_device().vendor.torch_device_type


def host_us(call: Call, repeats: int = 7, calls: int = 200) -> float:
    """Returns the least of several means of the host's microseconds, because other work on the machine only adds time."""
    best = math.inf
    gc.disable()
    for _ in range(repeats):
        call()
        synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls * 1e6)
    gc.enable()
    return best


def synchronize() -> None:
    """Waits for the device."""
    if DEVICE != "cpu":
        getattr(torch, DEVICE).synchronize()


def host_calls() -> Iterator[tuple[str, float, Call, Call]]:
    """Yields (name, the most that ours may take of the other, ours, the other), of tensors so small that the host is slower."""
    x, mask = torch.randn(128, 256, device=DEVICE), torch.rand(128, 256, device=DEVICE) < 0.7
    rows, out, dy = torch.rand(128, 1, device=DEVICE) + 0.5, torch.empty_like(x), torch.randn_like(x)
    leaf, ids, dids = x.clone().requires_grad_(), torch.randint(256, (128,), device=DEVICE), torch.randn(128, device=DEVICE)
    grad = torch.autograd.grad

    def composed(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax((x * rows).masked_fill(~mask, -torch.inf), -1)

    yield "forward", 2.2, lambda: softmax(x), lambda: torch.softmax(x, -1)
    yield "forward, recorded", math.inf, lambda: softmax(leaf), lambda: torch.softmax(leaf, -1)
    yield "out=", 2.2, lambda: softmax(x, out=out), lambda: torch.softmax(x, -1, out=out)
    yield "in place", math.inf, lambda: softmax(out, out=out), lambda: torch.softmax(out, -1, out=out)
    yield "forward and backward", 1.4, lambda: grad(softmax(leaf), leaf, dy), lambda: grad(torch.softmax(leaf, -1), leaf, dy)
    yield "mask and scales of rows", 1.0, lambda: softmax(x, scale=rows, mask=mask), lambda: composed(x)
    yield (
        "mask and a scale", 1.0, lambda: softmax(x, scale=0.5, mask=mask),
        lambda: torch.softmax((x * 0.5).masked_fill(~mask, -torch.inf), -1),
    )  # fmt: skip
    yield (
        "both, forward and backward", 1.0, lambda: grad(softmax(leaf, scale=rows, mask=mask), leaf, dy),
        lambda: grad(composed(leaf), leaf, dy),
    )  # fmt: skip
    yield "token_log_probs (log_softmax)", 1.3, lambda: token_log_probs(x, ids), lambda: log_softmax(x)
    yield (
        "token_log_probs, forward and backward (log_softmax)", 1.3, lambda: grad(token_log_probs(leaf, ids), leaf, dids),
        lambda: grad(log_softmax(leaf), leaf, dy),
    )  # fmt: skip


def device_us(call: Call, repeats: int = 30) -> float:
    """Returns the median of the device's microseconds of calls, each behind a cleared cache, which the host is ahead of."""
    cache = torch.empty(2**28, dtype=torch.int8, device=DEVICE)
    module: Any = getattr(torch, DEVICE)
    times: list[float] = []
    for _ in range(repeats):
        for _ in range(4):
            cache.zero_()
        start, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        module.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return sorted(times)[len(times) // 2]


def ignored(n_rows: int = 16384, n_cols: int = 32000) -> Iterator[str]:
    """Yields the times of token_log_probs without ignored rows and with 97% of them, and that of zeros for a gradient."""
    x = torch.randn(n_rows, n_cols, device=DEVICE).bfloat16().requires_grad_()
    ids, dy = torch.randint(n_cols, (n_rows,), device=DEVICE), torch.randn(n_rows, device=DEVICE)
    few = torch.where(torch.rand(n_rows, device=DEVICE) < 0.97, -100, ids)
    zeros = device_us(lambda: torch.zeros_like(x))
    times = {}
    for name, chosen in (("none", ids), ("97%", few)):
        recorded = token_log_probs(x, chosen)
        forward = device_us(partial(token_log_probs, x.detach(), chosen))
        backward = device_us(partial(torch.autograd.grad, recorded, x, dy, retain_graph=True))
        times[name] = forward, backward
        measured = f"forward {forward:.1f}, backward {backward:.1f} us; zeros of the gradient {zeros:.1f}"
        yield f"{name} of {n_rows} rows ignored: {measured}"
    (forward, backward), (few_forward, few_backward) = times["none"], times["97%"]
    yield f"forward {few_forward / forward:.1%}; backward less zeros {max(0.0, few_backward - zeros) / backward:.1%}"


def main() -> None:
    """Prints what is requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ignored", action="store_true")
    parser.add_argument("--calls", type=int, default=200, help="of a mean of host times")
    arguments = parser.parse_args()
    if arguments.ignored:
        print(*ignored(), sep="\n")
    else:
        for name, bound, ours, other in host_calls():
            us, others = host_us(ours, calls=arguments.calls), host_us(other, calls=arguments.calls)
            ratio = us / others
            print(f"{name:52} {us:8.2f} {others:8.2f} us {ratio:6.2f}{f' of {bound}' if bound < math.inf else ''}")


if __name__ == "__main__":
    main()
