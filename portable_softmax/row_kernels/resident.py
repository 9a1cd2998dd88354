"""The programs of a compiled kernel that a device holds at once: the grid of a kernel whose programs loop over their work."""

import functools
import importlib
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from portable_softmax.devices.backends.base import Occupancy
from portable_softmax.devices.detect import chosen, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError
from portable_softmax.runtime.compiler import target_of

_known: "WeakKeyDictionary[Any, dict[Any, ResidentPrograms]]" = WeakKeyDictionary()


class ResidentPrograms(int):
    """The number of programs that a device holds at once.

    Args:
        count: that number; 0 if no program fits.
        occupancy: programs per multiprocessor, with the limits by resource; blocks, where num_ctas is above 1.
    """

    occupancy: Occupancy | None  # None in the interpreter, which runs one program after another

    def __new__(cls, count: int, occupancy: Occupancy | None = None) -> "ResidentPrograms":
        """Returns the number."""
        made = super().__new__(cls, count)
        made.occupancy = occupancy
        return made

    @property
    def limited_by(self) -> tuple[str, ...]:
        """Returns the resources that limit it, in the vendor's words."""
        return self.occupancy.limited_by if self.occupancy else ()


def resident_programs(kernel: Any, device: Device | str | None = None) -> ResidentPrograms:
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
        An int with `.occupancy` and `.limited_by`; 0 if no program fits. 1 in the interpreter.

    Raises:
        TypeError: the kernel is not compiled.
        DeviceError: it is compiled for another architecture, or there is no device.
        ProfileError: there is no profile of that name.
    """
    if kernel is None and interpreting():
        return ResidentPrograms(1)
    if not hasattr(kernel, "asm") or not hasattr(kernel, "metadata"):
        raise TypeError(
            f"resident_programs requires a compiled kernel, as kernel.warmup(..., grid=(1,)) returns it, not {kernel!r}"
        )
    key = (current_index()(),) if device is None else device  # no index of a caller's
    try:
        return _known[kernel][key]
    except (KeyError, TypeError):  # not counted yet, or no key of a dictionary
        pass
    counted = _counted(kernel, chosen(device))
    _known.setdefault(kernel, {})[key] = counted
    return counted


def _counted(kernel: Any, device: Device) -> ResidentPrograms:
    made_for, target = kernel.metadata.target, target_of(device)
    if (made_for.backend, made_for.arch) != (target.backend, target.arch):
        raise DeviceError(
            f"a kernel compiled for {made_for.backend}/{made_for.arch} was passed for {device!r}, which is "
            f"{target.backend}/{target.arch}; inspect_kernel(..., device=...) compiles it for that one"
        )
    occupancy = device.vendor.occupancy(device.vendor.resources(kernel), device.hardware)
    return ResidentPrograms(device.resident(occupancy) // (getattr(kernel.metadata, "num_ctas", None) or 1), occupancy)


def first_index() -> int:
    """Returns the device's index where there is one."""
    return 0


@functools.cache
def current_index() -> Callable[[], int]:
    """Returns a function that returns the current device: torch's own where there are several."""
    device = chosen(None)
    module = None if interpreting() else getattr(importlib.import_module("torch"), device.vendor.torch_device_type)
    if module is None or module.device_count() == 1:
        return first_index
    index: Callable[[], int] = module.current_device
    return index
