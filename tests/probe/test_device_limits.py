"""Limits for other projects: those of the profile, and fields that XLA and torch have."""

import json
import re
import subprocess
import sys

import pytest

from portable_softmax import Device, limits, profiles
from portable_softmax.probe import program
from portable_softmax.probe.limits import torch_properties, xla_target

# Numbers that jax reads from an H100: public target configurations of the field's own definition. The bandwidth is the clock's.
H100 = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_core": 233472,
    "threads_per_core_limit": 2048,
    "core_count": 132,
    "l2_cache_size": 52428800,
    "shared_memory_per_block_optin": 232448,
    "registers_per_core_limit": 65536,
}


def fields(text):
    return {name: int(value) for name, value in re.findall(r"^  (\w+): (\d+)$", text, re.MULTILINE)}


def test_xlas_fields_are_those_of_a_machine():
    found = fields(xla_target("nvidia/h100-sxm"))
    assert {name: found[name] for name in H100} == H100
    assert found["memory_bandwidth"] == pytest.approx(3352320000000, rel=0.01)
    assert "cuda_compute_capability { major: 9 minor: 0 }" in xla_target("nvidia/h100-sxm")
    text = xla_target("amd/mi300x")
    assert fields(text)["memory_bandwidth"] == 5_300_000_000_000
    assert 'rocm_compute_capability { gcn_arch_name: "gfx942" }' in text
    assert 'platform_name: "ROCM"' in text
    with pytest.raises(ValueError, match="ascend/910b3 is npu"):
        xla_target("ascend/910b3")


@pytest.mark.parametrize("profile", ["nvidia/h200", "amd/rx-7900-xtx", "intel/max-1550"])
def test_torch_takes_the_fields(profile):
    hints = pytest.importorskip("torch._inductor.runtime.hints")
    found = hints.DeviceProperties(**torch_properties(profile))
    hardware = Device.from_profile(profile).hardware
    assert (found.multi_processor_count, found.warp_size) == (hardware.multiprocessor_count, hardware.warp_size)
    assert found.max_threads_per_multi_processor == hardware.warp_size * hardware.max_warps_per_multiprocessor


def test_every_profile_has_limits():
    for name in profiles():
        found = limits(name)
        assert found.name == name
        assert found.warps_per_program is None or found.warps_per_program * found.warp_size == found.threads_per_program


def test_neither_torch_nor_triton_is_needed():
    code = "import sys; sys.modules.update(torch=None, triton=None); import portable_softmax; "
    code += "print(portable_softmax.limits('amd/mi300x').warps_per_multiprocessor)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "32\n"


def test_the_program_shows_them(capsys):
    assert program.main(["profiles", "show", "nvidia/h200", "--as", "limits"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["multiprocessors"], told["programs_y"], told["threads"], told["tensor_memory_columns"]) == (
        132,
        65535,
        None,
        None,
    )
    assert program.main(["profiles", "show", "amd/mi300x", "--as", "limits"]) == 0
    assert json.loads(capsys.readouterr().out)["threads"] == 2**32 - 1
    assert program.main(["profiles", "show", "nvidia/h200", "--as", "xla"]) == 0
    assert "core_count: 132" in capsys.readouterr().out
    assert program.main(["profiles", "show", "ascend/910b3", "--as", "xla"]) == 1
