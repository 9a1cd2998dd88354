#!/usr/bin/env python3
"""Times every legal launch of the kernel on the device that is here, and prints the planner's regret in each cell.

Regret is how much faster the best launch is than the planned one. There is no tuning at run time: what this finds goes
into the planner's rules or a profile's `launch`, with the measurement as its source.

    python scripts/tune.py --shapes 4096x781 1024x32768 --dtype float32 bfloat16 --out tuned.json
"""

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from triton.testing import do_bench

from portable_softmax import CompileError, Device, KernelResources, current_device, occupancy, plan
from portable_softmax.planning.holding import held_to_registers
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem, next_power_of_2
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.runtime.specialization import KernelSpec, compile_kernel, launcher
from portable_softmax.runtime.workspace import with_words

SHAPES = ["32768x128", "32768x512", "32768x781", "32768x1024", "16384x2048", "4096x781", "4096x4096", "4096x8192", "4096x12672",
          "4096x32768", "2048x65536", "512x262144", "1823x781", "128x151936"]  # fmt: skip
NUM_WARPS = (1, 2, 4, 8, 16, 32)
MOST_PARTS = 128  # of a row: twice as many as the planner makes


def main() -> int:
    """Tunes the shapes of the command line, writes JSON and prints the regret of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="ROWSxCOLS")
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16", "float16"), default=["float32", "bfloat16"])
    parser.add_argument("--backward", action="store_true", help="the gradient instead; its copy adds two tensors to a third")
    parser.add_argument("--out", default="tuned.json")
    options = parser.parse_args()
    shapes = [shape.split("x") for shape in options.shapes]
    device, backward = current_device(), options.backward
    cells = [
        contiguous_problem(int(rows), int(cols), dtype, device, backward=backward)
        for dtype in options.dtype
        for rows, cols in shapes
    ]
    _compile_all(cells)
    found = [_tune(problem) for problem in tqdm(cells)]
    Path(options.out).write_text(json.dumps(found, indent=1) + "\n")
    print(f"geometric mean of the regret: {statistics.geometric_mean(1 + cell['regret'] for cell in found) - 1:.1%}")
    return 0


def legal(problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields every tiling worth a try; if it walks, the grid has as many programs as are resident, else one per tile."""
    yield from _by_one(problem, device)
    yield from _shared(problem, device)


