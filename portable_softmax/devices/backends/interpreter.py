"""Triton's interpreter (TRITON_INTERPRET=1): the kernel's own text on the CPU, one program after another."""

from collections.abc import Mapping
from typing import Any

from portable_softmax.devices.backends import base
from portable_softmax.devices.backends.base import Detected, KernelResources, Occupancy
from portable_softmax.devices.schema import Hardware

torch_device_type = "cpu"
dtypes = tuple(base.DTYPE_BYTES)
required = ("multiprocessor_count",)
aligned_access = False  # it takes rows one by one then; tests run that way of the kernel by itself
poll = "volatile"
setup = ""


def describe(index: int, arch: int | str, properties: Mapping[str, Any]) -> Detected:
    return Detected(name="interpreter", arch=arch, driver={}, torch={})


def compile_options(num_warps: int | None, num_stages: int | None, max_registers: int | None) -> dict[str, Any]:
    return {}


def model(n_lines: int, length: int, in_bytes: tuple[int, ...], out_bytes: int, hardware: Hardware) -> KernelResources:
    """The interpreter has no limits to run into."""
    return KernelResources()


def resources(compiled: Any) -> KernelResources:
    return KernelResources()


def occupancy(resources: KernelResources, hardware: Hardware) -> Occupancy:
    return Occupancy(1, {"programs": 1})
