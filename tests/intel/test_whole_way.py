"""Operators on tensors of Intel's GPUs, the whole way: torch.xpu, detection, profile, plan, compilation, launch, numbers."""

import pytest
import torch
from closeness import expected, expected_gradient, gradient_scale, terms_of

import portable_softmax
from intel import live
from portable_softmax import current_device, plan, softmax
from portable_softmax.operators.library import operator

DETECTED = {"driver_max1550": "intel/max-1550", "driver_max1100": "intel/max-1100", "driver_b580": "intel/arc-b580"}
SHAPES = {(16, 781): "tile", (70, 64): "tile", (2, 20000): "shared"}


pytestmark = pytest.mark.usefixtures("machine")


def random(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(shape[-1])).mul(3).to(dtype)


@pytest.mark.parametrize("file", DETECTED)
def test_detection_to_numbers(recorded, file):
    device = current_device(live.MACHINE.index(file))
    told = live.RECORDED[live.MACHINE.index(file)]["target"][1]
    found = device.backend, device.profile.name, device.arch, device.hardware.multiprocessor_count
    assert found == ("xpu", DETECTED[file], told["version"], told["gpu_subslice_count"])
    x = random(8, 519)
    result = softmax(x.to(f"xpu:{device.index}"))
    assert result.device == torch.device("xpu", device.index)
    recorded(result.cpu(), expected("softmax", x))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_launches_are_as_planned(recorded, shape, dtype):
    device = current_device(live.MACHINE.index("driver_max1100"))
    planned = plan(*shape, dtype, device)
    assert planned.tiling.strategy == SHAPES[shape]
    x = random(*shape, dtype=dtype)
    recorded(softmax(x.to(f"xpu:{device.index}")).cpu(), expected("softmax", x))
    launched = live.MACHINE.launches[-1]
    assert (launched.grid, launched.num_warps) == ((planned.num_programs, 1, 1), planned.num_warps)
    assert launched.flags == "-cl-intel-128-GRF-per-thread", (
        "the register mode that was planned, whatever the driver would choose"
    )


@pytest.mark.parametrize("form", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize("across", [False, True])
def test_forms_and_gradients(recorded, form, across):
    x, dim = (random(3, 37, 40).to(torch.float16), 1) if across else (random(5, 400)[:, ::2], -1)
    where = f"xpu:{live.MACHINE.index('driver_b580')}"
    y = getattr(portable_softmax, form)(x.to(where), dim)
    recorded(y.cpu(), expected(form, x, dim), terms_of(form))
    dy = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x.dtype)
    dx = operator(f"{form}_backward")(dy.to(where), y, dim, x.dtype)
    assert live.MACHINE.launches[-1].kernel == "softmax_backward_kernel"
    y = y.cpu()
    recorded(dx.cpu(), expected_gradient(form, dy, y, dim), gradient_scale(form, dy, y, dim))
