"""One fused softmax kernel on NVIDIA, AMD and Ascend, its launch planned from hardware profiles."""

from typing import TYPE_CHECKING, Any

from portable_softmax.backends.base import KernelResources, Occupancy
from portable_softmax.device import Device, current_device
from portable_softmax.errors import (
    CompileError,
    DeviceError,
    DtypeError,
    NoDeviceError,
    PlanError,
    PortableSoftmaxError,
    ProfileError,
)
from portable_softmax.inspection import inspect_kernel
from portable_softmax.launch import occupancy, plan
from portable_softmax.planner import LaunchPlan
from portable_softmax.profiles import profiles

if TYPE_CHECKING:
    from portable_softmax.ops import softmax

__all__ = [
    "CompileError",
    "Device",
    "DeviceError",
    "DtypeError",
    "KernelResources",
    "LaunchPlan",
    "NoDeviceError",
    "Occupancy",
    "PlanError",
    "PortableSoftmaxError",
    "ProfileError",
    "current_device",
    "inspect_kernel",
    "occupancy",
    "plan",
    "profiles",
    "softmax",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Operators import torch when they are first used: profiles, plans and occupancy do without it."""
    if name == "softmax":
        from portable_softmax.ops import softmax

        return softmax
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
