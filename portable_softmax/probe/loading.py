"""Kernels of other people: imported from a file, and taken out of the decorators around them."""

import contextlib
import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple


class Choices(NamedTuple):
    """A @triton.jit function, and what its decorators and the user choose for it."""

    kernel: Any
    constexprs: dict[str, Any]
    num_warps: int
    num_stages: int


def load_kernel(where: str) -> Any:
    """Imports the kernel that FILE:NAME names, with its decorators.

    Modules beside the file are found, as by `python FILE`. The file itself is a module of a name of its own, so json.py is
    nobody's json.

    Raises:
        ValueError: the file is not there, cannot be imported, or has no kernel of that name.
    """
    file, _, name = where.rpartition(":")
    if not Path(file).is_file():
        raise ValueError(f"{where!r} should be FILE:NAME, and {file!r} is no file")
    spec = importlib.util.spec_from_file_location(_module_name(file), file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file!r} is no Python file: its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where inspect looks for the kernel's source
    try:
        with _beside(Path(file).absolute()):
            spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a script may do anything, and exit
        raise ValueError(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
    kernel = getattr(module, name, None)
    if not any(hasattr(each, "arg_names") for each in layers(kernel)):
        known = [each for each, value in vars(module).items() if hasattr(value, "arg_names")]
        raise ValueError(f"{file} has no @triton.jit function {name!r}; it has {', '.join(known) or 'none'}")
    return kernel


def loaded_module(file: str) -> ModuleType:
    """Returns the module of a file of which `load_kernel` has loaded a kernel."""
    return sys.modules[_module_name(file)]


def _module_name(file: str) -> str:
    return f"kernel_file_{hashlib.sha256(str(Path(file).resolve()).encode()).hexdigest()[:16]}"


@contextlib.contextmanager
def _beside(file: Path) -> Iterator[None]:
    """Lets modules beside a file be imported. Folders that it adds to sys.path stay, at the end; those it removes come back."""
    before, folder = list(sys.path), str(file.parent)
    finder = _Elsewhere(file.stem, folder)
    sys.meta_path.insert(0, finder)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path = before + [each for each in sys.path if each not in (folder, *before)]
        sys.meta_path[:] = [each for each in sys.meta_path if each is not finder]


class _Elsewhere:
    """Finds another module of a kernel file's name: who imports numpy beside a kernel file numpy.py wants the real one."""

    def __init__(self, stem: str, folder: str) -> None:
        self._stem, self._folder = stem, folder

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._stem:
            return None
        return PathFinder.find_spec(name, [each for each in sys.path if each != self._folder])


def layers(kernel: Any) -> Iterator[Any]:
    """Yields a decorated kernel and what it decorates, down to the @triton.jit function.

    Triton's decorators keep it as `fn`, functools.wraps as `__wrapped__`.
    """
    while kernel is not None:
        yield kernel
        inner = getattr(kernel, "fn", None) or getattr(kernel, "__wrapped__", None)
        kernel = inner if hasattr(inner, "arg_names") or hasattr(inner, "__wrapped__") or hasattr(inner, "fn") else None


def choose(
    kernel: Any,
    constexprs: Mapping[str, Any],
    num_warps: int | None = None,
    num_stages: int | None = None,
    config: int | None = None,
) -> Choices:
    """Takes the kernel out of @triton.autotune, @triton.heuristics and decorators of one's own.

    Args:
        constexprs, num_warps, num_stages: of the user; they win over a decorator's. The defaults are 4 and 1.
        config: number of one of the configurations of @triton.autotune.

    Raises:
        ValueError: there are several configurations and none was chosen, or no such one; or a heuristic asks for arguments.
    """
    if config is not None and not any(hasattr(layer, "configs") for layer in layers(kernel)):
        raise ValueError(f"configuration {config} was chosen, and the kernel is not under @triton.autotune")
    chosen = dict(constexprs)
    for layer in layers(kernel):
        if hasattr(layer, "configs"):
            tuned = _config(layer.configs, config)
            chosen = {**tuned.kwargs, **chosen}
            num_warps, num_stages = num_warps or tuned.num_warps, num_stages or tuned.num_stages
        for name, heuristic in getattr(layer, "values", {}).items():
            if name not in chosen:
                chosen[name] = _by_heuristic(name, heuristic, chosen)
        inner = layer
    return Choices(inner, chosen, num_warps or 4, num_stages or 1)


def _config(configs: list[Any], number: int | None) -> Any:
    if number is None and len(configs) == 1:
        return configs[0]
    if number is None or not 0 <= number < len(configs):
        asked = "none was chosen" if number is None else f"{number} is none of them"
        listed = "\n  ".join(f"{each}: {config}" for each, config in enumerate(configs))
        raise ValueError(
            f"the kernel is tuned over {len(configs)} configurations, and {asked}; --config N takes one:\n  {listed}"
        )
    return configs[number]


def _by_heuristic(name: str, heuristic: Any, chosen: dict[str, Any]) -> Any:
    try:
        return heuristic(chosen)
    except Exception as error:  # most ask for arguments, and there are none
        raise ValueError(f"the heuristic of {name} needs {error}; give its value: --constexpr {name}=VALUE") from error
