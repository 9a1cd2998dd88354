"""Any Triton kernel: what it uses and how many programs fit, with the two kernels of the usual introductions."""

from pathlib import Path

import pytest
import torch

from portable_probe.loading import load_kernel
from portable_softmax import Device, KernelResources, inspect_kernel
from portable_softmax.runtime.compiler import triton_version

FILE = Path(__file__).parents[1] / "support" / "example_kernels.py"
ADD = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "out_ptr": "*fp32:16", "n_elements": "i32:16"}


def example(name):
    return load_kernel(f"{FILE}:{name}").kernel


def test_a_vector_addition_fills_the_multiprocessor():
    device = Device.from_profile("nvidia/h200")
    inspected = inspect_kernel(example("add_kernel"), ADD, {"BLOCK_SIZE": 1024}, device=device)
    resources, occupancy, _ = inspected
    first, constants, options, used, fit, *_ = str(inspected).splitlines()
    assert first == "add_kernel: x_ptr *fp32, y_ptr *fp32, out_ptr *fp32, n_elements i32"
    assert (constants, options) == ("constants BLOCK_SIZE 1024 (given)", "launch num_warps 4, num_stages 3")
    assert used.startswith(f"uses num_warps 4, registers_per_thread {resources.registers_per_thread}, ")
    assert fit == str(occupancy).splitlines()[0]
    assert resources == KernelResources(4, resources.registers_per_thread, 0, stack_frame_bytes=0)
    assert occupancy.warps_per_multiprocessor == 64


@pytest.mark.parametrize(
    ("argument", "kind", "known"),
    [
        ("True", "u1" if triton_version() >= (3, 4) else "i1", ()),
        ("32", "i32", (("tt.divisibility", 16),)),
        (2**40 + 1, "i64", ()),
        (2**63, "u64", (("tt.divisibility", 16),)),
        ("1.5", "fp32", ()),
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
