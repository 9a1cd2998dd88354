"""Files of other people's kernels: they take no module's name, nor sys.path, and find the modules beside them."""

import importlib
import sys

import pytest
import torch

from portable_probe.loading import load_kernel
from portable_softmax import CompileError, Device, inspect_kernel
from portable_softmax.devices.backends import npu_compiler

KERNEL_FILE = """
import torch
import triton
import triton.language as tl
FACTOR: tl.constexpr = tl.constexpr(3)
@triton.jit
def scaled(x):
    return x * FACTOR
@triton.jit
def clear(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)
"""
ASKS = """
import subprocess
import triton
from triton.backends import backends
active = [name for name, backend in backends.items() if backend.driver.is_active()]
properties = torch.cuda.get_device_properties(0)
torch.cuda.set_device(0)
STREAM, EVENT = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
COUNTS = len(active), torch.cuda.is_available(), torch.cuda.device_count()
KNOWN = [
    torch.cuda.get_device_name(), torch.cuda.get_device_capability(), properties.multi_processor_count, properties.warp_size,
    torch.version.hip is not None, triton.runtime.driver.active.get_current_target().backend,
    [name for name in ("nvidia-smi", "rocm-smi", "npu-smi") if not subprocess.run([name]).returncode],
]
clear[(1,)](torch.empty(64, device="cuda"), BLOCK=64)
LATER = 1
"""


ANSWERS = {
    "nvidia/h200": ["NVIDIA H200", (9, 0), 132, 32, False, "cuda", ["nvidia-smi"]],
    "amd/mi300x": ["AMD Instinct MI300X", (9, 4), 304, 64, True, "hip", ["rocm-smi"]],
}


@pytest.mark.parametrize(("device", "known"), ANSWERS.items())
def test_a_file_that_asks_about_the_device_when_it_is_imported(tmp_path, device, known):
    (tmp_path / "asking.py").write_text(KERNEL_FILE + ASKS)
    before = vars(torch.cuda).copy(), torch.version.hip
    module = load_kernel(f"{tmp_path}/asking.py:clear", Device.from_profile(device)).module
    assert (known, (1, True, 1)) == (module.KNOWN, module.COUNTS)
    assert not hasattr(module, "LATER")  # the file ends at its launch
    assert (vars(torch.cuda), torch.version.hip) == before


ASCEND = """
import torch
import acl
import torch_npu
import triton.extension.buffer.language as bl
from triton.runtime.libentry import libentry
import triton.language.extra.ascend.libdevice
import triton.language.extra.cann.extension as extension
import triton.runtime.driver as driver
from torch_npu.contrib import transfer_to_npu
from triton.language.extra.cann import libdevice
from triton.language.extra.cann.extension import insert_slice
from triton.language.extra.cann.libdevice import tanh
properties, stream = driver.active.utils.get_device_properties(torch.npu.current_device()), torch.npu.Stream()
torch_npu.npu.set_device(0)
known = torch_npu.npu.get_device_properties("npu")
CORES = properties["num_vectorcore"], properties["num_aicore"], known.vector_core_num, known.cube_core_num
SAID = torch.npu.is_available(), torch.npu.get_device_name(), torch.npu.current_stream().npu_stream is None
@extension.unknown
def decorated():
    return 3
assert decorated() == 3
@triton.jit
def both(x_ptr, BLOCK: tl.constexpr):
    place = x_ptr + tl.arange(0, BLOCK)
    tl.store(place, libdevice.tan(tl.load(place)) + tanh(tl.load(place)))
@libentry()
@triton.jit
def sliced(x_ptr, BLOCK: tl.constexpr):
    value = insert_slice(tl.load(x_ptr + tl.arange(0, BLOCK)), 0, BLOCK, 1)
"""


