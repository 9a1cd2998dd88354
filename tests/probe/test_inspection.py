"""Any Triton kernel: what it uses and how many programs fit, with the two kernels of the usual introductions."""

import json
from pathlib import Path

import pytest
import torch

from portable_softmax import Device, KernelResources, inspect_kernel
from portable_softmax.probe.__main__ import main
from portable_softmax.probe.inspection import dump, launch_any, type_of
from portable_softmax.probe.loading import load_kernel

FILE = Path(__file__).parents[1] / "support" / "example_kernels.py"
ADD = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "out_ptr": "*fp32:16", "n_elements": "i32:16"}
MATMUL = {"a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "c_ptr": "*fp16:16", "m": "i32:16", "n": "i32:16", "k": "i32:16"}
DESCRIPTOR = """
import triton
import triton.language as tl

@triton.jit
def first_tile(x, out_ptr):
    place = tl.arange(0, 16)[:, None] * 32 + tl.arange(0, 32)
    tl.store(out_ptr + place, x.load([0, 0]))
"""
FILLED = """
import triton
import triton.language as tl

@triton.jit
def filled(x_ptr, VALUE: tl.constexpr, BLOCK: tl.constexpr = 64):
    tl.store(x_ptr + tl.arange(0, BLOCK), VALUE)
"""
TILES = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}


def example(name):
    return load_kernel(f"{FILE}:{name}")


@pytest.mark.parametrize(
    ("profile", "limits"),
    [
        ("nvidia/h200", {"warps", "programs", "registers", "shared memory"}),
        ("amd/mi300x", {"warps", "barriers", "registers", "shared memory", "scalar registers"}),
        ("amd/rx-7900-xtx", {"warps", "barriers", "registers", "shared memory"}),
    ],
)
def test_a_matrix_product_uses_registers_and_shared_memory(profile, limits):
    device = Device.from_profile(profile)
    resources, occupancy = inspect_kernel(example("matmul_kernel"), MATMUL, TILES, num_warps=4, num_stages=2, device=device)
    assert resources.num_warps == 4
    assert resources.registers_per_thread > 32
    assert resources.shared_memory_bytes >= 8192
    assert set(occupancy.limits) == limits
    assert 1 <= occupancy.programs_per_multiprocessor <= 16


def test_a_vector_addition_fills_the_multiprocessor():
    device = Device.from_profile("nvidia/h200")
    resources, occupancy = inspect_kernel(example("add_kernel"), ADD, {"BLOCK_SIZE": 1024}, device=device)
    assert resources == KernelResources(4, resources.registers_per_thread, 0)
    assert occupancy.warps_per_multiprocessor == 64


def test_arguments_tell_their_types():
    x = torch.zeros(64, dtype=torch.bfloat16)
    device = Device.from_profile("nvidia/h200")
    from_values = inspect_kernel(
        example("add_kernel"), {"x_ptr": x, "y_ptr": x, "out_ptr": x, "n_elements": 64}, {"BLOCK_SIZE": 64}, device=device
    )
    as_text = dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), "*bf16:16") | {"n_elements": "i32:16"}
    assert from_values == inspect_kernel(example("add_kernel"), as_text, {"BLOCK_SIZE": 64}, device=device)


@pytest.mark.parametrize(
    ("argument", "kind"),
    [(True, "i1"), (32, "i32:16"), (33, "i32"), (2**40 + 1, "i64"), (-(2**31), "i32:16"), (1.5, "fp32")],
)
def test_types_of_numbers(argument, kind):
    assert type_of(argument) == kind


@pytest.mark.parametrize("profile", ["nvidia/h200", "amd/mi300x"])
def test_a_descriptor_is_a_type(tmp_path, profile):
    (tmp_path / "mine.py").write_text(DESCRIPTOR)
    kernel, types = load_kernel(f"{tmp_path}/mine.py:first_tile"), {"x": "tensordesc<fp16[16, 32]>", "out_ptr": "*fp16:16"}
    assert inspect_kernel(kernel, types, {}, device=profile)[0].registers_per_thread


def test_types_of_tensors():
    x = torch.zeros(32)
    assert type_of(x) == "*fp32:16"
    assert type_of(x[1:]) == "*fp32"
    with pytest.raises(TypeError, match="no type for Tensor complex64"):
        type_of(x.to(torch.complex64))
    with pytest.raises(TypeError, match="no type for str"):
        type_of("words")


