"""The kernels of examples/ that go over rows, with what they are launched on and what is right in float64."""

import importlib.util
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

from portable_softmax import launcher

EXAMPLES = Path(__file__).parents[2] / "examples"
EPS = 1e-6


def example(name):
    """Returns an example as a module."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def wide(*shape, dtype=torch.float32, seed=0):
    """Numbers of a wide range, large and small ones side by side."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * torch.exp(2 * torch.randn(shape, generator=generator))).to(dtype)


def rms_norm(rows, cols, dtype):
    x, w = wide(rows, cols, dtype=dtype), wide(cols, dtype=dtype, seed=1)
    exact = x.double() * torch.rsqrt(x.double().square().mean(-1, keepdim=True) + EPS) * w.double()
    return example("rms_norm").forward, [x, w, torch.full_like(x, torch.nan), rows, cols, EPS], {}, {2: exact}


def rms_norm_gradient(rows, cols, dtype):
    dy, x, w = wide(rows, cols, dtype=dtype), wide(rows, cols, dtype=dtype, seed=1), wide(cols, dtype=dtype, seed=2)
    a, b = x.double().requires_grad_(), w.double().requires_grad_()
    y = a * torch.rsqrt(a.square().mean(-1, keepdim=True) + EPS) * b
    dx, dw = torch.autograd.grad(y, (a, b), dy.double())
    arguments = [dy, x, w, torch.full_like(x, torch.nan), torch.zeros(max(1, rows), cols), rows, cols, EPS]
    return example("rms_norm").backward, arguments, {"num_programs": rows}, {3: dx, 4: dw}


def layer_norm(rows, cols, dtype):
    x, w, b = wide(rows, cols, dtype=dtype), wide(cols, dtype=dtype, seed=1), wide(cols, dtype=dtype, seed=2)
    exact = torch.nn.functional.layer_norm(x.double(), (cols,), w.double(), b.double(), EPS)
    return example("layer_norm").forward, [x, w, b, torch.full_like(x, torch.nan), rows, cols, EPS], {}, {3: exact}


def cross_entropy(rows, cols, dtype):
    logits = wide(rows, cols, dtype=dtype)
    logits[:, ::3] = -torch.inf
    logits[:, 0] = 1
    targets = torch.arange(rows) * 7 % cols
    exact = torch.nn.functional.cross_entropy(logits.double(), targets, reduction="none")
    return example("cross_entropy").forward, [logits, targets, torch.full((rows,), torch.nan), rows, cols], {}, {2: exact}


def rotary(rows, cols, dtype):
    half = 1 << ((cols & -cols).bit_length() - 1)  # the largest power of two in it
    x, angles = wide(rows, cols // half, 2 * half, dtype=dtype), wide(rows, half, seed=1)
    a, b, c, s = *x.double().chunk(2, -1), angles.double().cos()[:, None], angles.double().sin()[:, None]
    exact = torch.cat([a * c - b * s, b * c + a * s], -1)
    arguments = [x, c[:, 0].float(), s[:, 0].float(), torch.full_like(x, torch.nan), rows, cols]
    return example("rotary").forward, arguments, {"HALF": half}, {3: exact}


CASES = rms_norm, rms_norm_gradient, layer_norm, cross_entropy, rotary


def assert_right(case, arguments, exact):
    """Compares what a launch has written with what is right; a gradient of a weight is a row for each program."""
    for at, expected in exact.items():
        result = arguments[at].cpu()
        result = result.sum(0) if result.dim() > expected.dim() else result
        size = expected.abs().amax().item() if expected.numel() else 0.0
        relative = {torch.float32: 2e-5, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}[arguments[at].dtype]
        tolerance = {"rtol": relative, "atol": relative * 1e-2 * size + 1e-6}
        torch.testing.assert_close(result.double(), expected, **tolerance, msg=lambda text: f"{case.__name__}: {text}")


@triton.jit
def one_row(x, y, n_rows, n_cols, BLOCK: tl.constexpr, SCALE: tl.constexpr = 3):
    at = tl.arange(0, BLOCK)
    here = tl.program_id(0) * n_cols + at
    tl.store(y + here, tl.load(x + here, mask=at < n_cols) * SCALE, mask=at < n_cols)


@triton.jit
def adding(x, y, n_rows, n_cols, eps, BLOCK: tl.constexpr, F: tl.constexpr = 1):
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        value = tl.load(x + row * n_cols + at, mask=at < n_cols)
        tl.store(y + row * n_cols + at, value * F + eps, mask=at < n_cols)


@triton.jit
def dequantize(q, scale, y, n_rows, n_cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=STAGES):
        at = tl.cast(row, tl.int64) * n_cols + cols
        value = tl.load(q + at, mask=cols < n_cols, other=0).to(tl.float32) * tl.load(scale + row)
        tl.store(y + at, value, mask=cols < n_cols)


NAMES = {"rows": "n_rows", "cols": "n_cols", "block": "BLOCK"}
RMS = example("rms_norm")
scaled = launcher(one_row, rows="n_rows", cols="n_cols", block="BLOCK", grid=lambda meta: (meta["n_rows"],))


def fresh(kernel=RMS.rms_norm_kernel, **settings):
    """Returns a launcher that has launched nothing."""
    return launcher(kernel, **NAMES, **settings)


X = "bf16[16384,4096]"
PLANNED = {
    "rms_norm": ("forward", (X, "bf16[4096]", X, 16384, 4096, 1e-6), {}),
    "rms_norm gradient": ("backward", (X, X, "bf16[4096]", X, "*fp32:16", 16384, 4096, 1e-6), {}),
    "layer_norm": ("forward", (X, "bf16[4096]", "bf16[4096]", X, 16384, 4096, 1e-6), {}),
    "cross_entropy": ("forward", ("f32[2048,128256]", "i64[2048]", "f32[2048]", 2048, 128256), {}),
    "rotary": ("forward", ("f16[8192,32,128]", "f32[8192,64]", "f32[8192,64]", "f16[8192,32,128]", 8192, 2048), {"HALF": 64}),
}


def planned(name, device, **settings):
    """Plans a large call of an example on a device that is not here."""
    direction, arguments, more = PLANNED[name]
    return getattr(example(name.split()[0]), direction).plan(*arguments, device=device, **more, **settings)
