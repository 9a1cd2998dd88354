"""The largest block of a kernel that certainly fits a device where only Triton's IR reports the resources."""

from collections.abc import Mapping
from typing import Any

from portable_softmax.devices.device import Device
from portable_softmax.row_kernels.compiling import compiled_for


def smaller_block(kernel: Any, passed: Mapping[str, Any], name: str, block: int, device: Device) -> str:
    """Returns a sentence about the block that fits, where one of `block` elements may not.

    Args:
        kernel: the @triton.jit function with its decorators.
        passed: arguments and options by name, but for the block.
        name: the constexpr that is the block.
        block: elements of the one that may not fit, a power of two.
        device: the target; where that requires a compiler, no block is named.
    """
    import triton

    while block > 1:
        block //= 2
        compiled = compiled_for(kernel, [triton.Config({name: block})], passed, device)[0]
        used = None if isinstance(compiled, BaseException) else device.vendor.resources(compiled)
        if used and used.shared_memory_most is None:
            break
        if used and used.shared_memory_most and used.shared_memory_most <= (device.hardware.shared_memory_per_program_max or 0):
            return f"the largest {name} that certainly fits is {block}"
    return f"give a smaller {name}"
