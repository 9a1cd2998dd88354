"""Times the parts of a first softmax on the device here, each number in a process of its own.

There is one shape for each way to cut rows into tiles. Each runs with an empty compile cache, then with the cache that this
left, then after warm_up in the process itself. The clock of the first call starts when torch, Triton and this package are
imported and a tensor is on the device; the time up to there is "import". With an empty cache the first call includes Triton's
build of its driver's extension.

    python scripts/benchmark cold_start --shapes 4096x781 --dtype float32 bfloat16
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from portable_softmax import PortableSoftmaxError, current_device
from portable_softmax.devices.detect import interpreting

SHAPES = ["4096x8192", "32768x128", "1024x100000", "4x200000"]  # tiles of one row, of several rows; parts of many rows, of few
FIRST = {  # words for the directions of results
    "empty s": "first, nothing compiled",
    "kept s": "first, compiled on disk",
    "then ms": "first, after warm_up",
    "second ms": "second",
}
COLUMNS = (
    ("shape", 15, ""),
    ("dtype", 10, ""),
    ("strategy", 10, ""),
    ("kernels", 9, "d"),
    ("import s", 10, ".2f"),
    ("empty s", 9, ".2f"),
    ("kept s", 9, ".2f"),
    ("warm_up s", 11, ".2f"),
    ("then ms", 9, ".2f"),
    ("second ms", 11, ".3f"),
)


def main() -> int:
    """Prints a row for each shape and type; returns 1 if there is no device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="ROWSxCOLS")
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16", "float16"), default=["float32"])
    parser.add_argument("--out", type=Path, default=Path("first_calls.csv"))
    parser.add_argument("--alone", nargs=4, help=argparse.SUPPRESS)  # for the measured process
    options = parser.parse_args()
    if options.alone:
        rows, cols, dtype, warm = options.alone
        print(json.dumps(_measure(int(rows), int(cols), dtype, warm == "warm")))
        return 0
    if interpreting():
        print("TRITON_INTERPRET is set: the interpreter compiles nothing, so nothing starts cold; unset it", file=sys.stderr)
        return 1
    try:
        print(current_device())
    except PortableSoftmaxError as error:
        print(error, file=sys.stderr)
        return 1
    _print(name for name, _, _ in COLUMNS)
    rows = []
    for shape in options.shapes:
        for dtype in options.dtype:
            rows.append(_row(shape, dtype))
            _print(f"{value:{form}}" for value, (_, _, form) in zip(rows[-1], COLUMNS, strict=True))
    _write(options.out, rows)
    return 0


def _write(path: Path, rows: list[tuple[Any, ...]]) -> None:
    """Writes the times as results, a row for each kind of call, in the columns of scripts/results/README.md."""
    from benchmark.here import here
    from benchmark.results import OURS, Result, write

    told = here()
    kinds = {"empty s": 1e6, "kept s": 1e6, "then ms": 1e3, "second ms": 1e3}
    names = [name for name, _, _ in COLUMNS]
    write(path, (
        Result(**told, sweep="first call", provider=OURS, shape=row[0], dim=1, dtype=row[1], direction=FIRST[name],
               launch=row[2], median_us=scale * row[names.index(name)])
        for row in rows for name, scale in kinds.items()
    ))  # fmt: skip


def _print(cells: Iterable[str]) -> None:
    print("".join(f"{cell:>{width}}" for cell, (_, width, _) in zip(cells, COLUMNS, strict=True)), flush=True)


def _row(shape: str, dtype: str) -> tuple[Any, ...]:
    rows, cols = shape.split("x")
    with tempfile.TemporaryDirectory() as cache:
        empty, kept = (_in_a_process(cache, rows, cols, dtype, "cold") for _ in range(2))
    with tempfile.TemporaryDirectory() as cache:
        warm = _in_a_process(cache, rows, cols, dtype, "warm")
    return (shape, dtype, empty["strategy"], empty["kernels"], empty["import"], empty["first"], kept["first"], warm["warm_up"],
            1e3 * warm["first"], 1e3 * kept["second"])  # fmt: skip


def _in_a_process(cache: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--alone", *arguments]
    environment = {**os.environ, "TRITON_CACHE_DIR": cache}
    result: dict[str, Any] = json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)
    return result


def _measure(rows: int, cols: int, dtype: str, warm: bool) -> dict[str, Any]:
    """Measures the seconds of each step; counts the kernels that the first call compiled or fetched from the cache."""
    start = time.perf_counter()
    import torch

    from portable_softmax import plan, softmax, warm_up
    from portable_softmax.runtime import compiled as spec

    device_type = current_device().vendor.torch_device_type
    module = getattr(torch, device_type)
    x = torch.zeros(rows, cols, device=device_type, dtype=getattr(torch, dtype))
    torch.softmax(x[:1, :1], -1)  # loads the same things as torch's own softmax
    module.synchronize()
    steps = {"import": time.perf_counter() - start}

    def timed(name: str, action: Any) -> Any:
        start = time.perf_counter()
        result = action()
        module.synchronize()
        steps[name] = time.perf_counter() - start
        return result

    timed("warm_up", lambda: warm_up([(rows, cols)] if warm else [], [dtype]))
    timed("first", lambda: softmax(x))
    timed("second", lambda: softmax(x))
    return {"strategy": plan(rows, cols, dtype).tiling.strategy, "kernels": len(spec._compiled), **steps}


if __name__ == "__main__":
    raise SystemExit(main())
