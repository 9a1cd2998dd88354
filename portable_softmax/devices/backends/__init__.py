"""Modules that answer for a vendor, by Triton's name of its backend."""

from collections.abc import Mapping
from types import MappingProxyType

from portable_softmax.devices.backends import cuda, hip, interpreter, npu, xpu
from portable_softmax.devices.backends.base import Backend

broken_installation = npu.overwritten_installation  # what is wrong with the installed Triton, if anything

BACKENDS: Mapping[str, Backend] = MappingProxyType(
    {"cuda": cuda, "hip": hip, "npu": npu, "xpu": xpu, "interpreter": interpreter}  # type: ignore[dict-item]
)
