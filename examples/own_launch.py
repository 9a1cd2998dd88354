"""Launches a kernel of one's own on any vendor's device: of the warps that fit it best, as many programs as it holds at once.

`python examples/own_launch.py` plans it for devices that are not here, and launches it on the one that is; without one,
`TRITON_INTERPRET=1 python examples/own_launch.py`. While a kernel is compiled for a device that is not here, Triton's driver
is another one for all threads of the process, and no thread may launch.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from portable_softmax import NoDeviceError, current_device, fits, inspect_kernel, resident_programs

BLOCK = 1024
CONFIGS = [triton.Config({"BLOCK": BLOCK}, num_warps=warps) for warps in (1, 2, 4, 8)]


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


def configured(arguments: dict[str, Any], device: str | None = None) -> dict[str, Any]:
    """Returns BLOCK and the options of what spills nothing and keeps most warps resident; a server does it at its start."""
    best, *_ = fits.with_(kernel=rms_norm_kernel, device=device, ranked=True)(CONFIGS, arguments)
    chosen: dict[str, Any] = best.all_kwargs()
    return chosen


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Launches the kernel on tensors of the device that is here, by as many programs as it holds at once."""
    y = torch.empty_like(x)
    arguments = {"x": x, "w": w, "y": y, "n_rows": x.shape[0], "n_cols": x.shape[1], "eps": 1e-6}
    chosen = configured(arguments)
    compiled = rms_norm_kernel.warmup(**arguments, **chosen, grid=(1,))
    rms_norm_kernel[(min(x.shape[0], resident_programs(compiled)),)](**arguments, **chosen)
    return y


def planned(device: str) -> tuple[int, int]:
    """Returns (programs, warps of each) for a device that is not here."""
    tensors = {"x": "f16[16384,4096]", "w": "f16[4096]", "y": "f16[16384,4096]"}
    arguments = {**tensors, "n_rows": 16384, "n_cols": 4096, "eps": 1e-6}
    chosen = configured(arguments, device)
    compiled = inspect_kernel(rms_norm_kernel, {**arguments, "BLOCK": BLOCK}, device=device, num_warps=chosen["num_warps"])
    return min(16384, resident_programs(compiled.launch.compiled, device)), chosen["num_warps"]


def main() -> None:
    """Prints launches for devices that are not here, and launches on the one that is."""
    try:
        device = current_device()
    except NoDeviceError as error:
        device = None
        print(f"nothing is launched: {error}")
    if device is None or device.backend != "interpreter":  # which compiles nothing
        for name in ("nvidia/h200", "amd/mi300x", "amd/rx-7900-xtx"):
            programs, warps = planned(name)
            print(f"{name:16} {programs} programs of {warps} warps")
    if device is not None:
        where = device.vendor.torch_device_type
        x, w = torch.randn(64, 3000, device=where), torch.randn(3000, device=where)
        expected = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
        torch.testing.assert_close(rms_norm(x, w), expected)
        print(f"right on {device.name}")


if __name__ == "__main__":
    main()