def _by_one(problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields tiles of 4 to 64 elements per thread, whole rows or not, walked by resident programs in up to 4 stages, or not."""
    whole = next_power_of_2(problem.width)
    several = () if problem.ragged else (2, 4, 8, 16, 32, 64)
    tiles = [("tile", rows, whole) for rows in (1, *several) if rows * whole <= max(whole, 8192) and whole <= 65536]
    narrow = [("online", 1, cols) for cols in (2048, 4096, 8192, 16384, 32768) if cols < whole]
    for strategy, rows, cols in tiles + narrow:
        for num_warps, threads in _threads(device):
            tiling = Tiling(strategy, rows, cols, num_warps, 1, walk=False)
            if 4 <= rows * cols / threads <= 64:
                yield tiling
                for stages in (1, 2, 3, 4) if strategy == "tile" and rows * cols >= 2048 else ():
                    yield dataclasses.replace(tiling, num_stages=stages, walk=True)
            if strategy == "tile":
                yield from _in_pieces(tiling, threads, problem, device)


def _shared(problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields rows in parts of 8 to 64 elements per thread, or in pieces, each held to fewer registers too."""
    for cols in (1024, 2048, 4096, 8192, 16384, 32768):
        parts = -(-problem.width // cols)
        for num_warps, threads in _threads(device) if 1 < parts <= MOST_PARTS else ():
            tiling = Tiling("shared", 1, cols, num_warps, 1, parts, walk=False)
            if 8 <= cols / threads <= 64:
                yield tiling
                yield from held_to_registers(tiling, problem, device)
            yield from _in_pieces(tiling, threads, problem, device)


def _in_pieces(tiling: Tiling, threads: int, problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields pieces of one and of two vectors for each thread, which holds 8 to 128 elements; held to fewer registers too."""
    for vectors in (1, 2):
        piece_cols = max(1, vectors * problem.widest * threads // tiling.tile_rows)
        pieces = -(-problem.width // (tiling.parts * piece_cols))
        tile_cols = pieces * piece_cols
        if 1 < pieces <= 32 and 8 <= tiling.tile_rows * tile_cols / threads <= 128:
            found = dataclasses.replace(tiling, tile_cols=tile_cols, pieces=pieces)
            yield found
            yield from held_to_registers(found, problem, device)


def _threads(device: Device) -> Iterator[tuple[int, int]]:
    """Yields the (warps, threads) that a program may have."""
    for num_warps in NUM_WARPS:
        threads = num_warps * (device.hardware.warp_size or 0)
        if 0 < threads <= (device.hardware.max_threads_per_program or 0):
            yield num_warps, threads


def _compile_all(cells: list[Problem]) -> None:
    """Compiles into Triton's cache on disk, by all processors but one."""
    device = current_device()
    specs = {KernelSpec.of(problem, tiling) for problem in cells for tiling in legal(problem, device)}
    with multiprocessing.get_context("spawn").Pool(max(1, (os.cpu_count() or 2) - 1)) as pool:
        list(tqdm(pool.imap_unordered(_compile, specs, chunksize=4), total=len(specs), desc="compile"))


def _compile(spec: KernelSpec) -> None:
    try:
        compile_kernel(spec, current_device())
    except CompileError as error:
        print(error)


def _tune(problem: Problem) -> dict[str, Any]:
    device = current_device()
    like = {"device": "cuda", "dtype": getattr(torch, problem.x_dtype)}
    given = [torch.randn(problem.n_rows, problem.n_cols, **like) for _ in range(1 + problem.backward)]
    operands = [torch.empty_like(given[0]), *given]
    planned = plan(problem.n_rows, problem.n_cols, problem.x_dtype, device, backward=problem.backward)
    rates = {}
    for tiling in legal(problem, device):
        with contextlib.suppress(CompileError):  # _compile told
            rates[tiling] = _rate(problem, tiling, _programs(problem, tiling, device), operands, device)
    rates = {tiling: rate for tiling, rate in sorted(rates.items(), key=lambda each: -each[1]) if rate}
    ours = _rate(problem, planned.tiling, planned.num_programs, operands, device)
    best = next(iter(rates))
    regret = max(0.0, rates[best] / ours - 1)
    fastest = (lambda: torch.add(*given, out=operands[0])) if problem.backward else (lambda: operands[0].copy_(given[0]))
    copy = _gb_per_s(fastest, operands, warmup=5, rep=20)
    name = f"{problem.x_dtype} {problem.n_rows}x{problem.n_cols}"
    grid = "resident" if best.walk else "tile"
    tqdm.write(f"{name:26} copy {copy:5.0f}  planned {ours:5.0f} {planned.tiling}  best {rates[best]:5.0f} {best}, "
               f"{best.num_stages} stages, {grid} grid  regret {regret:.1%}")  # fmt: skip
    top = [{"rate": rate, **dataclasses.asdict(tiling)} for tiling, rate in rates.items()]
    return {"problem": dataclasses.asdict(problem), "copy": copy, "planned": ours, "regret": regret, "launches": top[:40]}


def _resources(problem: Problem, tiling: Tiling, device: Device) -> KernelResources:
    return device.vendor.resources(compile_kernel(KernelSpec.of(problem, tiling), device))


def _programs(problem: Problem, tiling: Tiling, device: Device) -> int:
    tiles = problem.tiles(tiling.tile_rows)
    if not tiling.walk:
        return tiles * tiling.parts
    count = occupancy(_resources(problem, tiling, device), device).programs_per_multiprocessor
    return min(tiles, (device.hardware.multiprocessor_count or 0) * count)


def _rate(problem: Problem, tiling: Tiling, num_programs: int, operands: list[torch.Tensor], device: Device) -> float:
    """Measures GB/s; 0 for a launch that does not fit, or spills without being held to its registers."""
    resources = _resources(problem, tiling, device)
    spills = resources.spilled_bytes_per_thread and not tiling.max_registers
    if not num_programs or spills or not occupancy(resources, device).programs_per_multiprocessor:
        return 0.0
    launch = launcher(KernelSpec.of(problem, tiling), device)
    if tiling.parts > 1:
        launch = with_words(launch, problem, tiling, operands[0].device)
    length = problem.n_cols // (1 if problem.ragged else problem.vector)
    lines = [length] * len(operands)
    sizes = problem.n_rows, length, *lines, 1, *(0 for _ in operands)  # one matrix of contiguous rows
    return _gb_per_s(lambda: launch((num_programs, 1, 1), *operands, *sizes), operands, warmup=2, rep=12)


def _gb_per_s(function: Callable[[], Any], operands: list[torch.Tensor], warmup: int, rep: int) -> float:
    ms = do_bench(function, warmup=warmup, rep=rep, return_mode="median")
    return float(1e-6 * len(operands) * operands[0].numel() * operands[0].element_size() / ms)


if __name__ == "__main__":
    raise SystemExit(main())
