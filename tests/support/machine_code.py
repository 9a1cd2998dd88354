"""Launches of compiled AMD machine code by amdgcn_cpu, on tensors of the CPU."""

import functools

import direct
import torch

from portable_softmax import Device, profiles
from portable_softmax.planning.plan import Tiling
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.compiler import triton_version
from portable_softmax.runtime.prepared import arranged

ARCHITECTURES = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201")
PRODUCTS = {Device.from_profile(name).arch: name for name, profile in sorted(profiles().items()) if profile.backend == "hip"}
DROPPED = {"gfx1030"} if triton_version() >= (3, 9) else set()  # by Triton
PRODUCTS = {arch: PRODUCTS[arch] for arch in ARCHITECTURES if arch not in DROPPED}
FOREMOST = {"gfx942", "gfx1100"}  # one of 64 lanes, one of 32; tests of the others take turns, or are slow
CPU = torch.device("cpu")

CASES = {  # tiling, columns, stride of unaligned rows
    "rows": (Tiling(4, 256, 1), 200, None),
    "rows, short": (Tiling(4, 256, 1), 60, None),  # by the same kernel
    "one element at a time": (Tiling(2, 256, 2), 199, None),
    "no mask": (Tiling(1, 1024, 4), 1024, None),
    "blocks": (Tiling(1, 256, 2, blocks=3), 704, None),
    "unaligned": (Tiling(1, 512, 2), 391, 403),
    "unaligned rows": (Tiling(4, 32, 1, blocks=3), 91, 99),
    "shared": (Tiling(1, 128, 2, None, 3, blocks=2, walk=False), 704, None),
    "shared, unaligned": (Tiling(1, 128, 1, None, 3, blocks=2), 645, 651),
    "shared, in one block": (Tiling(1, 256, 1, None, 3), 704, None),
    "online": (Tiling(1, 256, 2, held=False), 704, None),
    "online rows": (Tiling(2, 64, 1, held=False), 200, None),
}
WIDEST = {torch.float32: 4, torch.float16: 8, torch.bfloat16: 8}  # elements of 16 bytes


@functools.cache
def compiled(spec, arch):
    return compile_kernel(spec, Device.from_profile(PRODUCTS[arch]))


@functools.cache
def text_of(spec, arch, edit=None):
    """Returns the machine code; `edit` changes it."""
    text = compiled(spec, arch).asm["amdgcn"]
    return edit(text) if edit else text


def in_virtual_device(arch, make_memory=None, edit=None, **interleaving):
    """Returns `launch(operands, problem, tiling, programs)`, which direct.forward and direct.backward take as `run`."""
    return direct.launching(Device.from_profile(PRODUCTS[arch]), prepared(make_memory, edit, **interleaving))


def prepared(make_memory=None, edit=None, **interleaving):
    """Stands in for runtime.prepared.prepare."""
    from amdgcn_cpu import run  # which environments of other vendors have not

    def prepare(spec, device, grid, sizes):
        metadata, (in_order, fixed) = compiled(spec, device.arch).metadata, arranged(spec, sizes)
        options = {"num_warps": metadata.num_warps, "shared_bytes": metadata.shared, **interleaving}

        def launch(*operands):
            memory = make_memory and make_memory()
            run(text_of(spec, device.arch, edit), grid, [*in_order((*operands, *fixed))], memory=memory, **options)

        return launch

    return prepare


def compare(direction, run, name, form="softmax", dtype=torch.float32, **rows):
    """Compares the result of a case with float64, by direct.forward or direct.backward, with fewer programs than tiles."""
    tiling, n_cols, stride = CASES[name]
    vector = 1 if n_cols % WIDEST[dtype] and stride is None else WIDEST[dtype]
    n_rows = rows.pop("n_rows", 5 if tiling.splits == 1 else 2)
    programs = tiling.splits * (1 if tiling.walk else n_rows) if tiling.splits > 1 else 3
    return direction(run, form, dtype, CPU, n_cols, tiling, programs, vector, stride, n_rows=n_rows, **rows)


def spikes(x):
    """Puts one large value into each row, at another place of each. It is so far below 0 that its exponential is 0.

    So a test sees padding that wins, and a lane that a reduction forgets or reads as 0.
    """
    n_rows, n_cols = x.shape
    row = torch.arange(n_rows)
    x -= 600
    x[row, row * n_cols // n_rows] += 300
