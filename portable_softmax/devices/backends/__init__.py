"""One module for each vendor, by Triton's name of its backend."""

import contextlib
import importlib.metadata
from collections.abc import Mapping
from types import MappingProxyType

from portable_softmax.devices.backends.base import Backend
from portable_softmax.devices.backends.cuda import Cuda
from portable_softmax.devices.backends.hip import Hip
from portable_softmax.devices.backends.interpreter import Interpreter
from portable_softmax.devices.backends.npu import Npu
from portable_softmax.devices.backends.xpu import Xpu

BACKENDS: Mapping[str, Backend] = MappingProxyType(
    {"cuda": Cuda(), "hip": Hip(), "npu": Npu(), "xpu": Xpu(), "interpreter": Interpreter()}
)

VENDORS_TRITONS = "triton-ascend", "triton-xpu", "pytorch-triton-xpu"  # each of them is a package `triton`


def broken_installation() -> str | None:
    """Returns a complaint if stock triton and a vendor's triton are both installed, because they share files; else None.

    Source: triton-ascend's FAQ; triton-lang/triton-ascend issues 306 and 395.
    """
    for name in VENDORS_TRITONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions = importlib.metadata.version("triton"), importlib.metadata.version(name)
            return (
                f"triton {versions[0]} and {name} {versions[1]} are both installed, and each overwrites the other's files: "
                f"pip uninstall triton {name}, then install the one for this machine"
            )
    return None
