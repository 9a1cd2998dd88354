"""Plans for devices without a shipped profile, with profiles of your own: `python examples/new_device.py`.

examples/profiles has a new product, which `extends` a shipped one, and a new architecture, with all of its facts.
"""

import os
from pathlib import Path

os.environ["PORTABLE_SOFTMAX_PROFILES"] = str(Path(__file__).parent / "profiles")

from portable_softmax import Device, limits, plan
from portable_softmax.errors import CompileError

for name in ("nvidia/h100-mig-1g.10gb", "nvidia/jetson-agx-xavier"):
    device = Device.from_profile(name)
    print(f"{name}: {limits(device).multiprocessor_count} multiprocessors, {device.hardware.memory_bandwidth_gb_per_s} GB/s")
    try:
        print(f"  {plan(4096, 32768, 'bfloat16', device).tiling}")
    except CompileError as error:  # an older Triton does not know the architecture
        print(f"  {error}")
