"""Inspects any Triton kernel: what it uses and how many of its programs fit a multiprocessor, on devices here or not."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.detect import chosen
from portable_softmax.devices.device import Device
from portable_softmax.row_kernels.arguments import Argument
from portable_softmax.row_kernels.launched import Launched, by_position, launched


class Inspected(NamedTuple):
    """Resources of one program, programs per multiprocessor with their limits, and the launch that Triton makes."""

    resources: KernelResources
    occupancy: Occupancy
    launch: Launched

    def __str__(self) -> str:
        """Gives the launch, what a program uses, and how many fit, in short lines."""
        return f"{self.launch}\nuses {self.resources}\n{self.occupancy}"


def inspect_kernel(
    kernel: Any,
    arguments: Mapping[str, Any] | Sequence[Any],
    constexprs: Mapping[str, Any] | None = None,
    *,
    config: int | None = None,
    device: Device | str | None = None,
    **options: Any,
) -> Inspected:
    """Compiles what `kernel[grid](...)` launches, and counts how many of its programs fit a multiprocessor.

    Args:
        kernel: the @triton.jit function, with its decorators.
        arguments: those of the kernel, by position or by name: tensors, which may be of torch's device "meta", numbers, or text
            such as "f16[4096,4096]", "*fp16:16", "i32" and "4096", which docs/probe.md describes.
        constexprs: values of constexprs, by name, which may as well stand among the arguments.
        config: number of one of the configurations of @triton.autotune.
        device: the current one if None; `Device.from_profile`, or just the name, gives one that is not here.
        options: of Triton's backend, such as num_warps, num_stages, maxnreg or waves_per_eu; None leaves one to Triton.

    Raises:
        CompileError: the kernel does not compile, in the compiler's own words; or an argument is no such text.
        TypeError: a parameter is missing or unknown, or the device is not one.
        ProfileError: there is no profile of that name.
        ValueError: the kernel is under @triton.autotune with several configurations and none was chosen.
    """
    device = chosen(device)
    if not isinstance(arguments, Mapping):
        arguments = by_position(kernel, arguments)
    values = {name: Argument(value) for name, value in (constexprs or {}).items()}
    launch = launched(kernel, {**arguments, **values}, options, device, config)
    resources = device.vendor.resources(launch.compiled)
    return Inspected(resources, device.vendor.occupancy(resources, device.hardware), launch)
