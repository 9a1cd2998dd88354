"""Describes what a benchmark runs on."""

import datetime
import importlib.metadata
import subprocess
from pathlib import Path
from typing import Any

import torch

import portable_softmax

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = {"liger": "liger-kernel", "quack": "quack-kernels"}


def here() -> dict[str, Any]:
    """Returns the first columns of a result: device, driver, versions, commit of the package that is imported, and day."""
    folder = Path(portable_softmax.__file__).parent
    return {
        "device": _device(),
        "driver": _driver(),
        "triton": _version("triton"),
        "torch": torch.__version__,
        "commit": _output("git", "-C", str(folder), "describe", "--always", "--dirty"),
        "date": str(datetime.date.today()),
    }


def version_of(provider: str) -> str:
    """Returns the release of a peer; "" of what is no package of its own."""
    return _version(DISTRIBUTIONS[provider]) if provider in DISTRIBUTIONS else ""


def _device() -> str:
    module = torch.get_device_module()
    return str(module.get_device_name()) if hasattr(module, "get_device_name") else "cpu"


def _driver() -> str:
    """Returns the driver's version from the vendor's tool; "" without one."""
    version = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return (version or torch.version.hip or "").partition("\n")[0]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
