"""Launches by NVIDIA's driver API. They are faster than Triton's launcher, which asks the driver about each pointer.

Source of names, numbers and structures: CUDA Driver API, cuda.h of CUDA 12.4 and later.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

from portable_softmax.devices.backends.base import DirectLaunch
from portable_softmax.errors import DeviceError

INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
CELL = 8  # bytes of memory for each argument; the driver reads the lower half for an i32
SIZES = {"i32": 4}  # bytes of a parameter, if not 8


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("n_attributes", ctypes.c_uint),
    )


STREAM_CELL = LaunchConfig.stream.offset // CELL


def direct_launch(compiled: Any, kinds: Sequence[str], grid: tuple[int, int, int], sizes: Sequence[int]) -> DirectLaunch | None:
    """Prepares the launch of a kernel that needs nothing but arguments; returns None for all others. See Backend."""
    metadata = compiled.metadata
    special = ("launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size")
    if metadata.num_ctas > 1 or any(getattr(metadata, name, 0) for name in special):
        return None
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    parameters = _sizes_of_parameters(cuda, compiled.function)
    expected = [SIZES.get(kind, CELL) for kind in kinds]
    unused = parameters[len(expected) :]  # null pointers, which Triton passes in place of scratch memory
    if parameters[: len(expected)] != expected or any(size != CELL for size in unused):
        return None
    return _prepare(cuda, compiled, kinds, grid, sizes, len(parameters))


def _sizes_of_parameters(cuda: Any, function: int) -> list[int]:
    """Asks the driver for the bytes of each parameter of a kernel; the list is empty if the driver is older than CUDA 12.4."""
    sizes: list[int] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    if not hasattr(cuda, "cuFuncGetParamInfo"):
        return sizes
    told = ctypes.byref(offset), ctypes.byref(size)
    while not cuda.cuFuncGetParamInfo(ctypes.c_void_p(function), ctypes.c_size_t(len(sizes)), *told):
        sizes.append(size.value)
    return sizes


# Memory for the arguments and the configuration of one launch, as 64-bit integers, and the call that reads them.
Slot = tuple["ctypes.Array[ctypes.c_int64]", "ctypes.Array[ctypes.c_int64]", tuple[Any, ...]]


def _prepare(
    cuda: Any, compiled: Any, kinds: Sequence[str], grid: tuple[int, int, int], sizes: Sequence[int], n_parameters: int
) -> DirectLaunch:
    n_operands = next(cell for cell, kind in enumerate(kinds) if not kind.startswith("*"))
    is_shared = n_operands + len(sizes) < len(kinds)
    more_pointers = tuple(enumerate(cell for cell, kind in enumerate(kinds) if kind.startswith("*")))[2:]
    number_cell = len(kinds) - 1
    submit = cuda.cuLaunchKernelEx
    slots: list[Slot] = []  # slots that no launch uses now; each launch takes its own, so threads need no lock

    def new_slot() -> Slot:
        cells = (ctypes.c_int64 * n_parameters)(*[0] * n_operands, *sizes)
        start, end = ctypes.addressof(cells), ctypes.addressof(cells) + ctypes.sizeof(cells)
        parameters = (ctypes.c_void_p * n_parameters)(*range(start, end, CELL))
        config = LaunchConfig(*grid, 32 * compiled.metadata.num_warps, 1, 1, compiled.metadata.shared)
        call = ctypes.byref(config), ctypes.c_void_p(compiled.function), parameters, None
        return cells, (ctypes.c_int64 * (ctypes.sizeof(config) // CELL)).from_buffer(config), call

    def launch(stream: int, operands: Sequence[Any]) -> None:  # no loop over two operands, because it runs in every call
        try:
            slot = slots.pop()
        except IndexError:
            slot = new_slot()
        cells, config, call = slot
        cells[0] = operands[0].data_ptr()
        cells[1] = operands[1].data_ptr()
        for at, cell in more_pointers:
            cells[cell] = operands[at].data_ptr()
        if is_shared:
            cells[number_cell] = operands[-1]
        config[STREAM_CELL] = stream
        if error := submit(*call):
            error = _submit_again(cuda, error, call)
        slots.append(slot)
        if error:
            _check(cuda, error)

    return launch


def _submit_again(cuda: Any, error: int, call: tuple[Any, ...]) -> int:
    """Launches once more if this thread has not used the device yet; returns the error that is left, or 0."""
    if error != INVALID_CONTEXT:
        return error
    _enter_primary_context(cuda)
    again: int = cuda.cuLaunchKernelEx(*call)
    return again


def _enter_primary_context(cuda: Any) -> None:
    """Makes the context that torch uses on the current device the context of this thread."""
    import torch

    device, context = ctypes.c_int(), ctypes.c_void_p()
    _check(cuda, cuda.cuDeviceGet(ctypes.byref(device), torch.cuda.current_device()))
    _check(cuda, cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _check(cuda, cuda.cuCtxSetCurrent(context))


def _check(cuda: Any, error: int) -> None:
    """Raises a DeviceError in the driver's words unless `error` is 0."""
    if error:
        words = ctypes.c_char_p()
        cuda.cuGetErrorString(error, ctypes.byref(words))
        told = words.value.decode() if words.value else "an error without a name"
        raise DeviceError(f"NVIDIA's driver refused a launch: {told} ({error}); the error may be from an earlier launch")
