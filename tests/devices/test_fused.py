"""Products and sums are fused because it is asked for, whatever Triton does by default: in NVIDIA's and AMD's code."""

import re

import pytest
from offline import read_problem

from portable_softmax import Device
from portable_softmax.planning.plan import Tiling
from portable_softmax.runtime import compiler
from portable_softmax.runtime.kernel_form import constexprs_of, kernel_of, signature_of
from portable_softmax.runtime.specialization import KernelSpec

FUSED = {"nvidia/h200": ("ptx", r"\bfma\.rn\.f32"), "amd/mi300x": ("amdgcn", r"\bv_(?:pk_)?fmac?_f32")}
CASES = {  # gradients whose products and sums are not all written as fused ones
    "shared": (Tiling(1, 256, 1, None, 3), "log_softmax"),
    "online": (Tiling(1, 256, 1, held=False), "log_softmax"),
    "tile": (Tiling(1, 1024, 4), "softmax"),
}


def count(profile, tiling, form, options=lambda named: named):
    """Fused operations in the machine code of a gradient, with the options that `options` makes of the backend's."""
    device = Device.from_profile(profile)
    made = device.vendor.compile_options(tiling.num_warps, tiling.num_stages, None, device.hardware)
    spec = KernelSpec.of(read_problem(64, 704, "float32", device, form, True), tiling)
    stage, pattern = FUSED[profile]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device.vendor, "compile_options", lambda *_: options(made))
        compiled = compiler.compile_for(device, kernel_of(spec), signature_of(spec), constexprs_of(spec, device), 1, 1)
    return len(re.findall(pattern, compiled.asm[stage]))


@pytest.mark.each_value
@pytest.mark.parametrize("profile", FUSED)
@pytest.mark.parametrize(("tiling", "form"), CASES.values(), ids=CASES.keys())
def test_products_and_sums_are_fused_whatever_the_default(monkeypatch, profile, tiling, form):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    by_default = count(profile, tiling, form, lambda named: {key: named[key] for key in named if "fusion" not in key})
    assert count(profile, tiling, form) > by_default
