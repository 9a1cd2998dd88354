"""The packages and their folders: imports go one way, in the emulator's too."""

import ast
import graphlib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOFTMAX, PROBE, EMULATOR = "portable_softmax", "portable_probe", "amdgcn_cpu"
PLACES = {SOFTMAX: ROOT, PROBE: ROOT, EMULATOR: ROOT / "amdgcn_cpu" / "src"}
FILES = {
    path.relative_to(above).as_posix().removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
    for package, above in PLACES.items()
    for path in (above / package).rglob("*.py")
}
# A file may import what is on the lines above its own, and its own folder; two entries are files.
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
LAYER_OF = {folder: number for number, folders in enumerate(LAYERS) for folder in folders}


def folder_of(module):
    """Returns the folder or file of a package; of the probe those of LAYERS, and the package for all else."""
    package, *inside = module.split(".")
    return inside[0] if inside and (package == SOFTMAX or (package == PROBE and inside[0] in LAYER_OF)) else package


def imported(module):
    """Yields the modules that a module imports: at its top, in functions, for type checkers alone, and by name."""
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}:{node.lineno}: modules are named in full"
            names = [inner if (inner := f"{node.module}.{alias.name}") in FILES else node.module for alias in node.names]
        elif isinstance(node, ast.Constant) and node.value in FILES.keys() - PLACES:  # for importlib
            names = [node.value]
        yield from (name for name in names if name.split(".")[0] in PLACES)


def test_packages_import_one_way_and_no_modules_each_other():
    graph = {module: set(imported(module)) for module in FILES}
    for module, names in graph.items():
        own = folder_of(module)
        wrong = [name for name in names if LAYER_OF[folder_of(name)] >= LAYER_OF[own] and folder_of(name) != own]
        assert not wrong, f"{module} imports {', '.join(wrong)}, of the same layer or above"
    graphlib.TopologicalSorter(graph).prepare()
