"""Stand-ins for modules of a vendor's software that is not installed, while files with kernels are imported."""

import contextlib
import importlib
import importlib.machinery
import inspect
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any


class StandIn:
    """A function, class or object that is not installed: its attributes and results are stand-ins too."""

    __triton_builtin__ = True  # what kernels of Triton may name; it reads the signature of what they call
    signature = inspect.Signature()

    def __init__(self, name: str) -> None:
        self.name = self.__name__ = name

    def __getattr__(self, name: str) -> "StandIn":
        if name.startswith("__"):
            raise AttributeError(f"{self.name} has no attribute {name!r}")
        return StandIn(f"{self.name}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Returns the function that it decorates, or itself.

        Raises:
            NotImplementedError: a kernel calls it.
        """
        if any(type(value).__module__.startswith("triton.language") for value in arguments):
            raise NotImplementedError(f"{self.name} is not installed, and this Triton does not compile it")
        decorates = len(arguments) == 1 and (
            inspect.isfunction(arguments[0]) or hasattr(arguments[0], "arg_names")
        )  # of Triton
        return arguments[0] if decorates else self


class Handle(StandIn):
    """A stream or an event of a device that is not present."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__("a stream or event")


def stand_in_module(name: str, known: Any = None) -> ModuleType:
    """Returns a module that is not installed.

    Args:
        name: its name.
        known: a module whose attributes take precedence; all others are stand-ins.
    """

    def attribute(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return getattr(known, attribute, None) or StandIn(f"{name}.{attribute}")

    module = ModuleType(getattr(known, "__name__", name))  # Triton replaces libdevice by its name
    vars(module).update(__path__=[], __getattr__=attribute)  # its submodules are found by _Finder
    return module


class _Finder:
    """Finds modules that no other finder does, below some names."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self.modules = modules

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """Returns the spec of a module with one of the names or below it; None for others."""
        if not any(f"{name}.".startswith(f"{root}.") for root in self.modules):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> ModuleType:
        """Returns a stand-in, for which another module may answer."""
        known = self.modules.get(spec.name)
        return stand_in_module(spec.name, pkgutil.resolve_name(known) if known else None)

    def exec_module(self, module: ModuleType) -> None:
        """Imports the submodules with names of their own, which `from module import submodule` would not."""
        for name in self.modules:
            if name.rpartition(".")[0] == module.__name__:
                importlib.import_module(name)


@contextlib.contextmanager
def importable(modules: Mapping[str, str]) -> Iterator[None]:
    """Lets modules be imported that are not installed, and all below them.

    Args:
        modules: their names, with the module that answers for it, or "".
    """
    finder = _Finder(modules)
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if getattr(module, "__loader__", None) is finder]:
            parent, _, child = name.rpartition(".")
            vars(sys.modules.get(parent, ModuleType(""))).pop(child, None)
            del sys.modules[name]
