"""The programs of a compiled kernel that a device holds at once: the grid of a kernel whose programs loop over their work."""

from typing import Any

from portable_softmax.devices.detect import chosen, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError
from portable_softmax.runtime.compiler import target_of


def resident_programs(kernel: Any, device: Device | str | None = None) -> int:
    """Counts the programs of a compiled kernel that a device holds at once, by the exact rule of its vendor.

    ```python
    compiled = kernel.warmup(y, x, n_rows, n_cols, BLOCK=1024, num_warps=4, grid=(1,))
    kernel[(min(n_rows, resident_programs(compiled)),)](y, x, n_rows, n_cols, BLOCK=1024, num_warps=4)
    ```

    Args:
        kernel: Triton's CompiledKernel, which `kernel.warmup(...)` and a launch return, and which is `launch.compiled` of
            `inspect_kernel`. In the interpreter None, as `warmup` returns there.
        device: the current one if None; `Device.from_profile`, or just the name, gives one that is not here.

    Returns:
        Their number; 0 if no program fits, 1 in the interpreter. `inspect_kernel(...).occupancy` has the reasons.

    Raises:
        TypeError: the kernel is not compiled.
        DeviceError: it is compiled for another architecture, or there is no device.
        ProfileError: there is no profile of that name.
    """
    if kernel is None and interpreting():
        return 1
    if not hasattr(kernel, "asm") or not hasattr(kernel, "metadata"):
        raise TypeError(
            f"resident_programs requires a compiled kernel, as kernel.warmup(..., grid=(1,)) returns it, not {kernel!r}"
        )
    device = chosen(device)
    made_for, target = kernel.metadata.target, target_of(device)
    if (made_for.backend, made_for.arch) != (target.backend, target.arch):
        raise DeviceError(
            f"a kernel compiled for {made_for.backend}/{made_for.arch} was passed for {device!r}, which is "
            f"{target.backend}/{target.arch}; inspect_kernel(..., device=...) compiles it for that one"
        )
    occupancy = device.vendor.occupancy(device.vendor.resources(kernel), device.hardware)
    return device.resident(occupancy) // (getattr(kernel.metadata, "num_ctas", None) or 1)
