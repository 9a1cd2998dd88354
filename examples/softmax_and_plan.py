"""Computes a softmax, and plans the same one for devices that are not here: `python examples/softmax_and_plan.py`."""

import torch

from portable_softmax import KernelResources, occupancy, plan, softmax

HERE = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")

# On an accelerator this is one Triton kernel. On the CPU torch computes it.
x = torch.randn(4096, 781, device=HERE)
y = softmax(x, dim=-1)  # any dim, any strides, dtype=, as torch.softmax
print(f"softmax on {HERE}: largest error {(y - torch.softmax(x.double(), -1)).abs().max():.1e}")

# A plan is a compiled kernel, with the reasons for its launch. The device need not be here.
for name in ("nvidia/h200", "amd/mi300x", "ascend/910b3"):
    planned = plan(4096, 781, "bfloat16", name)
    print(f"\n{name}: {planned.tiling}; {planned.num_programs} programs")
    print(planned.occupancy)

# The occupancy of any kernel, by the numbers that its compiler prints. It needs neither torch nor Triton.
resources = KernelResources(num_warps=4, registers_per_thread=66, shared_memory_bytes=16)
print(f"\na kernel of yours on amd/mi100: {occupancy(resources, 'amd/mi100')}")
