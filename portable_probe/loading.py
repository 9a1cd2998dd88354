"""Imports kernels of other people from their files."""

import contextlib
import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from portable_probe.absent import absent
from portable_softmax.devices.detect import interpreting
from portable_softmax.devices.device import Device


class UnknownKernelError(ValueError):
    """There is no such file, or no such kernel in it."""


class KernelFile(NamedTuple):
    """A kernel, with its decorators, and the module of its file."""

    kernel: Any
    module: ModuleType


def load_kernel(where: str, device: Device | None = None) -> KernelFile:
    """Imports the kernel that FILE:NAME names.

    Modules beside the file are found, as by `python FILE`. The file itself is a module of a name of its own, so json.py is
    nobody's json. It is imported once for each target, as it may choose by what Triton's driver tells.

    Args:
        where: FILE:NAME.
        device: what Triton's driver tells of while the file is imported, if it is not here; None for the device here.

    Raises:
        UnknownKernelError: the file is not there, or has no kernel of that name.
        ValueError: it cannot be imported.
    """
    file, _, name = where.rpartition(":")
    if not Path(file).is_file():
        raise UnknownKernelError(f"{where!r} should be FILE:NAME, and {file!r} is no file")
    not_here = device if device and device.index is None and not interpreting() else None
    module = _imported(file, not_here)
    kernel = getattr(module, name, None)
    if not _is_kernel(kernel):
        known = [each for each, value in vars(module).items() if _is_kernel(value)]
        raise UnknownKernelError(f"{file} has no @triton.jit function {name!r}; it has {', '.join(known) or 'none'}")
    return KernelFile(kernel, module)


def _imported(file: str, device: Device | None) -> ModuleType:
    target = f"{device.backend}/{device.arch}" if device else ""
    digest = hashlib.sha256(f"{Path(file).resolve()}\n{target}".encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(f"kernel_file_{digest}", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file!r} is no Python file: its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where inspect looks for the kernel's source
    try:
        with absent(device) if device else contextlib.nullcontext(), _beside(Path(file).absolute()):
            spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a script may do anything, and exit
        raise ValueError(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _is_kernel(value: Any) -> bool:
    return any(hasattr(each, "arg_names") for each in (value, getattr(value, "fn", None), getattr(value, "__wrapped__", None)))


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
