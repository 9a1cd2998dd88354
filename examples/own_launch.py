"""Launches a kernel of one's own by what was inspected: as many programs as the device holds at once, of the best warps.

`python examples/own_launch.py` plans it for devices that are not here, and launches it on the one that is; without one,
`TRITON_INTERPRET=1 python examples/own_launch.py`. A server asks at its start, in `fit`, and launches later: while
inspect_kernel compiles, which is about a second for a new kernel and some milliseconds for a known one, Triton's driver is
another one for all threads of the process, and no thread may launch.
"""

import functools

import torch
import triton
import triton.language as tl

from portable_probe import inspect_kernel
from portable_softmax import Device, NoDeviceError, current_device

BLOCK = 1024


@triton.jit
def rms_norm_kernel(x, w, y, n_rows, n_cols, eps, BLOCK: tl.constexpr):
    """Scales each row to a root mean square of 1, and by w; a program takes every num_programs-th row."""
    at = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            part = tl.load(x + row * n_cols + start + at, mask=start + at < n_cols, other=0.0).to(tl.float32)
            total += part * part
        scale = 1 / tl.sqrt(tl.sum(total, 0) / n_cols + eps)
        for start in range(0, n_cols, BLOCK):
            seen = start + at < n_cols
            part = tl.load(x + row * n_cols + start + at, mask=seen).to(tl.float32)
            weight = tl.load(w + start + at, mask=seen).to(tl.float32)
            tl.store(y + row * n_cols + start + at, part * scale * weight, mask=seen)


@functools.cache
def fit(n_rows: int, n_cols: int, dtype: str, device: Device) -> tuple[int, int]:
    """Returns (num_programs, num_warps): of what spills nothing the most warps at once, and of these the fewest a program."""
    if device.backend == "interpreter":
        return 1, 4  # it compiles nothing, and runs one program after another
    matrix, row = f"{dtype}[{n_rows},{n_cols}]", f"{dtype}[{n_cols}]"
    arguments = {"x": matrix, "w": row, "y": matrix, "n_rows": n_rows, "n_cols": n_cols, "eps": 1e-6, "BLOCK": BLOCK}

    def rank(num_warps: int) -> tuple[bool, int, int]:
        found = inspect_kernel(rms_norm_kernel, arguments, device=device, num_warps=num_warps)
        return found.resources.spilled_bytes_per_thread == 0, found.occupancy.warps_per_multiprocessor or 0, -num_warps

    best = max((1, 2, 4, 8), key=rank)
    occupancy = inspect_kernel(rms_norm_kernel, arguments, device=device, num_warps=best).occupancy
    return min(n_rows, device.resident(occupancy)), best


def rms_norm(x: torch.Tensor, w: torch.Tensor, device: Device) -> torch.Tensor:
    """Launches the kernel on tensors of the device."""
    n_rows, n_cols = x.shape
    num_programs, num_warps = fit(n_rows, n_cols, str(x.dtype).removeprefix("torch."), device)
    y = torch.empty_like(x)
    rms_norm_kernel[(num_programs,)](x, w, y, n_rows, n_cols, 1e-6, BLOCK=BLOCK, num_warps=num_warps)
    return y


def main() -> None:
    """Prints launches for devices that are not here, and launches on the one that is."""
    try:
        device = current_device()
    except NoDeviceError as error:
        device = None
        print(f"nothing is launched: {error}")
    if device is None or device.backend != "interpreter":  # which compiles nothing
        for name in ("nvidia/h200", "amd/mi300x", "amd/rx-7900-xtx"):
            programs, warps = fit(16384, 4096, "float16", Device.from_profile(name))
            print(f"{name:16} {programs} programs of {warps} warps")
    if device is not None:
        where = device.vendor.torch_device_type
        x, w = torch.randn(64, 3000, device=where), torch.randn(3000, device=where)
        expected = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
        torch.testing.assert_close(rms_norm(x, w, device), expected)
        print(f"right on {device.name}, by {fit(64, 3000, 'float32', device)[0]} programs")


if __name__ == "__main__":
    main()
