"""Computes a softmax, and plans its launch on devices that are not present: `python examples/softmax_and_plan.py`."""

import torch

from portable_softmax import CompileError, KernelResources, occupancy, plan, softmax

HERE = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")

# One Triton kernel on an accelerator; PyTorch operators on a CPU.
x = torch.randn(4096, 781, device=HERE)
y = softmax(x, dim=-1)  # any dim, any strides, dtype=, as torch.softmax
print(f"softmax on {HERE}: largest error {(y - torch.softmax(x.double(), -1)).abs().max():.1e}")

# A plan is a compiled kernel and the reasons for its launch. The device need not be present.
for name in ("nvidia/h200", "amd/mi300x", "ascend/910b3"):
    try:
        planned = plan(4096, 781, "bfloat16", name)
    except CompileError as error:  # in Triton's interpreter
        print(f"\n{name}: {error}")
        continue
    print(f"\n{name}: {planned.tiling}; {planned.num_programs} programs")
    print(planned.occupancy)

# The occupancy of any kernel, from the resources that its compiler reports. Requires neither torch nor Triton.
resources = KernelResources(num_warps=4, registers_per_thread=66, shared_memory_bytes=16)
print(f"\nanother kernel on amd/mi100: {occupancy(resources, 'amd/mi100')}")
