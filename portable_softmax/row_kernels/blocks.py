"""The largest block of a kernel that certainly fits a device for which Triton's IR alone tells what it takes."""

from collections.abc import Mapping
from typing import Any

from portable_softmax.devices.device import Device
from portable_softmax.row_kernels.compiling import compiled_for


def smaller_block(kernel: Any, given: Mapping[str, Any], name: str, block: int, device: Device) -> str:
    """Says which block fits, where one of `block` elements may not.

    Args:
        kernel: the @triton.jit function with its decorators.
        given: arguments and options by name, but for the block.
        name: the constexpr that is the block.
        block: elements of the one that may not fit, a power of two.
        device: the target; where a compiler is needed to tell, no block is named.
    """
    import triton

    while block > 1:
        block //= 2
        compiled = compiled_for(kernel, [triton.Config({name: block})], given, device)[0]
        used = None if isinstance(compiled, BaseException) else device.vendor.resources(compiled)
        if used and used.shared_memory_most is None:
            break
        if used and used.shared_memory_most and used.shared_memory_most <= (device.hardware.shared_memory_per_program_max or 0):
            return f"the largest {name} that certainly fits is {block}"
    return f"give a smaller {name}"
