"""Compiles at a server's start what its first requests would wait for: `python examples/warm_up_at_start.py`."""

import time

import torch

from portable_softmax import NoDeviceError, softmax, warm_up

SHAPES, DTYPES = [(64, 32000), (8, 16, 1024)], [torch.bfloat16]

begun = time.perf_counter()
try:
    plans = warm_up(SHAPES, DTYPES, backward=True)  # contiguous tensors, softmax along the last dim
    print(f"{len(plans)} kernels are ready after {time.perf_counter() - begun:.1f} s")
except NoDeviceError:
    print("no device is here, so there is nothing to get ready: torch computes on the CPU")

# An image is often built without the device that it runs on. This leaves kernels in Triton's cache (TRITON_CACHE_DIR) for it.
for planned in warm_up(SHAPES, ["bfloat16"], device="amd/mi300x"):
    print(f"compiled for amd/mi300x: {planned.tiling}")

where = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
x = torch.randn(64, 32000, device=where, dtype=torch.bfloat16)
begun = time.perf_counter()
softmax(x)
print(f"the first call takes {1e3 * (time.perf_counter() - begun):.1f} ms")
