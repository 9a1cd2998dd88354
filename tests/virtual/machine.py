"""The virtual machine: one NPU for every Ascend profile, with the fields of torch_npu 2.13 that have values."""

from machine import Machine

from portable_softmax.devices.profiles import profiles

CORES = {profile.arch: profile.hardware.multiprocessor_count for profile in profiles().values() if profile.backend == "npu"}
MEMORY = {"total_memory": 2**36, "L2_cache_size": 192 * 2**20}
MACHINE = Machine(
    "npu",
    {arch: {"name": arch, "vector_core_num": cores, "cube_core_num": cores // 2, **MEMORY} for arch, cores in CORES.items()},
)
