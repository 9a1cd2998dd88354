"""One fused softmax kernel on NVIDIA, AMD and Ascend, its launch planned from hardware profiles."""

import importlib
from typing import TYPE_CHECKING, Any

from portable_softmax.backends.base import KernelResources, Occupancy
from portable_softmax.device import Device, current_device
from portable_softmax.errors import (
    CompileError,
    DeviceError,
    DtypeError,
    LayoutError,
    NoDeviceError,
    PlanError,
    PortableSoftmaxError,
    ProfileError,
)
from portable_softmax.inspection import inspect_kernel
from portable_softmax.invariance import batch_invariant, is_batch_invariant, set_batch_invariant
from portable_softmax.launch import occupancy, plan
from portable_softmax.problem import LaunchPlan
from portable_softmax.profiles import profiles

if TYPE_CHECKING:
    from portable_softmax.modules import LogSoftmax, Softmax
    from portable_softmax.ops import log_softmax, softmax, softmin
    from portable_softmax.patch import patch_torch
    from portable_softmax.warmup import warm_up

__all__ = [
    "CompileError",
    "Device",
    "DeviceError",
    "DtypeError",
    "KernelResources",
    "LaunchPlan",
    "LayoutError",
    "LogSoftmax",
    "NoDeviceError",
    "Occupancy",
    "PlanError",
    "PortableSoftmaxError",
    "ProfileError",
    "Softmax",
    "batch_invariant",
    "current_device",
    "inspect_kernel",
    "is_batch_invariant",
    "log_softmax",
    "occupancy",
    "patch_torch",
    "plan",
    "profiles",
    "set_batch_invariant",
    "softmax",
    "softmin",
    "warm_up",
]
__version__ = "0.1.0"


_MODULES = {
    "LogSoftmax": "modules",
    "Softmax": "modules",
    "log_softmax": "ops",
    "patch_torch": "patch",
    "softmax": "ops",
    "softmin": "ops",
    "warm_up": "warmup",
}


def __getattr__(name: str) -> Any:
    """Operators import torch when they are first used: profiles, plans and occupancy do without it."""
    if name in _MODULES:
        return getattr(importlib.import_module(f"portable_softmax.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
