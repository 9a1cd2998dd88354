"""Tells whether two states of the kernels are the same code for the compiler: it compares the TTIR of hundreds of launches.

    python scripts/same_code.py nvidia/h200 --save before.json        # in a checkout of the state before
    python scripts/same_code.py nvidia/h200 --against before.json     # in this one; ends with 1 if a launch differs
    python scripts/same_code.py nvidia/h200 --against before.json --counts   # operations may stand in another order

TTIR is Triton's own form of a kernel, the same for all vendors. Nothing is compiled further, and no device is needed.
"""

import argparse
import hashlib
import importlib
import inspect
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from portable_softmax import Device
from portable_softmax.planning import planner
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime import compiler
from portable_softmax.runtime.kernel_form import constexprs_of, kernel_of
from portable_softmax.runtime.specialization import KernelSpec

PROBLEMS = 200  # by chance, of every form, layout, type, access and step of scores for which kernels differ
CANDIDATES = 3  # tilings of each problem


def _random_problems(device: Device, seed: int) -> Iterator[Problem]:
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
    problems: Iterator[Problem] = importlib.import_module("random_plans").random_problems(device, seed)
    return problems


def problems(device: Device) -> Iterator[Problem]:
    """Yields random problems, the same each time."""
    yield from itertools.islice(_random_problems(device, seed=0), PROBLEMS)


def specs(device: Device) -> Iterator[tuple[str, KernelSpec]]:
    """Yields the name and the kernel of the first launches of each problem that this Triton can compile."""
    for given in problems(device):
        for problem, tiling, _ in planner.ranked(given, device)[:CANDIDATES]:
            if tiling.blocks > 1 and tiling.held and compiler.triton_version() < (3, 3):
                continue  # Triton 3.2 has no tuples of tensors
            yield f"{problem}: {tiling}, walks {tiling.walk}", KernelSpec.of(problem, tiling)


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
