"""Tells whether two states of the kernels are the same code for the compiler: it compares the TTIR of hundreds of launches.

    python scripts/same_code.py nvidia/h200 --save before.json        # in a checkout of the state before
    python scripts/same_code.py nvidia/h200 --against before.json     # in this one; ends with 1 if a launch differs
    python scripts/same_code.py nvidia/h200 --against before.json --counts   # operations may stand in another order

TTIR is Triton's own form of a kernel, the same for all vendors. Nothing is compiled further, and no device is needed.
"""

import argparse
import hashlib
import inspect
import itertools
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from portable_softmax import Device
from portable_softmax.planning import planner
from portable_softmax.planning.lines import lines_of_scores
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.request import contiguous_problem, problem_of
from portable_softmax.planning.scores import Scores
from portable_softmax.runtime import compiler
from portable_softmax.runtime.kernel_form import constexprs_of, kernel_of
from portable_softmax.runtime.specialization import KernelSpec

ROWS = (4096, 781), (100_000, 33), (4096, 8192), (4096, 12672), (16, 50_257), (8, 131_072), (1024, 65_536), (2, 10**6)
SIDE_BY_SIDE = (  # rows side by side, columns, matrices, elements of an access
    *((512, 19, 64, 4), (4096, 4096, 1, 4), (1024, 50_257, 1, 4), (49, 1000, 64, 1), (8, 10, 500_000, 4), (2048, 16_384, 1, 4)),
)
STEPS = (  # of scores, and their gradients
    Scores(factor="number"),
    Scores(factor="rows", divides=True),
    Scores(factor="rows", divides=True, cap=30.0, mask="float16", causal="lower_right", zero_rows=True),
    Scores(mask="bool", factor="number", sink=True),
    Scores(causal="upper_left", sink=True, factor="rows"),
)
CANDIDATES = 3  # tilings of each problem


def problems(device: Device) -> Iterator[Problem]:
    """Yields problems of every form, layout, type, access and step for which kernels differ."""
    for dtype in ("float32", "bfloat16"):
        for backward in (False, True):
            for form in ("softmax", "log_softmax", "softmin"):
                for n_rows, n_cols in ROWS if form != "softmin" else ROWS[:2]:
                    yield contiguous_problem(n_rows, n_cols, dtype, form, backward)
            for inner, n_cols, matrices, vector in SIDE_BY_SIDE:
                sizes, depth = (matrices * inner, n_cols), 1 if matrices == 1 else 2
                problem = Problem(*sizes, dtype, dtype, vector, True, "softmax", backward, inner=inner, depth=depth)
                yield problem
            heads = Problem(8 * 2048 * 16, 128, dtype, dtype, 4, True, "softmax", backward, depth=3)
            transposed = [
                Problem(8192, cols, dtype, dtype, 4, True, "softmax", backward, inner=8192, transposed=True)
                for cols in (512, 4096)
            ]
            yield from (heads, *transposed)
            for step in ("reduce", "map"):
                yield Problem(4096, 75_968, dtype, dtype, 4, True, "log_softmax", backward, step=step)
    yield from scored_problems()
    yield contiguous_problem(4096, 20_000, "float64")
    yield contiguous_problem(4096, 781, "float64", "softmax", True)


def scored_problems() -> Iterator[Problem]:
    """Yields the softmax of scores, and its gradient: heads, few long rows, and rows side by side; masks are broadcast."""
    for scores, (shape, dim), dtype in itertools.product(
        STEPS, (((8, 16, 200, 200), 3), ((2, 100_001), 1), ((8, 4, 128, 512), 2)), ("float32", "bfloat16")
    ):
        strides = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
        mask = (
            [stride if at != 1 or len(shape) == 2 else 0 for at, stride in enumerate(strides)]
            if scores.mask
            else [0] * len(shape)
        )
        causal = scores.causal is not None and dim == len(shape) - 1
        for backward in (False, True):
            lines = lines_of_scores(shape, dim, [strides] * (3 if backward else 2), mask, causal)
            if lines and causal is (scores.causal is not None):
                yield problem_of(lines, dtype, dtype, scores=scores, backward=backward, mask_aligned=True)


def specs(device: Device) -> Iterator[tuple[str, KernelSpec]]:
    """Yields the name and the kernel of the first launches of each problem that this Triton can compile."""
    for given in problems(device):
        for problem, tiling, _ in planner.ranked(given, device)[:CANDIDATES]:
            if tiling.blocks > 1 and tiling.held and compiler.triton_version() < (3, 3):
                continue  # Triton 3.2 has no tuples of tensors
            rows = f"{problem.n_rows} x {problem.n_cols} {problem.layout} {problem.inner} {problem.depth} {problem.access}"
            yield f"{problem.name} {rows}: {tiling}, walks {tiling.walk}", KernelSpec.of(problem, tiling)


def ttir(spec: KernelSpec, device: Device) -> str:
    """Returns the body of a kernel in TTIR, without locations, and with values numbered in the order of their use."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    target = GPUTarget(device.backend, device.arch, device.hardware.warp_size or 0)
    backend = make_backend(target)
    source = compiler.source_of(kernel_of(spec), spec.signature(), constexprs_of(spec, device))
    options = backend.parse_options({"num_warps": spec.tiling.num_warps or 4})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    takes_options = bool(inspect.signature(backend.get_codegen_implementation).parameters)
    codegen = backend.get_codegen_implementation(*([options] if takes_options else []))
    arguments = options, codegen, backend.get_module_map(), context
    takes_target = len(inspect.signature(source.make_ir).parameters) == 5
    module = source.make_ir(*([target] if takes_target else []), *arguments)
    takes_arch = len(inspect.signature(backend.make_ttir).parameters) == 4
    module = backend.make_ttir(module, {}, options, *([device.arch] if takes_arch else []))
    text = re.sub(r"loc\([^)]*\)+|#loc.*\n?|tt\.func public @\w+\(.*\n", "", str(module))
    return _numbered("\n".join(line for line in text.splitlines() if line.strip()))


def _numbered(text: str) -> str:
    names: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return names.setdefault(found[1], f"%{len(names)}") + (found[2] or "")

    return re.sub(r" +", " ", re.sub(r"(%\w+)([#:]\d+)?", number, text))


def described(text: str) -> dict[str, Any]:
    """Returns what is compared about a kernel: a hash of its text, and how often it has each operation."""
    operations = Counter(re.findall(r"(?:= |^ *)\"?((?:tt|arith|scf|math)\.\w+)", text, re.MULTILINE))
    return {"hash": hashlib.sha256(text.encode()).hexdigest()[:16], "operations": dict(sorted(operations.items()))}


def main() -> int:
    """Saves or compares; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", help="a profile's name")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--save", type=Path)
    what.add_argument("--against", type=Path)
    parser.add_argument("--counts", action="store_true", help="compare how often each operation stands there, not the text")
    options = parser.parse_args()
    device = Device.from_profile(options.device)
    found = {name: described(ttir(spec, device)) for name, spec in specs(device)}
    if options.save:
        options.save.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{len(found)} launches")
        return 0
    before, key = json.loads(options.against.read_text()), "operations" if options.counts else "hash"
    differing = [name for name in before.keys() | found.keys() if before.get(name, {}).get(key) != found.get(name, {}).get(key)]
    print("\n".join(sorted(differing)), file=sys.stderr)
    print(f"{len(before)} launches before, {len(found)} now, {len(differing)} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
