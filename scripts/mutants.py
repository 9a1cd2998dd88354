"""Changes one thing at a time in planning, occupancy, operators and kernels, and counts the changes that their tests see.

    python scripts/mutants.py --count 100              # some of all, the same ones each time
    python scripts/mutants.py --only planning/grid.py --count 0   # every one of a file
    python scripts/mutants.py --show                   # what would be changed; nothing is run

Nothing is written: each change is made in a process of its own, as the module is imported, and pytest runs there until the
first test that fails; of operators and kernels in Triton's interpreter. A change that no test sees is printed, with its line;
the exit code is 1 where there are more of them than --allow.
"""

import argparse
import ast
import copy
import importlib.machinery
import importlib.util
import linecache
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
FILES = [f"devices/backends/{name}.py" for name in ("base", "cuda", "hip", "xpu", "npu")] + [
    f"{room}/{path.name}"
    for room in ("planning", "operators", "kernels")
    for path in sorted((ROOT / "portable_softmax" / room).glob("*.py"))
]
INTERPRETED = "-m", "kernel and not slow", "--device", "interpreter"
TESTS = {  # in this order: quick ones that see most come first
    "operators": [[*INTERPRETED, "tests/operators"], ["tests/operators"], [*INTERPRETED, "tests/api"]],
    "kernels": [[*INTERPRETED, "tests/kernels"], [*INTERPRETED, "tests/operators"]],
    "planning": [["tests/planning/test_golden_plans.py", "tests/planning/test_planner.py"], ["tests/planning"]],
    "devices": [
        ["tests/devices/test_occupancy.py", "tests/devices/test_recorded_occupancy.py", "tests/planning/test_golden_plans.py"],
        ["tests/devices"],
    ],
}
SECONDS = 900.0  # of one change's tests: a change may also make a loop that does not end

OPERATORS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Mutant(NamedTuple):
    """One change of a file: of the `place`-th node that can be changed."""

    file: str
    place: int
    line: int
    what: str


def changed(node: ast.AST) -> tuple[ast.AST, str] | None:
    """Returns another node in place of this one, and says what is other; None where nothing is to be changed."""
    new: Any = copy.copy(node)
    if isinstance(node, ast.Compare):
        new.ops = [OPERATORS[type(node.ops[0])](), *node.ops[1:]]
        return new, f"{type(node.ops[0]).__name__} -> {type(new.ops[0]).__name__}"
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OPERATORS:
        new.op = OPERATORS[type(node.op)]()
        return new, f"{type(node.op).__name__} -> {type(new.op).__name__}"
    if isinstance(node, ast.Constant) and isinstance(value := node.value, bool | int):
        new.value = not value if isinstance(value, bool) else value + 1
        return new, f"{value} -> {new.value}"
    if isinstance(node, ast.Name) and node.id in NAMES:
        new.id = NAMES[node.id]
        return new, f"{node.id} -> {new.id}"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand, "without not"
    if isinstance(node, ast.If | ast.IfExp):
        new.test = ast.UnaryOp(ast.Not(), node.test)
        return new, "if -> if not"
    return None


class Changing(ast.NodeTransformer):
    """Walks through what is computed, neither annotations nor texts; makes the change at `place`, if any, and lists all."""

    def __init__(self, file: str, place: int | None = None) -> None:
        self.file, self.place = file, place
        self.found: list[Mutant] = []

    def visit(self, node: ast.AST) -> Any:
        """Returns the node, or the changed one; numbers of places count parents before what is in them."""
        if isinstance(node, ast.JoinedStr | ast.arg):
            return node
        kept = {name: getattr(node, name) for name in ("annotation", "returns", "decorator_list") if hasattr(node, name)}
        for name in kept:
            setattr(node, name, [] if name == "decorator_list" else None)
        made = changed(node)
        here = len(self.found)
        if made:
            self.found.append(Mutant(self.file, here, getattr(node, "lineno", 0), made[1]))
        node = self.generic_visit(node)
        for name, value in kept.items():
            setattr(node, name, value)
        again = changed(node) if made and here == self.place else None
        return again[0] if again else node


def mutants(files: Sequence[str]) -> Iterator[Mutant]:
    """Yields every change of the files, named from portable_softmax/."""
    for file in files:
        changing = Changing(file)
        changing.visit(ast.parse((ROOT / "portable_softmax" / file).read_text()))
        yield from changing.found


class Importer(importlib.machinery.SourceFileLoader):
    """Finds the one module that is changed."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        path = ROOT / "portable_softmax" / mutant.file
        super().__init__("portable_softmax." + mutant.file.removesuffix(".py").replace("/", "."), str(path))

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Returns the changed module's; None for all others."""
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self) if fullname == self.name else None

    def get_code(self, fullname: str) -> Any:
        """Compiles the module with its change; as its text, too, from which Triton makes kernels."""
        tree = Changing(self.mutant.file, self.mutant.place).visit(ast.parse(Path(self.path).read_text()))
        text = ast.unparse(ast.fix_missing_locations(tree))
        linecache.cache[self.path] = (len(text), None, text.splitlines(keepends=True), self.path)
        return compile(text, self.path, "exec")


def seen(mutant: Mutant, seconds: float = SECONDS) -> bool:
    """Runs the tests with one change; tells whether one failed, or did not end."""
    child = os.fork()
    if not child:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        sys.meta_path.insert(0, Importer(mutant))  # it finds one module, and leaves the others
        chosen = "-x", "-q", "-p", "no:cacheprovider"
        code = 1
        try:
            code = int(any(_fails([*chosen, *tests]) for tests in TESTS[mutant.file.partition("/")[0]]))
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def _fails(arguments: list[str]) -> bool:
    """Runs pytest in a process of its own, as kernels are imported for the interpreter or not; tells whether a test fails."""
    import pytest  # here, so that --help and --show work without the tests' packages

    child = os.fork()
    if not child:
        code = 1
        try:
            code = int(pytest.main(arguments if "-m" in arguments else [*arguments, "-m", "not kernel and not slow"]))
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] != 0


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="so many, at random but the same each time; 0: all")
    parser.add_argument("--only", nargs="+", default=FILES, metavar="FILE", help="files, from portable_softmax/")
    parser.add_argument("--allow", type=int, default=0, help="changes that no test need see")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="print the changes, run nothing")
    options = parser.parse_args()
    chosen = list(mutants(options.only))
    if options.count:
        chosen = sorted(random.Random(0).sample(chosen, min(options.count, len(chosen))))
    if options.show:
        print(*(f"{each.file}:{each.line}: {each.what}" for each in chosen), sep="\n")
        return 0
    os.chdir(ROOT)
    for preloaded in ("torch", "triton", "hypothesis", "msgspec", "yaml", "numpy"):  # once, not in each process
        importlib.import_module(preloaded)
    unseen = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, was_seen in zip(chosen, pool.map(seen, chosen), strict=True):
            if not was_seen:
                unseen += 1
                print(f"{mutant.file}:{mutant.line}: {mutant.what}", flush=True)
    print(f"{len(chosen) - unseen} of {len(chosen)} changes are seen")
    return int(unseen > options.allow)


if __name__ == "__main__":
    sys.exit(main())
