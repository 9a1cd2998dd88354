"""Imports user kernels from their files, as their packages import them."""

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.detect import how_to_install, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.runtime.absent import absent, importable


class KernelFile(NamedTuple):
    """A kernel, with its decorators, and the module of its file."""

    kernel: Any
    module: ModuleType


def load_kernel(where: str, device: Device | None = None) -> KernelFile:
    """Imports the kernel that FILE:NAME names; NAME may be CLASS.NAME.

    A file in a package, a folder with `__init__.py`, is a module of it, so that relative imports work; statements of the
    package's own `__init__.py` that fail are left out. Another file imports the modules next to it, as with `python FILE`. All
    are imported once for each target, as they may depend on what Triton's driver, and torch, report of the device, which is
    the current one meanwhile. A script that fails, as where it launches its kernels, keeps what it has defined.

    Raises:
        ValueError: the file is missing, cannot be imported, or has no kernel of that name.
    """
    file, _, name = where.partition(":")
    path = Path(file)
    if not path.is_file() or path.suffix != ".py":
        raise ValueError(f"{where!r} should be FILE:NAME, and {file!r} is no Python file")
    not_here = device if device and device.index is None and not interpreting() else None
    module, stopped = _imported(path, not_here)
    try:
        kernel = functools.reduce(getattr, name.split("."), module)
    except AttributeError:
        kernel = None
    if not _is_kernel(kernel):
        if stopped:
            why = f"{type(stopped).__name__}: {stopped}{how_to_install(stopped)}"
            raise ValueError(f"{path} cannot be imported: {why}") from stopped
        classes = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]
        members = {f"{holder.__name__}.{member}": value for holder in classes for member, value in vars(holder).items()}
        known = ", ".join(known for known, value in (vars(module) | members).items() if _is_kernel(value)) or "none"
        raise ValueError(f"{file} has no @triton.jit function {name!r}; FILE:NAME may name {known}")
    return KernelFile(kernel, module)


def _imported(file: Path, device: Device | None) -> tuple[ModuleType, BaseException | None]:
    """Returns the module of a file, as far as it ran, and the error that ended it."""
    target = f"{device.backend}/{device.arch}" if device else ""
    with contextlib.suppress(ImportError):
        importlib.import_module("torch")  # which reports the device too
    module = None
    try:
        with contextlib.ExitStack() as answered:
            if device:
                answered.enter_context(absent(device))
                answered.enter_context(importable(device.vendor.modules))
                answered.enter_context(_tools(device))
            answered.enter_context(_inductor(file))
            if imported := _of_package(file, target):
                return imported, None
            folder, place = str(file.absolute().parent), hashlib.sha256(f"{file.resolve()}\n{target}".encode()).hexdigest()
            spec: Any = importlib.util.spec_from_file_location(f"kernel_file_{place[:16]}", file)
            module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # where inspect looks for the source
            try:
                sys.path.insert(0, folder)
                spec.loader.exec_module(module)
            finally:  # its folder comes last from now on, for what a kernel imports later
                sys.path[:] = [*(entry for entry in sys.path if entry != folder), folder]
            return module, None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a script may do anything, and exit
        return module or ModuleType(str(file)), error


@contextlib.contextmanager
def _tools(device: Device) -> Iterator[None]:
    """Replaces nvidia-smi and its like, by which libraries detect devices: only the planned vendor's succeeds."""
    with tempfile.TemporaryDirectory() as folder:
        for tool in {vendor.tool for vendor in BACKENDS.values()} - {""}:
            program = Path(folder, tool)
            program.write_text(f"#!/bin/sh\nexit {int(tool != device.vendor.tool)}\n")
            program.chmod(0o755)
        with mock.patch.dict(os.environ, PATH=f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"):
            yield


@contextlib.contextmanager
def _inductor(file: Path) -> Iterator[None]:
    """Lets a file that TorchInductor wrote define its kernels, which it would compile and load for the local device."""
    if torch := sys.modules.get("torch"):
        for name in ("_cuda_getCurrentRawStream", "_xpu_getCurrentRawStream"):  # imported by kernels; absent on CPUs
            vars(torch._C).setdefault(name, lambda index: 0)
    if "AsyncCompile" not in file.read_text(encoding="utf-8", errors="replace"):
        yield
        return
    compiling = importlib.import_module("torch._inductor.async_compile")  # what such a file itself imports
    cache = importlib.import_module("torch._inductor.codecache").PyCodeCache
    defined = staticmethod(lambda name, source, *_, **__: getattr(cache.load(source), name))
    with mock.patch.object(compiling.AsyncCompile, "triton", defined):
        yield


def _of_package(file: Path, target: str) -> ModuleType | None:
    """Imports a file as a module of its package; None if it is in none, or another package of that name is in use."""
    above = [parent for parent in file.absolute().parents if (parent / "__init__.py").is_file()]
    names = [*file.absolute().relative_to(above[-1].parent).with_suffix("").parts] if above else [""]
    names = names[:-1] if names[-1] == "__init__" else names
    if not all(part.isidentifier() for part in names):
        return None
    finder = _Finder(names[0], str(above[-1].parent), target)
    if used := sys.modules.get(names[0]):
        ours = getattr(used.__spec__, "loader", None)
        if not isinstance(ours, _Finder) or ours.folder != finder.folder:
            return None
        if ours.target != target:
            for name in _modules_of(names[0]):
                del sys.modules[name]
    path = list(sys.path)
    sys.meta_path.insert(0, finder)
    sys.path += map(str, above)  # where packages of several vendors import their modules from
    try:
        return importlib.import_module(".".join(names))
    except Exception as error:  # often for a name of a package that a statement which failed would define
        failed = [why for name in _modules_of(names[0]) for why in vars(sys.modules[name]).get("__failed__", ())]
        missing = [why for why in (error, *failed) if isinstance(why, ModuleNotFoundError)]
        raise missing[0] if missing else error from error
    finally:
        sys.meta_path.remove(finder)
        sys.path[:] = path


def _modules_of(package: str) -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == package]


class _Finder:
    """Finds the modules of one package, and runs the statements of its `__init__.py` files that do not fail."""

    def __init__(self, package: str, folder: str, target: str) -> None:
        self.package, self.folder, self.target = package, folder, target

    def find_spec(self, name: str, path: Any = None, _: Any = None) -> Any:
        """Returns the spec of a module of the package; None for others."""
        if name.partition(".")[0] != self.package:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, [self.folder] if name == self.package else path)
        if spec and spec.submodule_search_locations and spec.origin:
            spec.loader = self  # type: ignore[assignment]
        return spec

    def create_module(self, _: Any) -> None:
        """Leaves the module to Python."""

    def exec_module(self, package: ModuleType) -> None:
        """Runs the statements of a package's file; those that fail, as where a module is not installed, define nothing."""
        file = str(package.__file__)
        body = ast.parse(Path(file).read_text(encoding="utf-8")).body
        future: list[ast.stmt] = [line for line in body if isinstance(line, ast.ImportFrom) and line.module == "__future__"]
        for statement in body:
            try:
                exec(compile(ast.Module([*future, statement], []), file, "exec"), vars(package))
            except Exception as error:
                vars(package).setdefault("__failed__", []).append(error)


def _is_kernel(value: Any) -> bool:
    layers = value, getattr(value, "fn", None), getattr(value, "__wrapped__", None)
    return any(hasattr(layer, "arg_names") for layer in layers)