def test_a_missing_or_unknown_parameter_is_named():
    device = Device.from_profile("nvidia/h200")
    with pytest.raises(Exception, match=r"parameters are x_ptr, .*; one side lacks BLOCK_SIZE, block"):
        inspect_kernel(example("add_kernel"), ADD, {"block": 64}, device=device)


def test_stages_are_dumped_with_the_metadata(tmp_path):
    arguments = ["--profile", "amd/mi300x", "--cols", "100", "--dump", "ttgir,amdgcn", "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert "tt.func public @softmax_kernel" in (tmp_path / "softmax_kernel.ttgir").read_text()
    assert ".vgpr_count" in (tmp_path / "softmax_kernel.amdgcn").read_text()
    assert json.loads((tmp_path / "softmax_kernel.json").read_text())["num_warps"] >= 1
    assert main([*arguments[:-3], "sass"]) == 2


def test_all_stages(tmp_path):
    from portable_softmax.probe.inspection import compile_any

    compiled = compile_any(example("add_kernel"), ADD, {"BLOCK_SIZE": 64}, 4, 1, Device.from_profile("nvidia/h200"))
    names = {path.suffix for path in dump(compiled, "all", tmp_path)}
    assert names >= {".ttir", ".ttgir", ".llir", ".ptx", ".cubin", ".json"}


def test_the_probe_inspects_a_kernel_of_a_file(capsys):
    signature = [f"{name}={kind}" for name, kind in MATMUL.items()]
    constexprs = [f"{name}={value}" for name, value in TILES.items()]
    arguments = ["--kernel", f"{FILE}:matmul_kernel", "--signature", *signature, "--constexpr", *constexprs, "--explain"]
    assert main(["--profile", "nvidia/t4", *arguments]) == 0
    assert "kernel    " in (text := capsys.readouterr().out)
    assert "registers   " in text
    assert main(["--compare", "nvidia/h200", "amd/mi300x", *arguments, "--json"]) == 0
    reports = json.loads(capsys.readouterr().out)
    assert [report["device"]["profile"] for report in reports] == ["nvidia/h200", "amd/mi300x"]
    assert all(report["kernel"]["resources"]["shared_memory_bytes"] for report in reports)


@pytest.mark.kernel
def test_the_vector_addition_runs(where):
    x, y = torch.randn(2, 1000).to(where)
    out = torch.full((1000,), float("nan"), device=where)
    arguments = {"x_ptr": x, "y_ptr": y, "out_ptr": out, "n_elements": 1000}
    launch_any(example("add_kernel"), (-(-1000 // 128),), arguments, {"BLOCK_SIZE": 128})()
    assert torch.equal(out, x + y)


@pytest.mark.kernel
def test_a_kernel_runs_with_the_default_of_a_constexpr(where, tmp_path):
    (tmp_path / "mine.py").write_text(FILLED)
    x = torch.zeros(100, device=where)
    launch_any(load_kernel(f"{tmp_path}/mine.py:filled"), (1,), {"x_ptr": x}, {"VALUE": 1.5})()
    assert x.tolist() == [1.5] * 64 + [0.0] * 36


@pytest.mark.kernel
def test_arguments_go_by_name(where):
    x, y = torch.randn(2, 100).to(where)
    out = torch.full((100,), float("nan"), device=where)
    shuffled = {"n_elements": 100, "out_ptr": out, "y_ptr": y, "x_ptr": x}
    launch_any(example("add_kernel"), (1,), shuffled, {"BLOCK_SIZE": 128})()
    assert torch.equal(out, x + y)
    with pytest.raises(ValueError, match="x_ptr, y_ptr, out_ptr should be the run-time parameters"):
        launch_any(example("add_kernel"), (1,), {"x_ptr": x, "y_ptr": y, "n_elements": 100}, {"BLOCK_SIZE": 128})


@pytest.mark.kernel
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (100, 70, 45), (300, 20, 130)])
def test_the_matrix_product_runs(where, m, n, k):
    a, b = torch.randn(m, k).to(where), torch.randn(k, n).to(where)
    c = torch.full((m, n), float("nan"), device=where)
    tiles = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 16, "GROUP_M": 4}
    arguments = {"a_ptr": a, "b_ptr": b, "c_ptr": c, "m": m, "n": n, "k": k}
    launch_any(example("matmul_kernel"), (-(-m // 32) * -(-n // 32),), arguments, tiles, num_stages=2)()
    assert (c.double() - a.double() @ b.double()).abs().max() < 1e-4
