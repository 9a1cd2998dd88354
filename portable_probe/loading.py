"""Imports kernels of other people from their files."""

import contextlib
import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from portable_softmax.devices.detect import interpreting
from portable_softmax.devices.device import Device
from portable_softmax.row_kernels.absent import absent


class UnknownKernelError(ValueError):
    """There is no such file, or no such kernel in it."""


class KernelFile(NamedTuple):
    """A kernel, with its decorators, and the module of its file."""

    kernel: Any
    module: ModuleType


def load_kernel(where: str, device: Device | None = None) -> KernelFile:
    """Imports the kernel that FILE:NAME names.

    Modules beside the file are found, as by `python FILE`. The file itself is a module of a name of its own, imported once for
    each target, as it may choose by what Triton's driver tells.

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
    folder = str(Path(file).absolute().parent)
    target = f"{device.backend}/{device.arch}" if device else ""
    digest = hashlib.sha256(f"{Path(file).resolve()}\n{target}".encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(f"kernel_file_{digest}", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file!r} is no Python file: its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where inspect looks for the kernel's source
    try:
        sys.path.insert(0, folder)
        with absent(device) if device else contextlib.nullcontext():
            spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a script may do anything, and exit
        raise ValueError(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
    finally:  # its folder comes last from now on, for what a kernel imports later
        sys.path[:] = [*(each for each in sys.path if each != folder), folder]
    return module


def _is_kernel(value: Any) -> bool:
    return any(hasattr(each, "arg_names") for each in (value, getattr(value, "fn", None), getattr(value, "__wrapped__", None)))
