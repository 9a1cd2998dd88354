"""Fused Triton softmax, token log-probabilities and sampling for PyTorch; launches are computed from hardware profiles."""

import importlib
from typing import TYPE_CHECKING, Any

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.detect import current_device, how_to_install, limits
from portable_softmax.devices.device import Device
from portable_softmax.devices.profiles import profiles
from portable_softmax.errors import (
    CompileError,
    DeviceError,
    DtypeError,
    GridError,
    LayoutError,
    NoDeviceError,
    PlanError,
    PortableSoftmaxError,
    ProfileError,
    TargetError,
)
from portable_softmax.invariance import batch_invariant, is_batch_invariant, set_batch_invariant
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.runtime.plans import occupancy, plan, warm_up

if TYPE_CHECKING:
    from portable_softmax.api.explain import explain
    from portable_softmax.api.functional import LogSoftmax, Softmax, log_softmax, softmax, softmin
    from portable_softmax.api.linear_log_probs import linear_token_log_probs
    from portable_softmax.api.override import override_aten
    from portable_softmax.api.tokens import sample_token, token_log_probs
    from portable_softmax.row_kernels.inspection import fits, inspect_kernel, resident_programs
    from portable_softmax.row_kernels.launcher import launcher, persistent

__all__ = [
    "CompileError", "Device", "DeviceError", "DtypeError", "GridError", "KernelResources", "LaunchPlan", "LayoutError",
    "LogSoftmax", "NoDeviceError", "Occupancy", "PlanError", "PortableSoftmaxError", "ProfileError", "Softmax", "TargetError",
    "batch_invariant", "current_device", "explain", "fits", "inspect_kernel", "is_batch_invariant", "launcher", "limits",
    "linear_token_log_probs", "log_softmax", "occupancy", "override_aten", "persistent", "plan", "profiles",
    "resident_programs", "sample_token", "set_batch_invariant", "softmax", "softmin", "token_log_probs", "warm_up",
]  # fmt: skip
__version__ = "0.9.0"

_LAZY = {
    "api.explain": ("explain",), "api.functional": ("LogSoftmax", "Softmax", "log_softmax", "softmax", "softmin"),
    "api.linear_log_probs": ("linear_token_log_probs",), "api.override": ("override_aten",),
    "api.tokens": ("sample_token", "token_log_probs"),
    "row_kernels.inspection": ("fits", "inspect_kernel", "resident_programs"),
    "row_kernels.launcher": ("launcher", "persistent"),
}  # fmt: skip
_MODULES = {name: module for module, names in _LAZY.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports an operator on first use, and keeps it: profiles, plans and occupancy work without torch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"portable_softmax.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        if hint := how_to_install(error):
            raise ImportError(f"portable_softmax.{name} requires {error.name}{hint}", name=error.name) from None
        raise
    return globals().setdefault(name, getattr(module, name))


def __dir__() -> list[str]:
    """Lists the public names, also those that are imported on first use."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
