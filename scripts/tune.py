#!/usr/bin/env python3
"""Times every launch that a rule could ask for, on the device here, and prints the fastest as a rule.

The planner does not tune at run time. Put a row that this prints into `launch.rules` of a profile (device_profiles/README.md),
with a wider range of columns and the measurement as its source. Regret is how much faster the best launch is than the plan.

    python scripts/tune.py --shapes 4096x781 1024x32768 --dtype float32 bfloat16 --out tuned.json
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
from tqdm import tqdm
from triton.testing import do_bench

from portable_softmax import CompileError, Device, KernelResources, PortableSoftmaxError, current_device, occupancy
from portable_softmax.devices.policy import LaunchRule
from portable_softmax.planning.candidates import candidates
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.reading import as_read
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.runtime.launch import sizes_of
from portable_softmax.runtime.plans import plan_problem
from portable_softmax.runtime.prepared import prepare
from portable_softmax.runtime.specialization import KernelSpec, compile_kernel
from portable_softmax.runtime.workspace import with_words

SHAPES = ["5592405x3", "1677721x10", "508400x33", "167772x100", "32768x512", "32768x781", "16384x2048", "4096x4096",
          "4096x8192", "4096x12672", "4096x32768", "2048x65536", "1024x131072", "512x262144", "1024x50257",
          "512x151936"]  # fmt: skip
LONGEST = 32768  # columns of a row that is tried in one tile
HELD = 2, 72  # fewest and most elements that a thread holds
MOST_PIECES = 32


def main() -> int:
    """Tunes the shapes of the command line, writes JSON, and prints the regret of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="ROWSxCOLS")
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16", "float16"), default=["float32", "bfloat16"])
    parser.add_argument("--backward", action="store_true", help="the gradient instead; its copy adds two tensors to a third")
    parser.add_argument("--out", default="tuned.json")
    options = parser.parse_args()
    shapes = [shape.split("x") for shape in options.shapes]
    device, backward = current_device(), options.backward
    cells = [
        as_read(contiguous_problem(int(rows), int(cols), dtype, backward=backward), device)
        for dtype in options.dtype
        for rows, cols in shapes
    ]
    _compile_all(cells)
    found = [_tune(problem) for problem in tqdm(cells)]
    Path(options.out).write_text(json.dumps(found, indent=1) + "\n")
    print(f"geometric mean of the regret: {statistics.geometric_mean(1 + cell['regret'] for cell in found) - 1:.1%}")
    return 0


def launches(problem: Problem, device: Device) -> dict[Tiling, LaunchRule]:
    """Returns every tiling worth a try on the device, with a rule that asks for it."""
    found: dict[Tiling, LaunchRule] = {}
    for rule in _rules(device):
        if rule.strategy == "tile" and problem.n_cols > LONGEST:
            continue
        for tiling in candidates(rule, problem, device):
            threads = (tiling.num_warps or 0) * (device.hardware.warp_size or 0)
            held = tiling.tile_rows * tiling.tile_cols / threads if threads else HELD[0]
            if HELD[0] <= held <= HELD[1] and tiling.pieces <= MOST_PIECES:
                walks = device.profile.launch.grid.value == "resident" and tiling.parts == 1
                found.setdefault(dataclasses.replace(tiling, walk=walks), rule)
    return found


def _rules(device: Device) -> Iterator[LaunchRule]:
    """Yields rules with no conditions and every combination of choices. Choices about threads need a device with threads."""
    has_warps = bool(device.hardware.warp_size)
    per_thread = (16, 32, 64) if has_warps else (None,)
    per_piece = (None, 4, 8) if has_warps else (None,)
    for words, warps in itertools.product((512, 704, 1024, 2048), (2, 4, 8)):
        if has_warps:
            yield _rule("tile", tile_words=words, num_warps=warps)
    for elements, thread, piece in itertools.product((1024, 4096), per_thread, per_piece):
        yield _rule(
            "tile", tile_elements=elements, max_tile_elements=32768, elements_per_thread=thread, elements_per_piece=piece
        )
    for cols, thread in itertools.product((8192, 32768), per_thread[-2:]):
        yield _rule("online", tile_cols=cols, elements_per_thread=thread)
    if not device.profile.launch.polls:
        return
    registers = (None, 96, 128, 168) if (device.hardware.max_registers_per_thread or 0) > 168 else (None,)
    for cols, warps, piece, most in itertools.product((2048, 4096, 6144, 8192), (1, 2, 4, 8), (4, 8), registers):
        if cols % (warps * (device.hardware.warp_size or 1) * piece) == 0:
            yield _rule("shared", tile_cols=cols, num_warps=warps, elements_per_piece=piece, max_registers=most)


