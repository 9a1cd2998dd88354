"""Any Triton kernel: what it uses, how many programs fit, and how many a device holds at once."""

import importlib
import math
from pathlib import Path

import pytest
import torch
import triton
from example_kernels import add_kernel

from portable_probe.loading import load_kernel
from portable_softmax import Device, DeviceError, fits, inspect_kernel, launcher, resident_programs

FILE = Path(__file__).parents[1] / "support" / "example_kernels.py"
ADD = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "out_ptr": "*fp32:16", "n_elements": "i32:16"}


def example(name):
    return load_kernel(f"{FILE}:{name}").kernel


@pytest.mark.parametrize(
    ("argument", "kind", "known"),
    [
        ("True", "u1", ()),
        ("32", "i32", (("tt.divisibility", 16),)),
        (2**40 + 1, "i64", ()),
        (2**63, "u64", (("tt.divisibility", 16),)),
        ("1.5", "fp32", ()),
        ("-inf", "fp32", ()),
        ("i32:16", "i32", (("tt.divisibility", 16),)),
        ("*f32:16", "*fp32", (("tt.divisibility", 16),)),
        ("f16[3, 5]", "*fp16", (("tt.divisibility", 16),)),
        (torch.zeros(32)[1:], "*fp32", ()),
        (torch.zeros(32, dtype=torch.int64), "*i64", (("tt.divisibility", 16),)),
    ],
    ids=str,
)
def test_types_of_arguments(tmp_path, argument, kind, known):
    (tmp_path / "mine.py").write_text("import triton\n@triton.jit\ndef nothing(x):\n    pass\n")
    kernel = load_kernel(f"{tmp_path}/mine.py:nothing").kernel
    assert inspect_kernel(kernel, [argument], device="nvidia/h200").launch.arguments["x"] == (kind, known)


def test_values_of_constexprs(tmp_path):
    lines = ["import triton", "import triton.language as tl", "@triton.jit", "def relu(x):", "    return x", "@triton.jit"]
    lines += [f"def nothing({', '.join(f'{name}: tl.constexpr' for name in 'abcdef')}):", "    pass"]
    (tmp_path / "mine.py").write_text("\n".join(lines))
    kernel = load_kernel(f"{tmp_path}/mine.py:nothing").kernel
    words = {"a": "(64, 4)", "b": "-inf", "c": "relu", "d": "fast", "e": "(1,)", "f": "1e-5"}
    constants = inspect_kernel(kernel, words, device="nvidia/h200").launch.constants
    assert constants.pop("c").__name__ == "relu"
    assert constants == {"a": (64, 4), "b": -math.inf, "d": "fast", "e": (1,), "f": 1e-5}


PRODUCTS = ["nvidia/h200", "nvidia/t4", "amd/mi300x", "amd/rx-7900-xtx"]


def compiled_for(name, **options):
    x = torch.empty(4096, device="meta")
    return inspect_kernel(add_kernel, (x, x, x, 4096), {"BLOCK_SIZE": 1024}, device=name, **options)


@pytest.mark.parametrize("name", PRODUCTS)
def test_as_many_as_all_multiprocessors_hold(name):
    inspected, device = compiled_for(name), Device.from_profile(name)
    for where in (name, device):
        programs = resident_programs(inspected.launch.compiled, where)
        assert programs == device.hardware.multiprocessor_count * inspected.occupancy.programs_per_multiprocessor > 0


@pytest.mark.parametrize(
    ("kernel", "device", "error", "words"),
    [
        (add_kernel, "nvidia/h200", TypeError, "requires a compiled kernel, as of kernel.warmup"),
        (None, "nvidia/h200", TypeError, "not None"),
        (compiled_for, "amd/mi300x", DeviceError, "compiled for cuda/90 was passed for .*MI300X.* hip/gfx942; inspect_kernel"),
        (compiled_for, 7, TypeError, "device must be a Device"),
    ],
    ids=["not compiled", "nothing", "another architecture", "no device"],
)
def test_refusals(kernel, device, error, words):
    compiled = compiled_for("nvidia/h200").launch.compiled if kernel is compiled_for else kernel
    with pytest.raises(error, match=f"(?i){words}"):
        resident_programs(compiled, device)


@pytest.mark.kernel
def test_the_device_here(where):
    """A launch of as many programs as are resident; one in the interpreter."""
    x = torch.rand(3000, device=where)
    y, grid = torch.empty_like(x), (3,)
    kernel = add_kernel.warmup(x, x, y, 3000, BLOCK_SIZE=1024, grid=grid)
    programs = resident_programs(kernel)
    if where.type == "cpu":
        assert programs == 1
    else:
        assert programs == resident_programs(add_kernel[grid](x, x, y, 3000, BLOCK_SIZE=1024)) >= 100


def test_a_kernel_of_gluon():
    pytest.importorskip("triton.experimental.gluon.language")
    copied = importlib.import_module("gluon_kernels").copied
    arguments = {"x": "*fp32:16", "y": "*fp32:16", "n_rows": 2_800_000, "n_cols": 1000}
    configs = [triton.Config({"BLOCK": 1024}, num_warps=4)]
    assert fits(configs, arguments, kernel=copied, device="nvidia/h100-sxm") == configs
    plan = launcher(copied, cols="n_cols", block="BLOCK", grid=lambda meta: (meta["n_rows"],)).plan(
        **arguments, num_warps=4, device="nvidia/h100-sxm"
    )
    assert "reaches 2,799," in plan.warnings[0]
