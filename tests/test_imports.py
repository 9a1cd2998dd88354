"""The packages and their folders: imports go one way, in the emulator's too."""

import ast
import graphlib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOFTMAX, PROBE, EMULATOR = "portable_softmax", "portable_probe", "amdgcn_cpu"
HOUSES = {SOFTMAX: ROOT, PROBE: ROOT, EMULATOR: ROOT / "amdgcn_cpu" / "src"}
FILES = {path.relative_to(above).as_posix(): path for house, above in HOUSES.items() for path in (above / house).rglob("*.py")}

# A file may import rooms of the lines above its own, and its own room, at any level of the file; two rooms are files.
LAYERS = (
    {"errors", "invariance", "kernels", EMULATOR},
    {"devices"},
    {"planning"},
    {"runtime"},
    {"row_kernels", "operators"},
    {"api"},
    {SOFTMAX},
    {PROBE},
    {"tune", "testing"},
    {"program"},
    {"__main__"},
)
LAYER_OF = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}


def room_of(module):
    """The room of a module: the folder or file of its house; in the probe, those of LAYERS, and the house for all else."""
    house, *inside = module.removesuffix(".__init__").split(".")
    return inside[0] if inside and (house == SOFTMAX or (house == PROBE and inside[0] in LAYER_OF)) else house


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
    graph = {name_of(file): set(imported(file)) for file in FILES}
    for module, names in graph.items():
        room = room_of(module)
        wrong = [name for name in names if LAYER_OF[room_of(name)] >= LAYER_OF[room] and room_of(name) != room]
        assert not wrong, f"{module} imports {', '.join(wrong)}, of the same layer or above"
    graphlib.TopologicalSorter(graph).prepare()