def test_a_file_of_an_ascend_project(tmp_path):
    (tmp_path / "ascend.py").write_text(KERNEL_FILE + ASCEND)
    before, npu = set(sys.modules), Device.from_profile("ascend/910b3")
    loaded = load_kernel(f"{tmp_path}/ascend.py:both", npu)
    assert (loaded.module.CORES, loaded.module.SAID) == ((40, 20, 40, 20), (True, "Ascend910B3", False))
    if npu_compiler.missing() is None:
        resources = inspect_kernel(loaded.kernel, {"x_ptr": "*fp32"}, {"BLOCK": 64}, device=npu).resources
        assert resources.shared_memory_bytes
        with pytest.raises(CompileError, match=r"triton.language.extra.cann.extension.insert_slice is not installed"):
            inspect_kernel(loaded.module.sliced, {"x_ptr": "*fp32"}, {"BLOCK": 64}, device=npu)
    assert not hasattr(torch, "npu")
    assert not [name for name in sys.modules.keys() - before if name.startswith(("torch_npu", "triton.language.extra.cann"))]
    with pytest.raises(ModuleNotFoundError, match="torch_npu"):
        importlib.import_module("torch_npu")


PACKAGE = {  # as libraries are: its own file needs what is not installed, and a kernel imports relatively
    "lib/__init__.py": "__version__ = '1.2'\nimport a_package_that_is_not_installed\n",
    "lib/ops/__init__.py": "from __future__ import annotations\nfrom .helpers import scaled\ndef LOADED(x: Any): pass\n",
    "lib/ops/helpers.py": KERNEL_FILE,
    "lib/wants.py": f"from lib import something\n{KERNEL_FILE}",
    "lib/ops/nested/kernels.py": """
import triton
import triton.language as tl
from lib import __version__
from ..helpers import scaled
from .. import LOADED
class Ops:
    @triton.jit
    def twice(x_ptr, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), scaled(tl.load(x_ptr + tl.arange(0, BLOCK))))
""",
}


def test_a_file_of_a_package(tmp_path):
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    file = tmp_path / "lib/ops/nested/kernels.py"
    for device in ("nvidia/h200", "amd/mi300x"):
        loaded = load_kernel(f"{file}:Ops.twice", Device.from_profile(device))
        assert loaded.module.__name__ == "lib.ops.nested.kernels"
        assert inspect_kernel(loaded.kernel, {"x_ptr": "*fp32"}, {"BLOCK": 64}, device=device).resources.num_warps == 4
    with pytest.raises(ValueError, match=r"has no @triton.jit function 'once'; FILE:NAME may name scaled, Ops.twice"):
        load_kernel(f"{file}:once")
    with pytest.raises(ValueError, match="is no Python file"):
        load_kernel(f"{tmp_path}/nowhere.py:once")
    with pytest.raises(ValueError, match="ModuleNotFoundError: No module named 'a_package_that_is_not_installed'"):
        load_kernel(f"{tmp_path}/lib/wants.py:clear")


def test_what_torchinductor_writes(tmp_path):
    source = INDUCTOR_FILE.format(filename="__file__")
    (tmp_path / "inner.py").write_text(source)
    outer = "from torch._inductor.async_compile import AsyncCompile\nasync_compile = AsyncCompile()\n"
    outer += f"sine = async_compile.triton('sine', {source!r})\nasync_compile.wait(globals())\n"
    (tmp_path / "output_code.py").write_text(outer)
    for name, device in (("inner", "nvidia/h200"), ("output_code", "amd/mi300x")):
        kernel = load_kernel(f"{tmp_path}/{name}.py:sine", Device.from_profile(device)).kernel
        arguments = {"in_ptr0": "*fp32:16", "out_ptr0": "*fp32:16", "xnumel": "i32"}
        launch = inspect_kernel(kernel, arguments, config=0, device=device).launch
        assert dict(launch.arguments["in_ptr0"][1])["tt.divisibility"] == 16
        assert launch.origins["XBLOCK"] == "configuration"


INDUCTOR_FILE = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={{'x': 4096}}, filename={filename}, min_elem_per_thread=0,
    triton_meta={{
        'signature': {{'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}}, 'constants': {{}},
        'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, warp_size=32),
        'configs': [{{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]]}}]}},
    inductor_meta={{'grid_type': 'Grid1D', 'autotune_hints': set(), 'kernel_name': 'sine', 'mutated_arg_names': [],
        'autotune_pointwise': True, 'max_autotune': False}})
@triton.jit
def sine(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    tl.store(out_ptr0 + xindex, tl.sin(tl.load(in_ptr0 + xindex, xindex < xnumel)), xindex < xnumel)
"""
