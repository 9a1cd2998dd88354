"""One module for each vendor, by Triton's name of its backend."""

import contextlib
import importlib.metadata
from collections.abc import Mapping

from portable_softmax.devices.backends.base import Backend
from portable_softmax.devices.backends.cuda import Cuda
from portable_softmax.devices.backends.hip import Hip
from portable_softmax.devices.backends.interpreter import Interpreter
from portable_softmax.devices.backends.npu import Npu
from portable_softmax.devices.backends.xpu import Xpu

BACKENDS: Mapping[str, Backend] = {"cuda": Cuda(), "hip": Hip(), "npu": Npu(), "xpu": Xpu(), "interpreter": Interpreter()}


def broken_installation() -> str | None:
    """Returns an error message if the installed `triton` is not the one that a vendor's package requires; else None.

    A vendor's package replaces files of `triton`. From 3.2.1 on, triton-ascend requires the release that it replaces, so that
    pip installs both; any other release overwrites the vendor's files, or was overwritten.
    Source: triton-ascend's FAQ; triton-lang/triton-ascend issues 306 and 395.
    """
    for name in ("triton-ascend", "triton-xpu", "pytorch-triton-xpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            stock, other = importlib.metadata.version("triton"), importlib.metadata.version(name)
            from packaging.requirements import Requirement  # takes 20 ms, where two packages have files of `triton`

            every = map(Requirement, importlib.metadata.requires(name) or ())
            named = [one for one in every if one.name.lower() == "triton"]
            required = [one for one in named if not one.marker or one.marker.evaluate({"extra": ""})]
            if required and all(one.specifier.contains(stock, prereleases=True) for one in required):
                continue
            needs = " and ".join(map(str, required)) or "no triton"
            both = f"triton {stock} and {name} {other} are both installed, with the same files, and {name} requires {needs}"
            return f"{both}: pip uninstall triton {name}, then install the one for this machine"
    return None
