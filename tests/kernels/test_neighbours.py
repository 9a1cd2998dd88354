"""Rows that programs share beside whatever else runs on a device: nothing hangs, and results are right.

Each has a process with a watchdog: PYTHONPATH=tests/support python tests/kernels/test_neighbours.py NAME [TURNS]
"""

import functools
import os
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl
from faults import FAULTS, publish_by

from portable_softmax import plan, softmax

pytestmark = [pytest.mark.kernel, pytest.mark.accelerator]
WATCHDOG = 150  # seconds, compiling included
LONG, FULL, FEW = (600, 65_536), (24, 131_072), (3, 200_000)  # more programs than run at once; about as many; few


class Case:
    """A softmax and its gradient of random rows, compared with float64."""

    def __init__(self, shape, dtype=torch.float32, dim=1):
        assert dim == 0 or plan(*shape, dtype).tiling.strategy == "split", f"{shape} is not shared here"
        self.dim = dim
        self.x, self.dy = torch.randn(2, *shape, device="cuda").to(dtype)
        self.x.requires_grad_()
        exact = torch.softmax(self.x.detach().double(), dim)
        gradient = exact * (self.dy.double() - (exact * self.dy).sum(dim, keepdim=True))
        self.exact = exact.float(), gradient.float()
        self.check(*self.step())  # compiles

    def step(self):
        y = softmax(self.x, self.dim)
        return y.detach(), *torch.autograd.grad(y, self.x, self.dy)

    def check(self, *results):
        eps = torch.finfo(self.x.dtype).eps
        for result, exact, parts, least in zip(results, self.exact, (32, 256), (1e-5, 1e-2), strict=True):
            torch.testing.assert_close(result.float(), exact, rtol=parts * eps, atol=eps * least)


def a_graph_with_two_branches(turns):
    cases, graph = [Case(FULL), Case(LONG)], torch.cuda.CUDAGraph()
    branches = [torch.cuda.Stream() for _ in cases]
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        start, results = torch.cuda.current_stream(), []
        for case, branch in zip(cases, branches, strict=True):
            branch.wait_stream(start)
            with torch.cuda.stream(branch):
                results += [(case, case.step()) for _ in range(3)]
        for branch in branches:
            start.wait_stream(branch)
    for _ in range(turns):
        graph.replay()
        torch.cuda.synchronize()
        for case, step in results:
            case.check(*step)
            for tensor in step:
                tensor.zero_()


@triton.jit
def _hold_multiprocessors(flag_ptr, memory_ptr, MOST: tl.constexpr):
    """Keeps every register of a multiprocessor (1024 threads with 64) until the flag is set, or for MOST turns."""
    place = memory_ptr + tl.program_id(0) * 65536 + tl.arange(0, 16384)
    a, b, c, d = tl.load(place), tl.load(place + 16384), tl.load(place + 32768), tl.load(place + 49152)
    turns = 0
    while (tl.atomic_or(flag_ptr, 0) == 0) & (turns < MOST):
        turns += 1
        a, b, c, d = b * 0.5 + turns, c * 0.5, d * 0.5, a * 0.5
    tl.store(place, a + b + c + d)


def a_kernel_that_holds_multiprocessors(turns):
    cases = [Case(FULL), Case(LONG), Case(FEW)]
    memory, flag = torch.randn(8 * 65536, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    holder, worker = torch.cuda.Stream(), torch.cuda.Stream()
    for turn in range(turns):
        flag.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(holder):
            _hold_multiprocessors[(8,)](flag, memory, 20_000_000, num_warps=32)
        with torch.cuda.stream(worker):
            case = cases[turn % len(cases)]
            result = case.step()
            flag.fill_(1)
        worker.synchronize()
        case.check(*result)
        torch.cuda.synchronize()


def words(turns, fault):
    """Of all programs are published by a function with a fault."""
    publish_by(fault)
    dtypes = torch.float32, torch.bfloat16
    cases = [Case(shape, dtype) for shape in (FEW, (40, 100_003), LONG) for dtype in dtypes]
    cases += [Case((40_000, n_rows), dtype, dim=0) for dtype in dtypes for n_rows in (512, 333)]
    for _ in range(turns):
        for case, result in [(case, case.step()) for case in cases]:
            case.check(*result)


SITUATIONS = {situation.__name__: situation for situation in (a_graph_with_two_branches, a_kernel_that_holds_multiprocessors)}
SITUATIONS |= {name: functools.partial(words, fault=fault) for name, fault in FAULTS.items()}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_nothing_hangs_and_results_are_right(device, where, situation):
    if where.type != "cuda" or not device.profile.launch.polls:
        pytest.skip(f"situations are written for torch's device type cuda and rows that programs share; this is {device}")
    variables, command = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, [sys.executable, __file__, situation]
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=WATCHDOG, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


if __name__ == "__main__":
    SITUATIONS[sys.argv[1]](int([*sys.argv, 20][2]))
    os._exit(0)  # some processes that use torch alone crash when Python exits (pytorch#38228)
