"""The packages and their folders: imports go one way, in the emulator's too."""

import ast
import graphlib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOFTMAX, PROBE, EMULATOR = "portable_softmax", "portable_probe", "amdgcn_cpu"
HOUSES = {SOFTMAX: ROOT, PROBE: ROOT, EMULATOR: ROOT / "amdgcn_cpu" / "src"}
FILES = {path.relative_to(above).as_posix(): path for house, above in HOUSES.items() for path in (above / house).rglob("*.py")}

# Each room and those that its files may import, at any level of a file. Two are files: errors, invariance.
ARROWS = {
    "errors": set(),
    "invariance": set(),
    "kernels": set(),
    "devices": {"errors"},
    "planning": {"devices", "errors"},
    "runtime": {"planning", "devices", "invariance", "errors"},
    "row_kernels": {"invariance", "runtime", "planning", "devices", "errors"},
    "operators": {"runtime", "planning", "devices", "invariance", "errors"},
    "api": {"operators", "runtime", "planning", "devices", "invariance", "errors"},
    SOFTMAX: {"api", "operators", "row_kernels", "runtime", "planning", "devices", "invariance", "errors"},
    PROBE: {SOFTMAX, EMULATOR, "operators", "row_kernels", "runtime", "planning", "devices", "errors"},
    "tune": {PROBE, "row_kernels", "runtime", "planning", "devices", "errors"},
    "testing": {PROBE, "row_kernels", "devices", "errors"},
    "program": {PROBE, "tune", "row_kernels", "planning", "devices", "errors"},
    "__main__": {"program"},
    EMULATOR: set(),
}
MORE = {f"portable_softmax/runtime/{file}.py": {"kernels"} for file in ("kernel", "bind")}  # those that name them


def room_of(module):
    """The room of a module: the folder or file of its house; in the probe, those of ARROWS, and the house for all else."""
    house, *inside = module.removesuffix(".__init__").split(".")
    return inside[0] if inside and (house == SOFTMAX or (house == PROBE and inside[0] in ARROWS)) else house


def name_of(file):
    """The module of a file."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


NAMES = {name_of(path) for path in FILES}


def imported(file):
    """The modules of the package that a file imports: at its top, in functions, and for type checkers alone."""
    for node in ast.walk(ast.parse(FILES[file].read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}:{node.lineno}: rooms are named in full"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in NAMES else node.module for name in inner]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # for importlib
            names = [node.value] if node.value in NAMES - {*HOUSES} else []
        else:
            continue
        yield from (name for name in names if name.split(".")[0] in HOUSES)


def test_packages_import_one_way_and_no_modules_each_other():
    graph = {file: set(imported(file)) for file in FILES}
    for file, names in graph.items():
        room = room_of(name_of(file))
        allowed = {room} | ARROWS[room] | MORE.get(file, set())
        wrong = [name for name in names if room_of(name) not in allowed]
        assert not wrong, f"{file} may import {', '.join(sorted(allowed))}, and imports {', '.join(wrong)}"
    graphlib.TopologicalSorter({name_of(file): names for file, names in graph.items()}).prepare()
