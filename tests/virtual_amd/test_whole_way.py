"""Operators on tensors of AMD devices, the whole way: detection, profile, plan, compilation, launch, and the numbers."""

import pytest
import torch
from closeness import assert_close, expected, expected_gradient, gradient_scale, terms_of
from offline import read_problem

import portable_softmax
from portable_softmax import current_device, plan, softmax
from portable_softmax.operators.library import operator
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.compiler import launcher
from portable_softmax.runtime.kernel_form import constexprs_of
from portable_softmax.runtime.specialization import KernelSpec

FIRST = "driver_mi300x", "driver_rx7900xtx"  # one of 64 lanes, one of 32
DETECTED = {  # profile, architecture, multiprocessors (WGPs on RDNA), lanes, registers of a multiprocessor
    "driver_mi300x": ("amd/mi300x", "gfx942", 304, 64, 131072),
    "driver_mi300x_newer_rocm": ("amd/mi300x", "gfx942", 304, 64, 131072),
    "driver_mi250x": ("amd/mi250x", "gfx90a", 104, 64, 131072),
    "driver_rx7900xtx": ("amd/rx-7900-xtx", "gfx1100", 48, 32, 196608),
    "driver_rx7900xtx_cu_mode": ("amd/rx-7900-xtx", "gfx1100", 48, 32, 196608),
}
SHAPES = {(16, 781): "tile", (70, 64): "tile", (2, 60000): "shared"}


def random(*shape, dtype=torch.float32):
    """Rows of negative numbers, of which every third has one large one in the middle."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(shape[-1])) - 200
    x[::3, ..., shape[-1] // 2] += 180
    return x.to(dtype)


@pytest.mark.parametrize("file", DETECTED)
def test_detection_to_numbers(machine, file):
    """The registers are the profile's whatever ROCm counts, and WGPs are counted whatever the driver's mode."""
    device = current_device(machine.index(file))
    facts = device.hardware
    found = facts.multiprocessor_count, facts.warp_size, facts.registers_per_multiprocessor
    assert (device.backend, device.profile.name, device.arch, *found) == ("hip", *DETECTED[file])
    x = random(8, 519)
    result = softmax(x.to(f"cuda:{device.index}"))
    assert result.device == torch.device("cuda", device.index)
    assert machine.launches[-1].arch == device.arch
    assert_close(result.cpu(), expected("softmax", x))


@pytest.mark.each_value
@pytest.mark.parametrize("file", FIRST)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_launches_are_as_planned(machine, file, shape, dtype):
    device = current_device(machine.index(file))
    planned = plan(*shape, dtype, device)
    assert planned.tiling.strategy == SHAPES[shape]
    x = random(*shape, dtype=dtype)
    assert_close(softmax(x.to(f"cuda:{device.index}")).cpu(), expected("softmax", x))
    launched = machine.launches[-1]
    assert (launched.grid, launched.num_warps) == ((planned.num_programs, 1, 1), planned.num_warps)


@pytest.mark.each_value
@pytest.mark.parametrize("file", FIRST)
@pytest.mark.parametrize("form", ["log_softmax", "softmin"])
@pytest.mark.parametrize("across", [False, True])
def test_forms_and_gradients(machine, file, form, across):
    """Rows of every second element, or across lines; the gradient as autograd calls it, which asks for real streams itself."""
    x, dim = (random(3, 37, 40).to(torch.float16), 1) if across else (random(5, 400)[:, ::2], -1)
    where = f"cuda:{machine.index(file)}"
    y = getattr(portable_softmax, form)(x.to(where), dim)
    assert_close(y.cpu(), expected(form, x, dim), terms_of(form))
    dy = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x.dtype)
    dx = operator(f"{form}_backward")(dy.to(where), y, dim, x.dtype)
    assert machine.launches[-1].kernel == "softmax_backward_kernel"
    y = y.cpu()
    assert_close(dx.cpu(), expected_gradient(form, dy, y, dim), gradient_scale(form, dy, y, dim))


def test_float64(machine):
    x = random(3, 300).double()
    assert_close(softmax(x.to(f"cuda:{machine.index('driver_mi300x')}")).cpu(), expected("softmax", x))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("driver_rx7900xtx", "hipErrorNoBinaryForGpu"),
        ("driver_mi300x_newer_rocm", r"a tensor on cuda:\d in a launch on device \d"),
    ],
)
def test_a_kernel_runs_where_it_can_and_where_its_tensors_are(machine, file, message):
    """HIP refuses a code object of another architecture."""
    device = current_device(machine.index("driver_mi300x"))
    x = random(2, 64).to(f"cuda:{device.index}")
    spec = KernelSpec.of(read_problem(2, 64, "float32", device), plan(2, 64, "float32", device).tiling)
    launch = launcher(compile_kernel(spec, device), constexprs_of(spec, device), device.index)
    with torch.cuda.device(machine.index(file)), pytest.raises(RuntimeError, match=message):
        launch((2, 1, 1), x, x, 2, 16, 16, 16, *[1, 0, 0] * 2)
