"""Limits for other projects: those of the profile."""

import subprocess
import sys

from portable_softmax import limits, profiles

# Numbers that jax reads from an H100: public target configurations.
H100 = {
    "threads_per_program": 1024,
    "warp_size": 32,
    "shared_memory_per_multiprocessor": 233472,
    "warps_per_multiprocessor": 2048 // 32,
    "multiprocessors": 132,
    "l2_cache": 52428800,
    "shared_memory_per_program": 232448,
    "registers_per_multiprocessor": 65536,
}


def test_they_are_those_of_a_machine():
    assert {name: getattr(limits("nvidia/h100-sxm"), name) for name in H100} == H100
    assert limits("amd/mi300x").memory_bandwidth == 5_300_000_000_000


def test_every_profile_has_limits():
    for name in profiles():
        found = limits(name)
        assert found.name == name
        assert found.warps_per_program is None or found.warps_per_program * found.warp_size == found.threads_per_program


def test_neither_torch_nor_triton_is_needed():
    code = "import sys; sys.modules.update(torch=None, triton=None); import portable_softmax; "
    code += "print(portable_softmax.limits('amd/mi300x').warps_per_multiprocessor)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "32\n"
