"""Compiles the kernels of a server at startup: `python examples/warm_up_at_start.py`."""

import time

import torch

from portable_softmax import CompileError, NoDeviceError, softmax, warm_up

SHAPES, DTYPES = [(64, 32000), (8, 16, 1024)], [torch.bfloat16]

begun = time.perf_counter()
try:
    plans = warm_up(SHAPES, DTYPES, backward=True)  # contiguous tensors, softmax along the last dim
    print(f"{len(plans)} kernels are ready after {time.perf_counter() - begun:.1f} s")
except NoDeviceError:
    print("no device is present, so nothing is compiled: PyTorch computes on the CPU")

# An image is often built without its device. This writes kernels to Triton's cache (TRITON_CACHE_DIR).
try:
    for planned in warm_up(SHAPES, ["bfloat16"], device="amd/mi300x"):
        print(f"compiled for amd/mi300x: {planned.tiling}")
except CompileError as error:  # in Triton's interpreter
    print(error)

where = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
x = torch.randn(64, 32000, device=where, dtype=torch.bfloat16)
begun = time.perf_counter()
softmax(x)
print(f"the first call takes {1e3 * (time.perf_counter() - begun):.1f} ms")