def _rule(strategy: str, **choices: int | None) -> LaunchRule:
    given = {key: value for key, value in choices.items() if value is not None}
    return msgspec.convert({"strategy": strategy, "source": "tuned", **given}, LaunchRule)


def row(rule: LaunchRule, problem: Problem) -> str:
    """Returns the rule for problems like this one, as a row to paste into a profile."""
    conditions = {"direction": problem.direction, "element_bytes": problem.element_bytes, "access": problem.access}
    conditions |= {"from_cols": problem.n_cols, "to_cols": problem.n_cols}
    choices = {key: value for key, value in msgspec.to_builtins(rule).items() if key != "source"}
    return "- {" + ", ".join(f"{key}: {value}" for key, value in (conditions | choices).items()) + ", source: tuned}"


def _compile_all(cells: list[Problem]) -> None:
    """Compiles into Triton's cache on disk, with all processors but one."""
    device = current_device()
    specs = {KernelSpec.of(problem, tiling) for problem in cells for tiling in launches(problem, device)}
    with multiprocessing.get_context("spawn").Pool(max(1, (os.cpu_count() or 2) - 1)) as pool:
        list(tqdm(pool.imap_unordered(_compile, specs, chunksize=4), total=len(specs), desc="compile"))


def _compile(spec: KernelSpec) -> None:
    try:
        compile_kernel(spec, current_device())
    except CompileError as error:
        print(error)


def _tune(problem: Problem) -> dict[str, Any]:
    device = current_device()
    like = {"device": device.vendor.torch_device_type, "dtype": getattr(torch, problem.x_dtype)}
    given = [torch.randn(problem.n_rows, problem.n_cols, **like) for _ in range(1 + problem.backward)]
    operands = [torch.empty_like(given[0]), *given]
    planned = plan_problem(problem, device)
    rules, rates = launches(problem, device), {}
    for tiling in rules:
        with contextlib.suppress(CompileError):  # _compile has printed it
            rates[tiling] = _rate(problem, tiling, _programs(problem, tiling, device), operands, device)
    rates = {tiling: rate for tiling, rate in sorted(rates.items(), key=lambda each: -each[1]) if rate}
    ours = _rate(problem, planned.tiling, planned.num_programs, operands, device)
    best = next(iter(rates))
    regret = max(0.0, rates[best] / ours - 1)
    fastest = (lambda: torch.add(*given, out=operands[0])) if problem.backward else (lambda: operands[0].copy_(given[0]))
    copy = _gb_per_s(fastest, operands, warmup=5, rep=20)
    name = f"{problem.x_dtype} {problem.n_rows}x{problem.n_cols}"
    tqdm.write(f"{name:26} copy {copy:5.0f}  planned {ours:5.0f} {planned.tiling}  best {rates[best]:5.0f} {best}  "
               f"regret {regret:.1%}\n    {row(rules[best], problem)}")  # fmt: skip
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
    """Returns GB/s; 0 for a launch that spills or does not fit."""
    resources = _resources(problem, tiling, device)
    fits = num_programs and occupancy(resources, device).programs_per_multiprocessor
    if resources.spilled_bytes_per_thread or not fits:
        return 0.0
    launch = prepare(KernelSpec.of(problem, tiling), device, (num_programs, 1, 1), sizes_of(problem))
    if tiling.parts > 1:
        launch = with_words(launch, problem, tiling, operands[0].device)
    return _gb_per_s(lambda: launch(*operands), operands, warmup=2, rep=12)


def _gb_per_s(function: Callable[[], Any], operands: list[torch.Tensor], warmup: int, rep: int) -> float:
    ms = do_bench(function, warmup=warmup, rep=rep, return_mode="median")
    return float(1e-6 * len(operands) * operands[0].numel() * operands[0].element_size() / ms)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except PortableSoftmaxError as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from None
