"""Registers the operators when torch is there: programs saved by torch.export or AOTInductor refer to them by name."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def import_with_torch(*modules: str) -> None:
    """Imports modules at once if torch is imported, else as soon as it is. Until then this costs nothing.

    Warns:
        RuntimeWarning: a module cannot be imported. torch and this package still work; only uses of that module fail.
    """
    if sys.modules.get("torch"):
        _import(modules)
    else:
        sys.meta_path.insert(0, _Finder(modules))


def _import(modules: Sequence[str]) -> None:
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:
            version = getattr(sys.modules["torch"], "__version__", "of no version")
            warnings.warn(f"torch {version} does not get the operators of {name}: {error!r}", RuntimeWarning, stacklevel=3)


class _Finder(MetaPathFinder):
    """Finds torch as the other finders do, but with a loader that also imports the modules.

    It stays until torch is loaded, because most callers that look for torch only ask whether it is installed.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self.modules = modules

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((found for found in others if found), None)
        if spec and spec.loader:
            spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(Loader):
    """Loads torch by its own loader, which the module keeps, and then imports the waiting modules."""

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self.loader, self.finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)  # for callers that only look for torch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
            _import(self.finder.modules)
